"""A user's rows, on their way to a task.

sources.py finds them, files.py reads them, columns.py says which column is the prompt and which the answer, rows.py
checks them and divides them into splits, arrow.py keeps them outside memory, task.py has them judged as another task
judges its own, and prepare.py writes them as a folder.
"""
