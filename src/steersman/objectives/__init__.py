"""Objectives: measures of a cluster's state, which policies aim at and reports show."""
