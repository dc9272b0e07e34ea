"""Learned policies that are linear in node features, optionally with a network added."""
