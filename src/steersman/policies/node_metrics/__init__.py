"""What schedulers know of nodes from their metrics: estimates, latency limits and the rules over them."""
