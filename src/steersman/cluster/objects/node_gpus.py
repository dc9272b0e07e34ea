"""GPUs of a v1 Node: devices with bits in a mask, and GPUs that are counted like an extended resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steersman.cluster.gpu_resources import PLUGIN_GPUS, SHARED_GPUS, gpu_model
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.objects.fields import FieldError, Object, join
from steersman.core.quantities import MAX_AMOUNT, MAX_NODE_GPUS, plausible, whole

GPU_MILLI_KEY = "alibabacloud.com/gpu-milli"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """GPUs of a node: `count` devices of a model under names, and counted GPUs, (name, amount)."""

    count: int = 0
    model: str = ""
    resources: tuple[str, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()


def node_gpus(allocatable: Object, capacity: Object, labels: Mapping[str, str], path: str) -> NodeGpus:
    """Return the GPUs of a node's allocatable; shared ones may be stated in its capacity alone.

    Shared GPUs are the same devices as those of the device plugin with the same number, if there is one. Of several
    kinds one has bits in the mask: the shared one, or else the one with most devices, if `MAX_NODE_GPUS` suffice for
    it. The others are counted; shares of them cannot be requested.

    Raises:
        FieldError: the quantities are contradictory.
    """
    shared = {key: capacity[key] for key in (SHARED_GPUS, GPU_MILLI_KEY) if key in capacity}
    quantities = {**shared, **allocatable}
    stated = {name: _amount(quantities, name, path) for name in PLUGIN_GPUS if quantities.get(name) is not None}
    kinds: list[tuple[tuple[str, ...], int]] = [((name,), count) for name, count in stated.items() if count]
    count = _shared_gpus(quantities, path)
    if count is not None:
        names: tuple[str, ...] = (SHARED_GPUS,)
        if stated:
            same = next((kind for kind in kinds if kind[1] == count), None)
            if same is None and (count or kinds):
                others = " and ".join(str(other) for _, other in kinds) or "0"
                problem = f"{count} contradicts the {others} devices of the device plugin"
                raise FieldError(join(path, SHARED_GPUS), problem)
            if same is not None:
                kinds.remove(same)
                names += same[0]
        if count:
            kinds.insert(0, (names, count))
    few = [kind for kind in kinds if kind[1] <= MAX_NODE_GPUS]
    looked_at = max(few, key=lambda kind: (SHARED_GPUS in kind[0], kind[1]), default=None)
    counted = tuple((names[-1], amount) for names, amount in kinds if (names, amount) != looked_at)
    if looked_at is None:
        return NodeGpus(counted=counted)
    return NodeGpus(looked_at[1], gpu_model(labels, looked_at[0]), looked_at[0], counted)


def _shared_gpus(quantities: Mapping[str, Any], path: str) -> int | None:
    """Return the number of shared devices, None if nothing is stated.

    The milli are those of all devices, or of one: both are in use.
    """
    stated_count, stated_milli = quantities.get(SHARED_GPUS), quantities.get(GPU_MILLI_KEY)
    if stated_count is None and stated_milli is None:
        return None
    milli = 0 if stated_milli is None else _amount(quantities, GPU_MILLI_KEY, path)
    count = milli // GPU_MILLI if stated_count is None else _amount(quantities, SHARED_GPUS, path)
    if stated_milli is not None and milli not in {count * GPU_MILLI, min(count, 1) * GPU_MILLI}:
        problem = f"{milli} does not go with {count} devices of {GPU_MILLI}; expected {count * GPU_MILLI}"
        raise FieldError(join(path, GPU_MILLI_KEY), problem)
    return count


def _amount(quantities: Mapping[str, Any], name: str, path: str) -> int:
    try:
        return plausible(whole(quantities[name], round_up=False), MAX_AMOUNT, quantities[name])
    except ValueError as error:
        raise FieldError(join(path, name), str(error)) from None
