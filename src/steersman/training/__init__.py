"""Training runs: options, logs, checkpoints, validation, and the policy file that comes of them."""
