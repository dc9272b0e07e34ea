"""A Kubernetes control plane on this machine with nodes simulated by KWOK: build, start, fill, clean, stop."""
