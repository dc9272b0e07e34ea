"""Studies of policies on clusters and traces."""
