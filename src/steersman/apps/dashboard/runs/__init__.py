"""Folders that `simulate`, `evaluate` and `train` have written: which ones there are, and reading their files."""
