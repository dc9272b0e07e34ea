"""Formats of workload files, a module each; `registry` knows them, and those that installed packages add."""
