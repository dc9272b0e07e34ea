"""Nodes and pods, their state as integer arrays, and hard constraints as masks."""
