"""Speed of simulations, environments and training."""
