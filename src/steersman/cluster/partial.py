"""What a pod takes from its node if it says things that make no sense: the rest of it counts all the same.

A pod that is bound runs, whoever bound it. `pod_from_object` refuses what the API server or a scheduler would, so its
requests would be lost with an annotation that nobody checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.cluster.fields import Object
from steersman.cluster.gpu_resources import PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.node_gpus import GPU_MILLI_KEY
from steersman.cluster.objects import GPU_INDEX_KEY, pod_from_object
from steersman.cluster.requests import amount_limit
from steersman.errors import InputError
from steersman.quantities import MAX_POD_GPUS, NANO, nano, whole

CONTAINERS = ("containers", "initContainers")
AMOUNTS = ("requests", "limits")


def partial_pod(obj: Object) -> Pod:
    """Decode what a v1 Pod takes from its node and what it keeps others from, and leave out what makes no sense.

    Amounts that no machine has count as the largest that are possible, a share of GPUs that makes no sense as whole
    ones. Constraints are left out if any of them makes no sense.
    """
    metadata, spec = _mapping(obj.get("metadata")), _mapping(obj.get("spec"))
    named = {key: metadata[key] for key in ("name", "namespace")}
    parts = 1 + sum(len(_list(spec.get(key))) for key in CONTAINERS)
    asked: dict[str, Any] = {key: [_container(each, parts) for each in _list(spec.get(key))] for key in CONTAINERS}
    asked["containers"] = asked["containers"] or [{}]
    asked["overhead"] = _amounts(spec.get("overhead"), parts)
    if spec.get("resources") is not None:
        asked["resources"] = {key: _amounts(_mapping(spec["resources"]).get(key), parts) for key in AMOUNTS}
    bare = {key: [_bare(each) for each in asked[key]] for key in CONTAINERS}
    bare |= {key: spec[key] for key in ("schedulerName", "priority") if key in spec}
    bare["overhead"] = asked["overhead"]
    notes = _mapping(metadata.get("annotations"))
    gpus = _gpus(notes)
    index = {GPU_INDEX_KEY: notes[GPU_INDEX_KEY]} if GPU_INDEX_KEY in notes else {}
    known = {key: metadata[key] for key in ("labels", "ownerReferences") if key in metadata}
    for meta, content in (
        ({**named, **known, "annotations": {**gpus, **index}}, {**spec, **asked}),
        ({**named, **known, "annotations": gpus}, {**spec, **asked}),
        ({**named, **known, "annotations": gpus}, bare),
        ({**named, "annotations": gpus}, bare),
    ):
        try:
            return pod_from_object({"metadata": meta, "spec": content})
        except InputError:
            continue
    return pod_from_object({"metadata": named, "spec": bare})


def _container(container: object, parts: int) -> dict[str, Any]:
    found = _mapping(container)
    resources = _mapping(found.get("resources"))
    return {**found, "resources": {key: _amounts(resources.get(key), parts) for key in AMOUNTS}}


def _bare(container: Mapping[str, Any]) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"} if container.get("restartPolicy") == "Always" else {}
    return {"resources": container.get("resources"), **restart}


def _amounts(quantities: object, parts: int) -> dict[str, str]:
    """Return what is an amount of something; `parts` such amounts together are no more than a machine may have."""
    found: dict[str, str] = {}
    for name, quantity in _mapping(quantities).items():
        limit = amount_limit(name)
        if limit is None or name in (SHARED_GPUS, GPU_MILLI_KEY):
            continue
        try:
            amount = min(nano(quantity), limit // parts)
        except ValueError:
            continue
        found[name] = f"{amount}n"
    kinds = sorted((name for name in found if name in PLUGIN_GPUS), key=lambda name: -nano(found[name]))
    for name in kinds[1:]:  # a pod's GPUs are of one kind
        del found[name]
    for name in kinds[:1]:
        found[name] = f"{min(nano(found[name]), MAX_POD_GPUS * NANO)}n"
    return found


def _gpus(notes: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations for GPUs that a pod asks for with as many devices as it says; what is unclear is whole."""
    count, milli = _whole(notes.get(SHARED_GPUS)), _whole(notes.get(GPU_MILLI_KEY))
    if not count and not milli:
        return {}
    devices = min(max(count or 1, 1), MAX_POD_GPUS)
    share = milli if milli is not None and 1 <= milli <= GPU_MILLI else GPU_MILLI
    return {SHARED_GPUS: str(devices), GPU_MILLI_KEY: str(share)}


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else whole(value)
    except ValueError:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
