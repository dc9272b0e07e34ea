"""Replicas are decoded like any other pod, and once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.invalid_values import STRANGE, places, replaced

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.decoding import decode_pod
from steersman.cluster.objects.fields import FieldError, pod_from_json
from steersman.cluster.objects.replicas import decode_replica

RESIZING = {
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no"}],
    "containerStatuses": [
        {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}, "ready": True}
    ],
    "phase": "Running",
    "nominatedNodeName": "n2",
}


def pod(name: str = "web-1", **status: Any) -> dict[str, Any]:
    notes = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "500", "steersman.dev/latency-user": "u"}
    notes |= {"steersman.dev/expected-seconds": "60", "steersman.dev/gang": "g"}
    spec = {
        "activeDeadlineSeconds": 60,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": f"token-{name}", "projected": {}}, {"name": "d", "gcePersistentDisk": {"pdName": "d"}}],
        "nodeName": "n1",
    }
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True, "uid": "1"}
    metadata = {"name": name, "namespace": "shop", "labels": {"app": "web"}, "annotations": notes}
    return {"metadata": {**metadata, "uid": name, "ownerReferences": [owner]}, "spec": spec, "status": status}


def decoded(obj: dict[str, Any]) -> LivePod:
    return pod_from_json(msgspec.json.encode(obj))


def outcome(decode: Any, obj: LivePod) -> Pod | str:
    try:
        result = decode(obj)
        assert isinstance(result, Pod)
        return result.unbound()
    except FieldError as error:
        return str(error)


@pytest.mark.parametrize("status", [{}, RESIZING], ids=["plain", "resizing"])
def test_a_replica_is_decoded_as_the_pod_is(status: dict[str, Any]) -> None:
    obj = pod(**status)
    for place in places(obj):
        for value in STRANGE:
            try:
                changed = decoded(replaced(obj, place, value))
            except (FieldError, TypeError):  # JSON has no such keys
                continue
            assert outcome(decode_replica, changed) == outcome(decode_pod, changed), (place, value)


def test_what_differs_between_replicas_costs_no_decoding() -> None:
    first = decode_replica(decoded(pod("web-1", phase="Pending")))
    second = decode_replica(decoded(pod("web-2", phase="Running")))
    assert (first.name, second.name) == ("web-1", "web-2")
    assert first.pod_class is second.pod_class, "as no two decodings make it"
