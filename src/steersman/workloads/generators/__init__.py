"""Generators of workloads that no trace stands behind."""
