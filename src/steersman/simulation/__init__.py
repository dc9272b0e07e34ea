"""Simulation: arrivals, placements and departures on a cluster state, and their metrics."""
