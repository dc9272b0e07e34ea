"""Formats of workload files, one module each; `registry` lists them and those of installed packages."""
