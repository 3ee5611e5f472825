"""The general task: write a text that satisfies instructions which code can verify."""
