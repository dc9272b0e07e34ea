"""Requests of a pod's containers for devices, as kube-scheduler writes them into the pod's claim."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.live.scheduler.device_binder import requests_of


def container(name: str, amount: int, **more: Any) -> dict[str, Any]:
    limits = {"a.example/first": 1, "example.com/gpu": amount} if amount else {}
    return {"name": name, "resources": {"limits": limits}, **more}


@pytest.mark.parametrize(
    ("inits", "containers", "requests", "mappings"),
    [
        ([], [container("c", 2)], {"container-0-request-1": 2}, {("c", "container-0-request-1")}),
        (
            [],
            [container("c", 1), container("d", 0), container("e", 3)],
            {"container-0-request-1": 1, "container-2-request-1": 3},
            {("c", "container-0-request-1"), ("e", "container-2-request-1")},
        ),
        # A brief container uses what later ones get, and more only where that does not suffice.
        (
            [container("i", 1)],
            [container("c", 2)],
            {"container-1-request-1": 2},
            {("i", "container-1-request-1"), ("c", "container-1-request-1")},
        ),
        (
            [container("i", 3), container("j", 4)],
            [container("c", 2)],
            {"container-1-request-1": 2, "container-2-request-1": 2},
            {
                ("c", "container-2-request-1"),
                *((name, f"container-{number}-request-1") for name in "ij" for number in (1, 2)),
            },
        ),
        # A sidecar lasts; those before it use its devices, those after it do not.
        (
            [container("s", 1, restartPolicy="Always"), container("i", 1)],
            [container("c", 0)],
            {"container-0-request-1": 1, "container-1-request-1": 1},
            {("s", "container-0-request-1"), ("i", "container-1-request-1")},
        ),
    ],
)
def test_device_requests_and_mappings_are_allocated(
    inits: list[dict[str, Any]],
    containers: list[dict[str, Any]],
    requests: dict[str, int],
    mappings: set[tuple[str, str]],
) -> None:
    spec = {"initContainers": inits, "containers": containers}
    found, mapped = requests_of(spec, "example.com/gpu", "gpu.example.com")
    assert {each["name"]: each["exactly"]["count"] for each in found} == requests
    assert {each["exactly"]["deviceClassName"] for each in found} == {"gpu.example.com"}
    assert {(each["containerName"], each["requestName"]) for each in mapped} == mappings
    assert {each["resourceName"] for each in mapped} == {"example.com/gpu"}
