"""What a cluster is: nodes, pods, their state as arrays, and the hard constraints as masks."""
