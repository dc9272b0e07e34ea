"""Observations of networks: features of nodes, pod and cluster, the same in environments and live clusters."""
