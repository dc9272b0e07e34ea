"""Learned policies that are networks, evaluated without PyTorch."""
