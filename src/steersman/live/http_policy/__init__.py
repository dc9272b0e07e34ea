"""Policies behind HTTP: a server is sent a pod and nodes, and answers with scores."""
