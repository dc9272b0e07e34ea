"""Experiments whose results are published in docs/results.md, each from scratch."""
