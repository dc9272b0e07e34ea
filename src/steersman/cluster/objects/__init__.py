"""Kubernetes v1 objects to the model and back."""
