"""Agents: policies that learn by gradients, one file per algorithm, and the networks they train."""
