"""kube-scheduler as policies: its profiles, their configuration, and what its plugins read."""
