"""Tasks beside the first one. Each has its prompts, rewards and grader in one folder, and is loaded when named."""
