"""The math task: integer word problems of one or two steps."""
