"""Telemetry of a local cluster: Prometheus, and exporters that show what its simulated nodes would use."""
