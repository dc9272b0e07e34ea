"""Workloads as Kubernetes objects in YAML or JSON."""
