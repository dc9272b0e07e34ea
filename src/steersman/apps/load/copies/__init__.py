"""Copies of a manifest on a live cluster: created together, left alone, deleted, again and again."""
