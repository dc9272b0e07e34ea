"""A reinforcement-learning scheduler for Kubernetes: one state, one encoder and one policy everywhere."""

__version__ = "0.1.0"
