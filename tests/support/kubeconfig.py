"""Kubeconfigs, and a client whose API server is not there."""

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


def write_kubeconfig(folder: Path, url: str, context: str = "mine") -> Path:
    """Write one of the server at a URL."""
    file = folder / "kubeconfig"
    file.write_text(UNREACHABLE.replace("http://127.0.0.1:1", url).replace("mine", context))
    return file


def unreachable() -> Client:
    return Client(KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))
