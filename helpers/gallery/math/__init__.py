"""The math task: integer word problems."""
