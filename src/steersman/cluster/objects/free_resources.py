"""What is free on a node, as an annotation of its v1 Node: whoever is sent nodes without their pods knows the rest.

The API has no field for it: `status.allocatable` is what pods may use in total. The annotation is one line of JSON:

    {"resources": {"cpu": "1500m", "memory": "8Gi"}, "gpuMilli": [1000, 250], "podCount": 3, "gpuPods": [1, 0, 1],
     "scoring": {"cpu": "2500m", "memory": "4Gi"}}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY, PODS
from steersman.cluster.model import GPU_MILLI, UNLIMITED
from steersman.cluster.objects import requests
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.fields import FieldError, join, text
from steersman.cluster.state import ClusterState
from steersman.core.quantities import bytes_, cpu_milli, format_bytes, format_cpu, format_whole, whole

FREE_KEY = "steersman.dev/free"  # annotation of a Node
MAX_PODS = 1 << 40
_PATH = join("metadata.annotations", FREE_KEY)
_FORMATS = {CPU: format_cpu, MEMORY: format_bytes, EPHEMERAL: format_bytes}
_PARSERS = {CPU: cpu_milli, MEMORY: bytes_, EPHEMERAL: bytes_}


class FreeResources(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Content of the annotation."""

    # By name as in `status.allocatable`, what no pod requests; resources without a limit are left out
    resources: dict[str, str] = {}
    gpu_milli: list[int] = []  # milli left of each GPU device
    pod_count: int = 0  # number of pods on the node
    # Pods that hold GPU devices: shares, then those with one whole device, with two, and so on
    gpu_pods: list[int] = []
    # CPU and memory requested in kube-scheduler's scoring view, in which a container that requests none counts as
    # 100m and 200MiB
    scoring: dict[str, str] = {}


_decoder = msgspec.json.Decoder(FreeResources)


def free_annotation(state: ClusterState, slot: int) -> str:
    arrays = state.arrays
    free, allocatable = arrays.free[slot].tolist(), arrays.allocatable[slot].tolist()
    kinds = arrays.gpu_kinds[slot].tolist()
    while kinds and not kinds[-1]:
        kinds.pop()
    content = FreeResources(
        resources={name: _FORMATS.get(c, format_whole)(max(free[c], 0)) for c, name in _columns(state, allocatable)},
        gpu_milli=arrays.gpu_free[slot, : arrays.gpu_count[slot]].tolist(),
        pod_count=allocatable[PODS] - free[PODS],
        gpu_pods=kinds,
        scoring={
            requests.CPU: format_cpu(int(arrays.nonzero[slot, 0])),
            requests.MEMORY: format_bytes(int(arrays.nonzero[slot, 1])),
        },
    )
    return msgspec.json.encode(content).decode()


def _columns(state: ClusterState, allocatable: list[int]) -> Iterator[tuple[int, str]]:
    """Yield the columns of a node's limited resources except pods, and their names."""
    for column, name in ((CPU, requests.CPU), (MEMORY, requests.MEMORY), (EPHEMERAL, requests.EPHEMERAL)):
        if allocatable[column] < UNLIMITED:
            yield column, name
    for column, name in enumerate(state.resources, EXTENDED):
        if allocatable[column]:
            yield column, name


def free_of(node: NodeObject) -> FreeResources | None:
    """Return the annotation of a node; None if it has none. Raises FieldError: it is invalid."""
    value = text(node.metadata.annotations or {}, FREE_KEY, "metadata.annotations")
    if not value:
        return None
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FieldError(_PATH, f"is not what is free on a node: {error}") from None


def set_free(state: ClusterState, slot: int, content: FreeResources) -> None:
    """Write what is free to the node in a slot, which must have no pods."""
    arrays = state.arrays
    allocatable = arrays.allocatable[slot].tolist()
    columns = {name: column for column, name in _columns(state, allocatable)}
    free = arrays.allocatable[slot].copy()
    for name, quantity in content.resources.items():
        if name not in columns:
            raise FieldError(_PATH, f"resources: the node has no {name!r}")
        column = columns[name]
        free[column] = _amount(_PARSERS.get(column, whole), quantity, f"resources: {name}", allocatable[column])
    count = int(arrays.gpu_count[slot])
    if len(content.gpu_milli) != count or not all(0 <= milli <= GPU_MILLI for milli in content.gpu_milli):
        problem = f"gpuMilli: expected {count} numbers from 0 to {GPU_MILLI}, one for each device"
        raise FieldError(_PATH, problem)
    limit = min(allocatable[PODS], MAX_PODS)
    if not 0 <= content.pod_count <= limit:
        raise FieldError(_PATH, f"podCount: {content.pod_count} is out of range; expected 0 to {limit}")
    free[PODS] = allocatable[PODS] - content.pod_count
    width = arrays.gpu_kinds.shape[1]
    if len(content.gpu_pods) > width or not all(0 <= number <= content.pod_count for number in content.gpu_pods):
        raise FieldError(_PATH, f"gpuPods: expected at most {width} numbers from 0 to podCount")
    taken = (arrays.allocatable[slot] - free)[[CPU, MEMORY]]
    for i, (name, parse) in enumerate(((requests.CPU, cpu_milli), (requests.MEMORY, bytes_))):
        if name in content.scoring:
            taken[i] = _amount(parse, content.scoring[name], f"scoring: {name}", UNLIMITED)
    arrays.free[slot] = free
    arrays.gpu_free[slot, :count] = content.gpu_milli
    arrays.gpu_kinds[slot] = np.pad(content.gpu_pods, (0, width - len(content.gpu_pods)))
    arrays.nonzero[slot] = taken


def _amount(parse: Any, quantity: str, where: str, most: int) -> int:
    try:
        amount = int(parse(quantity))
    except ValueError as error:
        raise FieldError(_PATH, f"{where}: {error}") from None
    if not 0 <= amount <= most:
        raise FieldError(_PATH, f"{where}: {quantity} is out of range; more than the node's allocatable is not free")
    return amount
