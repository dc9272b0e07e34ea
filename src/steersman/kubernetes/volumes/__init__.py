"""Volumes and claims: the nodes that they allow."""
