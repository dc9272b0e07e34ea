"""What a release is made of, built from a checkout."""
