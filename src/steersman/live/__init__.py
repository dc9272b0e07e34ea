"""What drives and watches a live cluster: workloads that fill it, recordings of its scheduler, snapshots of it."""
