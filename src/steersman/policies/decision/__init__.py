"""Compiled placement decisions, shared by simulations and live clusters."""
