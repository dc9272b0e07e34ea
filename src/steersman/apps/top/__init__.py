"""`steersman top`: requests on each node of a live cluster, waiting pods, and which scheduler decides."""
