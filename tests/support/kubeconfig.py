"""A kubeconfig whose API server is not there."""

UNREACHABLE = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: mine, context: {cluster: c, user: u}}]
current-context: mine
"""
