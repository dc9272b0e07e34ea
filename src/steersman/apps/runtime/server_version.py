"""The version of a cluster's API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.policies.node_scores.kube_minors import parse_version


async def server_version(client: Client) -> str:
    """Return the version of the API server, such as `v1.36.3+k3s1`.

    Raises:
        SteersmanError: the server does not answer, or the answer names no version.
    """
    return version_of(await client.get("/version"))


def version_of(answer: Mapping[str, Any]) -> str:
    """Return the version in an answer to `/version`. Raises SteersmanError: it names none."""
    version = str(answer.get("gitVersion", ""))
    try:
        parse_version(version)
    except ValueError:
        problem = "does not name the version of an API server"
        raise SteersmanError(f"GET /version: the answer {problem}; correct the server of the kubeconfig") from None
    return version
