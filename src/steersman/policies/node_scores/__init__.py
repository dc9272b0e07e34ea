"""Compiled scores of one node: published heuristics and the plugins of kube-scheduler."""
