"""The code that runs in the sandboxed process. It uses the standard library only.

The parent imports from here no more than both sides must agree on: `protocol`, the limit on CPU time, and the form of
a driver's answers.
"""
