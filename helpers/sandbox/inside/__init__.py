"""What runs in the sandboxed process: standard library only, never imported by the trainer."""
