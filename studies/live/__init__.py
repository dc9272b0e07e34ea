"""Studies on a real control plane, whose simulated nodes use what they would in `steersman/Latency-v0`."""
