"""`steersman/Inflation-v0` and `steersman/Timed-v0`."""
