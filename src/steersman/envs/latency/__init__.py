"""`steersman/Latency-v0`, with its simulated telemetry."""
