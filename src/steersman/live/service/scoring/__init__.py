"""Scores of nodes for the requests of the score service."""
