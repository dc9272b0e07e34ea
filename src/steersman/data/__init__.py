"""Data that ships with the package (see README.md in this folder for sources and licences)."""
