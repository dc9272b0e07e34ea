"""Foundations below the domain: errors, quantities, compiled kernels, processes, statistics."""
