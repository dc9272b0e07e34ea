"""Policies that a person can read: a score as a weighted sum of few features."""
