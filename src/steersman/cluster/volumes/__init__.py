"""Rules of kube-scheduler about volumes."""
