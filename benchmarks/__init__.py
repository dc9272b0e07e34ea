"""What speed is claimed, measured side by side in one run."""
