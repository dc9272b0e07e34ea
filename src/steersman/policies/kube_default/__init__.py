"""Policy that reproduces kube-scheduler's default configuration."""
