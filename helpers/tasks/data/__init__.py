"""Rows that a user brings: read, checked, divided into splits, and judged in place of a task's own."""
