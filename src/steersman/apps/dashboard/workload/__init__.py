"""Files of `workload run`, and recordings of a scheduler, in the browser."""
