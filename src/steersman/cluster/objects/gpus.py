"""GPUs of a v1 Node (devices with bits in a mask, or counted) and of a v1 Pod (annotations, device plugins, shares)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steersman.cluster.model import GPU_MILLI, GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS, gpu_model
from steersman.cluster.objects.api.pods import PodSpec
from steersman.cluster.objects.fields import FieldError, Object, join, text
from steersman.cluster.objects.gpu_shares import GpuShare, GpuSharing, card_share, gpu_mem_share, hami_share, kai_share
from steersman.cluster.objects.requests import units
from steersman.core.quantities import MAX_AMOUNT, MAX_NODE_GPUS, MAX_POD_GPUS, plausible, whole

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


GPU_COUNT_KEY = SHARED_GPUS
GPU_INDEX_KEY = "alibabacloud.com/gpu-index"


def shared_gpus(
    spec: PodSpec, path: str, plain: Mapping[str, int], annotations: Object, notes: str, sharing: GpuSharing
) -> GpuShare | None:
    """Return the share of GPUs that a pod requests of a scheduler other than kube-scheduler; None: none."""
    share = kai_share(annotations, notes, sharing)
    if share is not None:
        if whole := next((name for name in PLUGIN_GPUS if plain.get(name)), ""):
            raise FieldError(join(path, "containers"), f"request {whole}, and annotations a share of a GPU")
        return share
    if annotations.get(GPU_MILLI_KEY) is None:
        count = _annotated(annotations, GPU_COUNT_KEY, notes, MAX_POD_GPUS, "devices")
        share = gpu_mem_share(annotations, notes, count or 0, sharing)
    return share or card_share(plain, sharing) or hami_share(spec.containers or (), f"{path}.containers", sharing)


def pod_gpus(plain: Mapping[str, int], path: str, annotations: Object, notes: str) -> tuple[int, int, str]:
    """Return devices, milli of each, and resource name that a pod requests, by device plugin or by annotations."""
    names = [key for key in PLUGIN_GPUS if plain.get(key)]
    plugin = [units(plain[key]) for key in names]
    if len(names) > 1:
        problem = f"request both {' and '.join(names)}; a pod's GPUs must be of one kind"
        raise FieldError(join(path, "containers"), problem)
    if plugin and plugin[0] > MAX_POD_GPUS:
        problem = f"request {plugin[0]} GPUs, more than any real pod ({MAX_POD_GPUS} at most)"
        raise FieldError(join(path, "containers"), problem)
    count = _annotated(annotations, GPU_COUNT_KEY, notes, MAX_POD_GPUS, "devices")
    milli = _annotated(annotations, GPU_MILLI_KEY, notes, GPU_MILLI, f"of each device, 0 to {GPU_MILLI}")
    if milli and not count:
        raise FieldError(
            join(notes, GPU_COUNT_KEY), f"is missing or 0 where {GPU_MILLI_KEY} is {milli}; give the number of devices"
        )
    if count and milli == 0:
        raise FieldError(join(notes, GPU_MILLI_KEY), f"is 0 of each of {count} devices; expected 1 to {GPU_MILLI}")
    if count and milli is None:
        milli = GPU_MILLI
    if plugin:
        if count and (count, milli) != (plugin[0], GPU_MILLI):
            raise FieldError(
                join(notes, GPU_COUNT_KEY), f"{count} contradicts the {plugin[0]} devices that the containers request"
            )
        return plugin[0], GPU_MILLI, names[0]
    return (count, milli or 0, SHARED_GPUS) if count else (0, 0, "")


def _annotated(annotations: Object, key: str, path: str, limit: int, unit: str) -> int | None:
    value = annotations.get(key)
    if value is None:
        return None
    try:
        amount = whole(value)
        if amount != whole(value, round_up=False):
            raise ValueError(f"{value!r} is not a whole number")
    except ValueError as error:
        raise FieldError(join(path, key), str(error)) from None
    if amount > limit:
        raise FieldError(
            join(path, key),
            f"{amount} is too much; it is {unit}" + ("" if limit == GPU_MILLI else f", {limit} at most"),
        )
    return amount


def gpu_models(annotations: Object, path: str, count: int) -> tuple[str, ...]:
    """Return the models of GPUs that a pod with so many devices accepts; empty: any. Raises FieldError."""
    stated = text(annotations, GPU_MODEL_KEY, path).strip()
    if not stated or not count:
        return ()
    models = tuple(stated.split("|"))
    if any(not model.strip() for model in models):
        raise FieldError(join(path, GPU_MODEL_KEY), f"{stated!r} has an empty model; write models as A|B")
    return models


def gpu_devices(annotations: Object, path: str, count: int) -> tuple[int, ...]:
    """Return the devices that a pod holds by its annotation; empty: none. Raises FieldError."""
    stated = text(annotations, GPU_INDEX_KEY, path)
    try:
        return device_numbers(stated, count)
    except ValueError as error:
        raise FieldError(join(path, GPU_INDEX_KEY), str(error)) from None


def device_numbers(stated: str, count: int) -> tuple[int, ...]:
    """Return the `count` devices of an annotation such as 2-3-4; empty: none."""
    if not stated:
        return ()
    parts = stated.split("-")
    short = (part for part in parts if part.isascii() and part.isdigit() and len(part) < 5)
    numbers = {int(part) for part in short if int(part) < MAX_NODE_GPUS}
    if len(parts) != count or len(numbers) != count:
        raise ValueError(f"{stated!r} does not name the pod's {count} devices; write device numbers as 2-3-4")
    return tuple(int(part) for part in parts)
