"""Load on a live cluster: random Deployments and replayed pods."""
