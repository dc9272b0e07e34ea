"""Simulated runs in the browser: what happened, where two policies differ, and why."""
