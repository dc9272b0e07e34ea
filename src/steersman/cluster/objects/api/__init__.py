"""Objects of the Kubernetes API, typed: of each kind the fields that are read. Null is the same as a missing field."""
