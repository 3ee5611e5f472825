"""The code task: small functions, checked by hidden tests."""
