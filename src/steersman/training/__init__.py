"""Training runs: options, logs, checkpoints, validation, and the resulting policy file."""
