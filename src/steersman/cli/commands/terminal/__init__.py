"""`steersman aliases` and `steersman completion`: what a shell sources."""
