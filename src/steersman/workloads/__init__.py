"""Workloads: traces, Kubernetes objects, generated Deployments, and the experiments made of them."""
