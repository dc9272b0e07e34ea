"""Agents: policies that learn by gradients, one file an algorithm, and the networks they train."""
