"""Compare policies on a cluster by short simulations, and choose one."""
