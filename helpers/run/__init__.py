"""A run: its settings, what is checked before it starts, and the commands that start it."""
