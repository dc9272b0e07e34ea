"""Placement policies, and the registry that resolves their names."""
