"""Programs of a local control plane: build, start, stop."""
