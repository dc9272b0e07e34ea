"""Networks in PyTorch, their inputs, and sampling from their scores."""
