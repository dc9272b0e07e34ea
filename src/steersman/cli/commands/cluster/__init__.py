"""`steersman cluster`: local clusters with simulated nodes."""
