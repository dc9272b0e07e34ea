"""Requests and limits that kube-apiserver refuses are those that a file of pods is refused for."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from tests.e2e.cluster.test_admission import refusal
from tests.e2e.conftest import LocalCluster

from steersman.cluster.objects.decoding import pod_from_object
from steersman.core.errors import InputError

pytestmark = pytest.mark.e2e

RESOURCES = (
    *("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/fpga"),
    *("kubernetes.io/batch-cpu", "batch.kubernetes.io/cpu"),
)
AMOUNTS = (None, "0", "2", "4")
"""Of a request and of a limit; None: it is not stated."""
PAGES = (None, "0", "2Mi", "4Mi")
FRACTIONS = ("500m", "3")
POD_LEVEL = ("cpu", "memory", "hugepages-2Mi")


def pods() -> list[dict[str, Any]]:
    """Return a pod for each resource, request and limit, of a container, of a pod, and of both."""
    number, found = itertools.count(), []

    def add(container: dict[str, Any], level: dict[str, Any]) -> None:
        metadata = {"name": f"p{next(number)}", "namespace": "default"}
        spec = {"containers": [{"name": "c", "image": "c", "resources": container}], "resources": level}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    for name in RESOURCES:
        amounts = PAGES if name.startswith("hugepages") else AMOUNTS
        pairs = [*itertools.product(amounts, amounts), *((each, each) for each in FRACTIONS)]
        others: list[dict[str, str]] = [{}, {"memory": "1Gi"}] if name.startswith("hugepages") else [{}]
        for (request, limit), other in itertools.product(pairs, others):
            stated = resources(name, request, limit, other)
            add(stated, {})
            if name in POD_LEVEL:
                add({}, stated)
    for name, (first, second) in {"cpu": AMOUNTS[2:], "hugepages-2Mi": PAGES[2:]}.items():
        other = {} if name == "cpu" else {"memory": "1Gi"}
        for container, level in itertools.product(itertools.product((None, first, second), repeat=2), repeat=2):
            add(resources(name, *container, other), resources(name, *level, other))
    return found


def resources(name: str, request: str | None, limit: str | None, other: dict[str, str]) -> dict[str, Any]:
    """Return requests and limits."""
    stated = {key: {name: amount} for key, amount in (("requests", request), ("limits", limit)) if amount is not None}
    return stated | {"requests": stated.get("requests", {}) | other} if other else stated


def test_the_same_requests_are_rejected(cluster: LocalCluster) -> None:
    every = pods()
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": every})
    said = refusal(cluster, "create", "--dry-run=server", stdin=listed)
    theirs = set(re.findall(r'Pod "(p\d+)" is invalid', said))
    ours = set()
    for pod in every:
        try:
            pod_from_object(pod)
        except InputError:
            ours.add(pod["metadata"]["name"])
    specs = {pod["metadata"]["name"]: pod["spec"] for pod in every}
    assert [specs[name] for name in sorted(ours - theirs)] == []
    assert [specs[name] for name in sorted(theirs - ours)] == [], said
    assert 80 <= len(theirs) <= len(every) - 80
