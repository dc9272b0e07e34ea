"""Telemetry of a live cluster: queries to Prometheus, values with their age, and the probe of latencies."""
