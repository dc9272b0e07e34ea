"""Example requests for every path of the OpenAPI document; each is valid for a service that watches no cluster."""

from __future__ import annotations

from typing import Any

POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
NODES: list[dict[str, Any]] = [
    {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}}}
    for name, cpu in (("small", "8"), ("large", "32"))
]
RUNNING: dict[str, Any] = {
    "metadata": {"name": "db-0", "namespace": "default"},
    "spec": {**POD["spec"], "nodeName": "small"},
}
_QUESTION = {"pod": POD, "cluster": {"nodes": NODES, "pods": [RUNNING]}}
_EXTENDER = {"Pod": POD, "Nodes": {"items": NODES}}

EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/scores": _QUESTION,
    "/v1/limits": _QUESTION,
    "/v1/suggestions": _QUESTION,
    "/v1/explain": _QUESTION,
    "/score": {"pod": POD, "nodes": NODES},
    "/filter": _EXTENDER,
    "/prioritize": _EXTENDER,
}
