"""Folders that `simulate` and `evaluate` have written: which ones there are, and reading their files."""
