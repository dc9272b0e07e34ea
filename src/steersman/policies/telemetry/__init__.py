"""Policies that decide by measured metrics and latencies."""
