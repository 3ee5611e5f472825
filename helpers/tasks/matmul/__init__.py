"""The matmul task: write a matrix product in pure Python."""
