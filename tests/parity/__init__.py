"""The same numbers as PyTorch, as the definition, and as the C."""
