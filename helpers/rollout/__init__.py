"""Text out of the model."""
