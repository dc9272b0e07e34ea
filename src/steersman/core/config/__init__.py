"""Configuration: files with `apiVersion` and `kind`, and options as fields of classes."""
