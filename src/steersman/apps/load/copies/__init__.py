"""Copies of a manifest on a live cluster: created one after the other, left alone, deleted, again and again."""
