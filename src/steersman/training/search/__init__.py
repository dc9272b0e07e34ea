"""Training by evolution on simulated workloads."""
