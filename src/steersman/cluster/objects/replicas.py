"""Decode pods of the API, with a cache by template: replicas differ only in their name and in fields that are not read.

Replicas also share one class and one set of labels in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from steersman.cluster.model import (
    GPU_MILLI,
    GPU_MODEL_KEY,
    HARD_KEYS,
    PLUGIN_GPUS,
    SHARED_GPUS,
    SOFT_KEYS,
    USER_KEY,
    Pod,
)
from steersman.cluster.objects.api.metadata import ObjectMeta
from steersman.cluster.objects.api.pods import NO_STATUS, PodCondition, PodObject, PodSpec, PodStatus, PodVolume
from steersman.cluster.objects.decoding import (
    AT_ONCE_KEY,
    CREATION_KEY,
    DELETION_KEY,
    ESTIMATE_KEY,
    GANG_KEY,
    GANG_MINIMUM_KEY,
    OWNER_KEY,
    decode_pod,
    nominated_node,
    pod_from_object,
)
from steersman.cluster.objects.fields import Object, printable
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY
from steersman.cluster.objects.requests import CPU, HUGEPAGES, MEMORY, RESIZE_PENDING, amount_limit, check_hugepages
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_POD_GPUS, NANO, ceil_div, nano, whole

# Decode what an invalid pod takes from its node: the valid rest of it counts. A bound pod runs, whichever scheduler
# bound it. `pod_from_object` refuses what the API server or a scheduler would, so its requests would be lost with an
# annotation that nobody validates.

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


TEMPLATES_KEPT, LARGEST_TEMPLATE = 4096, 8 << 10  # templates whose pods are decoded once, and the bytes of the largest
READ_ANNOTATIONS = frozenset(
    (CREATION_KEY, DELETION_KEY, OWNER_KEY, GPU_COUNT_KEY, GPU_MILLI_KEY, GPU_MODEL_KEY, GPU_INDEX_KEY)
) | {*SOFT_KEYS, *HARD_KEYS, USER_KEY, ESTIMATE_KEY, GANG_KEY, GANG_MINIMUM_KEY, AT_ONCE_KEY}

_decode = msgspec.json.Decoder(PodObject).decode


def decode_replica(obj: PodObject) -> Pod:
    """Return a pod without the node that it names. Raises FieldError: a field is wrong."""
    key = msgspec.json.encode(PodObject(_metadata(obj.metadata), _spec(obj.spec), _status(obj.status)))
    pod = _decoded(key) if len(key) <= LARGEST_TEMPLATE else decode_pod(_decode(key))
    name = printable(obj.metadata.name, "metadata.name")
    terminating = bool(obj.metadata.deletion_timestamp)
    return replace(pod, name=name, terminating=terminating, nominated=nominated_node(obj))


def read_volumes(spec: PodSpec) -> list[PodVolume]:
    """Return the volumes that are read, without names: a token's volume has another name in each replica."""
    volumes = (msgspec.structs.replace(each, name=None) for each in spec.volumes or ())
    return [each for each in volumes if each != _UNREAD]


@lru_cache(TEMPLATES_KEPT)
def _decoded(key: bytes) -> Pod:
    return decode_pod(_decode(key))


def read_annotations(metadata: ObjectMeta) -> dict[str, str]:
    notes = metadata.annotations or {}
    return {key: notes[key] for key in notes if key in READ_ANNOTATIONS}


def _metadata(metadata: ObjectMeta) -> ObjectMeta:
    read = read_annotations(metadata)
    return ObjectMeta("pod", metadata.namespace, None, metadata.labels, read, metadata.owner_references)


def _spec(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, node_name=None, volumes=read_volumes(spec))


def _status(status: PodStatus) -> PodStatus:
    resizes = [each for each in status.conditions or () if each.type == RESIZE_PENDING]
    if not (resizes or status.container_statuses or status.init_container_statuses or status.resources):
        return NO_STATUS
    conditions = [PodCondition(each.type, reason=each.reason) for each in resizes]
    return msgspec.structs.replace(status, phase=None, start_time=None, nominated_node_name=None, conditions=conditions)


_UNREAD = PodVolume()
