"""Experiments whose results are published in docs/results, each from scratch."""
