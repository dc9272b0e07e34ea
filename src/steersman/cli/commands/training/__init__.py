"""`steersman train` and `steersman tune`."""
