"""Policies that a person can read: a score as a weighted sum of few features, with renderings in Python and Go."""
