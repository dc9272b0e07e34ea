"""Telemetry of a live cluster: what is asked of Prometheus, the answers with their age, the probe of latencies."""
