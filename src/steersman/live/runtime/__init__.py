"""Shared parts of the live applications: the active policy, its workload profile, HTTP servers and tasks."""
