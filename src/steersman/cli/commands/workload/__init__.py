"""`steersman workload`: files, live clusters, recordings."""
