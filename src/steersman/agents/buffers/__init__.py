"""Transitions that agents learn from: replay buffers, rollouts, recordings."""
