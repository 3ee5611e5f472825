"""The reasoning task: Countdown, knights and knaves, and steps to be ordered."""
