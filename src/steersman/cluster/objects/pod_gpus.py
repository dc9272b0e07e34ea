"""GPUs of a v1 Pod: by the annotations of open-simulator, by device plugins, or as shares of other schedulers."""

from __future__ import annotations

from collections.abc import Mapping

from steersman.cluster.gpu_resources import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.objects.api.pods import PodSpec
from steersman.cluster.objects.fields import FieldError, Object, join, text
from steersman.cluster.objects.gpu_shares import GpuShare, GpuSharing, card_share, gpu_mem_share, hami_share, kai_share
from steersman.cluster.objects.node_gpus import GPU_MILLI_KEY
from steersman.cluster.objects.requests import units
from steersman.core.quantities import MAX_NODE_GPUS, MAX_POD_GPUS, whole

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
    """Return a whole number in an annotation, with or without quotes."""
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
    """Return the `count` devices of an annotation such as 2-3-4; empty: none.

    Raises:
        ValueError: it does not name so many devices.
    """
    if not stated:
        return ()
    parts = stated.split("-")
    short = (part for part in parts if part.isascii() and part.isdigit() and len(part) < 5)
    numbers = {int(part) for part in short if int(part) < MAX_NODE_GPUS}
    if len(parts) != count or len(numbers) != count:
        raise ValueError(f"{stated!r} does not name the pod's {count} devices; write device numbers as 2-3-4")
    return tuple(int(part) for part in parts)
