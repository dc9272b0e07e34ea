"""Predictions of when waiting pods start: rollouts from the present state of a cluster."""
