"""Experiment files of the open-simulator fork by ndr2084: a cluster configuration and a scheduler configuration."""
