"""The only package that talks to the Kubernetes API: configuration, transport, lists and watches, leases, events."""
