"""Decode pods of the API, with a cache by template: replicas differ only in their name and in fields that are not read.

Replicas also share one class and one set of labels in memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec

from steersman.cluster.gpu_resources import GPU_MODEL_KEY
from steersman.cluster.model import Pod
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
)
from steersman.cluster.objects.fields import printable
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY
from steersman.cluster.objects.latency_limits import HARD_KEYS, SOFT_KEYS, USER_KEY
from steersman.cluster.objects.requests import RESIZE_PENDING

TEMPLATES_KEPT, LARGEST_TEMPLATE = 4096, 8 << 10
"""Templates whose pods are decoded once, and the bytes of the largest."""
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
    """Return the annotations of a live pod that are read."""
    notes = metadata.annotations or {}
    return {key: notes[key] for key in notes if key in READ_ANNOTATIONS}


def _metadata(metadata: ObjectMeta) -> ObjectMeta:
    read = read_annotations(metadata)
    return ObjectMeta("pod", metadata.namespace, None, metadata.labels, read, metadata.owner_references)


def _spec(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, node_name=None, volumes=read_volumes(spec))


def _status(status: PodStatus) -> PodStatus:
    """Return what the kubelet has granted to a pod."""
    resizes = [each for each in status.conditions or () if each.type == RESIZE_PENDING]
    if not (resizes or status.container_statuses or status.init_container_statuses or status.resources):
        return NO_STATUS
    conditions = [PodCondition(each.type, reason=each.reason) for each in resizes]
    return msgspec.structs.replace(status, phase=None, start_time=None, nominated_node_name=None, conditions=conditions)


_UNREAD = PodVolume()
