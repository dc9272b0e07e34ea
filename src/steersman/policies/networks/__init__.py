"""Learned policies that are networks, evaluated with NumPy."""
