"""Recordings of AAML's scheduler."""
