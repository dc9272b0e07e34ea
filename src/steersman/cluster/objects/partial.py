"""Decode what an invalid pod takes from its node: the valid rest of it counts.

A bound pod runs, whichever scheduler bound it. `pod_from_object` refuses what the API server or a scheduler would, so
its requests would be lost with an annotation that nobody validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.cluster.gpu_resources import PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.fields import Object
from steersman.cluster.objects.gpus import GPU_INDEX_KEY, GPU_MILLI_KEY
from steersman.cluster.objects.requests import CPU, HUGEPAGES, MEMORY, amount_limit, check_hugepages
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_POD_GPUS, NANO, ceil_div, nano, whole

CONTAINERS = ("containers", "initContainers")
AMOUNTS = ("requests", "limits")


def partial_pod(obj: Object) -> Pod:
    """Return what a v1 Pod takes from its node and keeps others from, without its invalid parts.

    Implausible amounts count as the largest plausible ones, an invalid share of GPUs as whole devices. Constraints are
    left out if any of them is invalid.
    """
    metadata, spec = mapping_or_empty(obj.get("metadata")), mapping_or_empty(obj.get("spec"))
    named = {key: metadata[key] for key in ("name", "namespace")}
    parts = 1 + sum(len(list_or_empty(spec.get(key))) for key in CONTAINERS)
    requests: dict[str, Any] = {
        key: [_container(each, parts) for each in list_or_empty(spec.get(key))] for key in CONTAINERS
    }
    requests["containers"] = requests["containers"] or [{}]
    requests["overhead"] = _amounts(spec.get("overhead"), parts)
    if spec.get("resources") is not None:
        requests["resources"] = {key: _amounts(mapping_or_empty(spec["resources"]).get(key), parts) for key in AMOUNTS}
    bare = {key: [_bare(each) for each in requests[key]] for key in CONTAINERS}
    bare |= {key: spec[key] for key in ("schedulerName", "priority") if key in spec}
    bare["overhead"] = requests["overhead"]
    notes = mapping_or_empty(metadata.get("annotations"))
    gpus = _gpus(notes)
    index = {GPU_INDEX_KEY: notes[GPU_INDEX_KEY]} if GPU_INDEX_KEY in notes else {}
    known = {key: metadata[key] for key in ("labels", "ownerReferences") if key in metadata}
    for meta, content in (
        ({**named, **known, "annotations": {**gpus, **index}}, {**spec, **requests}),
        ({**named, **known, "annotations": gpus}, {**spec, **requests}),
        ({**named, **known, "annotations": gpus}, bare),
        ({**named, "annotations": gpus}, bare),
    ):
        try:
            return pod_from_object({"metadata": meta, "spec": content})
        except InputError:
            continue
    return pod_from_object({"metadata": named, "spec": bare})


def _container(container: object, parts: int) -> dict[str, Any]:
    mapping = mapping_or_empty(container)
    resources = mapping_or_empty(mapping.get("resources"))
    amounts = {key: _amounts(resources.get(key), parts) for key in AMOUNTS}
    amounts["limits"] |= amounts["requests"]  # whatever contradicts them
    if any(name.startswith(HUGEPAGES) for name in amounts["limits"]) and not {CPU, MEMORY} & amounts["limits"].keys():
        amounts["requests"][MEMORY] = "0"  # hugepages need one of the two
    return {**mapping, "resources": amounts}


def _bare(container: Mapping[str, Any]) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"} if container.get("restartPolicy") == "Always" else {}
    return {"resources": container.get("resources"), **restart}


def _amounts(quantities: object, parts: int) -> dict[str, str]:
    """Return the valid amounts; `parts` such amounts together are no more than a machine may have."""
    result: dict[str, str] = {}
    for name, quantity in mapping_or_empty(quantities).items():
        limit = amount_limit(name)
        if limit is None or name in (SHARED_GPUS, GPU_MILLI_KEY):
            continue
        most = limit // parts
        try:
            amount = nano(quantity)
            if name.startswith(HUGEPAGES):
                check_hugepages(name, min(amount, most))
        except ValueError:
            continue
        is_whole = "/" in name  # extended resources have no fractions
        result[name] = str(min(ceil_div(amount, NANO), most // NANO)) if is_whole else f"{min(amount, most)}n"
    kinds = sorted((name for name in result if name in PLUGIN_GPUS), key=lambda name: -nano(result[name]))
    for name in kinds[1:]:  # a pod's GPUs are of one kind
        del result[name]
    for name in kinds[:1]:
        result[name] = str(min(int(result[name]), MAX_POD_GPUS))
    return result


def _gpus(notes: Mapping[str, Any]) -> dict[str, str]:
    """Return annotations for the GPUs that a pod requests with as many devices as it says; unclear shares are whole."""
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


def mapping_or_empty(value: object) -> Mapping[str, Any]:
    """Return a value that is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """Return a value that is a list, else an empty one."""
    return value if isinstance(value, list) else []
