"""Recordings and snapshots of a live cluster."""
