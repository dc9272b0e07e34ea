"""A kubeconfig whose API server is not there."""

from pathlib import Path

from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser

UNREACHABLE = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: mine, context: {cluster: c, user: u}}]
current-context: mine
"""


def unreachable() -> Client:
    return Client(KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))
