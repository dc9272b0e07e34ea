"""A Kubernetes control plane on this machine, with nodes that KWOK plays: built, started, filled, emptied, stopped."""
