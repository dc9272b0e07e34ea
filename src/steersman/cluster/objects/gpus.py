"""GPUs of a v1 Node (devices with bits in a mask, or counted) and of a v1 Pod (annotations, device plugins, shares).

Shares are those of other schedulers: KAI's fractions, open-simulator's memory, HAMi's memory and cores. Alibaba's
gpushare extender and Volcano put a pod's memory on one GPU of its node. kube-scheduler knows none of them; they are
read from files, where pods are placed again. A request for memory is the share of the smallest of the nodes' GPUs that
has as much.

Sources: KAI Scheduler 0.9 (docs/gpu-sharing), open-simulator (pkg/utils), HAMi 2.6 (docs/develop/protocol.md,
pkg/device/nvidia), gpushare-scheduler-extender (pkg/cache), Volcano 1.12 (docs/design/gpu-sharing.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from steersman.cluster.gpu_units import NVIDIA_GPUS, PARTS
from steersman.cluster.model import GPU_MILLI, GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS, Node, gpu_model
from steersman.cluster.objects.api.metadata import ObjectMeta
from steersman.cluster.objects.api.pods import NO_RESOURCES, Container, PodObject, PodSpec
from steersman.cluster.objects.fields import FieldError, Object, join, text
from steersman.cluster.objects.requests import units
from steersman.core.quantities import MAX_AMOUNT, MAX_NODE_GPUS, MAX_POD_GPUS, NANO, ceil_div, nano, plausible, whole

FRACTION, MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
"""KAI's annotations: share of each device, or MiB of its memory, and the number of devices."""
GROUP = "runai-gpu-group"
RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
"""Namespaces of the pods with which KAI keeps others off the GPUs that its pods share."""

GPU_MEM = "alibabacloud.com/gpu-mem"
"""Memory of each device that a pod requests (annotation), and of all devices of a node (resource), in bytes."""

HAMI_REGISTER = "hami.io/node-nvidia-register"
HAMI_MEMORY, HAMI_PERCENT, HAMI_CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
HAMI_USE, HAMI_NOT = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
"""HAMi's annotations: parts of names of GPU models that a pod may have, and may not have, separated by commas."""
HAMI_RESOURCES = (HAMI_MEMORY, HAMI_PERCENT, HAMI_CORES)
"""Resources that HAMi's scheduler counts and no node offers: MiB, percent of the memory and of the cores of a GPU."""

MEMORY_LABEL = f"{NVIDIA_GPUS}.memory"
MIB = 1 << 20


class GpuShare(NamedTuple):
    """Devices that a pod shares: how many, milli of each, the resource, and MiB that no GPU has (0: one has)."""

    devices: int
    milli: int
    resource: str
    too_large: int = 0


class GpuSharing(NamedTuple):
    """What nodes say of GPUs that pods share: MiB of one, ascending; whether HAMi shares them, and the models.

    `cards`: by a resource of `PARTS`, which counts the memory of all GPUs of a node, that of one GPU, ascending.
    """

    memory_mib: tuple[int, ...] = ()
    hami: bool = False
    models: tuple[str, ...] = ()
    cards: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def memory_share(self, mib: int) -> tuple[int, int]:
        """Return the milli of a GPU that MiB of its memory are, and the MiB again if no GPU has as much."""
        return _share_of(mib, self.memory_mib) if self.memory_mib else (GPU_MILLI, 0)


def sharing_of(nodes: Iterable[Node]) -> GpuSharing:
    """Return what nodes say of GPUs that pods share."""
    nodes = [node for node in nodes if node.gpu_total]
    of_cards = {node.name: resource for node in nodes if (resource := _card_resource(node))}
    sizes = sorted({size for node in nodes if node.name not in of_cards and (size := memory_mib(node))})
    cards = {
        resource: tuple(sorted({node.gpu_memory_mib for node in nodes if of_cards.get(node.name) == resource}))
        for resource in sorted({*of_cards.values()})
    }
    hami = [node for node in nodes if node.physical_gpus]
    models = tuple(sorted({node.gpu_model for node in hami}))
    return GpuSharing(tuple(sizes), bool(hami), models, tuple(cards.items()))


def _card_resource(node: Node) -> str:
    """Return the resource that counts the memory of a node's GPUs, of each of which pods have shares; else ""."""
    if node.gpu_resources != (SHARED_GPUS,) or not node.gpu_memory_mib:
        return ""
    offered = dict(node.extended)
    return next((resource for resource, (number, _) in PARTS.items() if number and offered.get(number)), "")


def memory_mib(node: Node) -> int:
    """Return the MiB of each GPU of a node, 0 if it is unknown."""
    stated = node.labels.get(MEMORY_LABEL, "")
    total = dict(node.extended).get(GPU_MEM, 0)
    if node.gpu_memory_mib:
        return node.gpu_memory_mib
    if total:
        return total // node.gpu_total // MIB
    return int(stated) if stated.isascii() and stated.isdecimal() and len(stated) < 10 else 0


def shared_node(node: Node, annotations: Mapping[str, Any]) -> Node:
    """Return a node with its GPUs, of which pods have shares, in place of replicas or of the memory of all GPUs."""
    offered = dict(node.extended)
    for resource, (number, _) in PARTS.items():
        count = offered.get(number, 0)
        if 0 < count <= MAX_NODE_GPUS and offered.get(resource, 0) >= count and not node.gpu_count:
            # In the unit of the resource, which may be GiB or MiB.
            memory = offered.pop(resource) // count
            model, extended = gpu_model(node.labels, ()), tuple(sorted(offered.items()))
            shared = replace(node, gpu_count=count, gpu_model=model, gpu_resources=(SHARED_GPUS,))
            return replace(shared, gpu_memory_mib=memory, extended=extended)
    if not node.physical_gpus or not (NVIDIA_GPUS in node.gpu_resources or offered.pop(NVIDIA_GPUS, 0)):
        return node
    extended = tuple(sorted(offered.items()))
    count, stated = min(node.physical_gpus, MAX_NODE_GPUS), (model for _, model in _hami_gpus(annotations))
    model = node.gpu_model_for(NVIDIA_GPUS) or next(stated, "")
    return replace(node, gpu_count=count, gpu_resources=(NVIDIA_GPUS,), gpu_model=model, extended=extended)


def _share_of(amount: int, sizes: Iterable[int]) -> tuple[int, int]:
    """Return the milli of the smallest size that has an amount, and the amount again if none has."""
    size = next((each for each in sizes if each >= amount), 0)
    return (share_milli(amount, size), 0) if size else (GPU_MILLI, amount)


def share_milli(part: int, whole: int) -> int:
    """Return `part` of a device's `whole` in milli, so that as many of them fit on it as there are parts in it."""
    milli = ceil_div(part * GPU_MILLI, whole)
    fitting = whole // part if part else 0
    return max(1, milli if milli * fitting <= GPU_MILLI else part * GPU_MILLI // whole)


def hami_register(annotations: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of a node's healthy GPUs by HAMi's annotation, and the MiB of the smallest; else (0, 0)."""
    sizes = [size for size, _ in _hami_gpus(annotations)]
    return (len(sizes), min(sizes)) if sizes else (0, 0)


def _hami_gpus(annotations: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the MiB and the model of a node's healthy GPUs by HAMi's annotation."""
    text = annotations.get(HAMI_REGISTER)
    if not isinstance(text, str):
        return []
    try:
        if text.startswith("["):
            gpus = [each for each in json.loads(text) if each.get("health", True)]
            return [(int(each["devmem"]), str(each.get("type") or "")) for each in gpus]
        entries = [entry.split(",") for entry in text.split(":") if entry]
        return [(int(entry[2]), entry[4]) for entry in entries if entry[6] == "true"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return []


def hami_models(annotations: Object, sharing: GpuSharing) -> tuple[str, ...]:
    """Return the models of HAMi's GPUs that a pod may have by its annotations; empty: any.

    Where there is no such model, a name that no GPU has is returned.
    """
    wanted, unwanted = (_words(annotations.get(key)) for key in (HAMI_USE, HAMI_NOT))
    if not sharing.hami or not (wanted or unwanted):
        return ()
    allowed = (
        model
        for model in sharing.models
        if (not wanted or any(word in _plain(model) for word in wanted))
        and not any(word in _plain(model) for word in unwanted)
    )
    return tuple(allowed) or (",".join(wanted) or f"not {','.join(unwanted)}",)


def _words(stated: object) -> list[str]:
    return [_plain(word) for word in str(stated or "").split(",") if word.strip()]


def _plain(model: str) -> str:
    """Return a model as HAMi compares it; a label has hyphens for spaces."""
    return model.strip().upper().replace(" ", "-")


def is_reservation(metadata: ObjectMeta) -> bool:
    """Return whether a pod is KAI's, to keep other pods off a GPU that pods share."""
    return metadata.namespace in RESERVATIONS and GROUP in (metadata.labels or {})


def misplaced_annotation(owner: ObjectMeta, template: ObjectMeta) -> str:
    """Return an annotation about GPUs that a controller has and the template of its pods lacks, "" if there is none."""
    own, notes = owner.annotations or {}, template.annotations or {}
    return next((key for key in (GPU_MEM, SHARED_GPUS, FRACTION, MEMORY) if key in own and key not in notes), "")


def requests_memory(pod: PodObject) -> bool:
    """Return whether a pod, or a template of one, requests memory of GPUs."""
    notes = pod.metadata.annotations or {}
    return MEMORY in notes or GPU_MEM in notes or any(HAMI_MEMORY in _amounts(c) for c in pod.spec.containers or ())


def kai_share(annotations: Object, notes: str, sharing: GpuSharing) -> GpuShare | None:
    """Return the share that KAI's annotations request, None without them. Raises FieldError."""
    fraction, memory = (annotations.get(key) for key in (FRACTION, MEMORY))
    if fraction is None and memory is None:
        return None
    if fraction is not None and memory is not None:
        raise FieldError(join(notes, MEMORY), f"must not be there together with {FRACTION}")
    count = 1
    if DEVICES in annotations:
        count = _whole(annotations[DEVICES], join(notes, DEVICES))
    if fraction is None:
        mib = _whole(memory, join(notes, MEMORY))
        milli, too_large = sharing.memory_share(mib)
        return GpuShare(count, milli, NVIDIA_GPUS, too_large)
    try:
        share = float(fraction)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 < share <= 1:
        raise FieldError(join(notes, FRACTION), f"{fraction!r} must be a number above 0 and at most 1")
    return GpuShare(count, share_milli(round(share * 1_000_000), 1_000_000), NVIDIA_GPUS)


def gpu_mem_share(annotations: Object, notes: str, count: int, sharing: GpuSharing) -> GpuShare | None:
    """Return the share that open-simulator's memory requests of `count` devices, None without it. Raises FieldError."""
    stated = annotations.get(GPU_MEM)
    if stated is None:
        return None
    try:
        mib = ceil_div(nano(stated), NANO * MIB)
    except ValueError as error:
        raise FieldError(join(notes, GPU_MEM), str(error)) from None
    milli, too_large = sharing.memory_share(mib)
    return GpuShare(count or 1, milli, SHARED_GPUS, too_large) if mib else None


def card_share(plain: Mapping[str, int], sharing: GpuSharing) -> GpuShare | None:
    """Return the share of one GPU that a pod's memory of GPUs is, None without it; `plain`: nano-units by resource."""
    for resource, sizes in sharing.cards:
        if amount := ceil_div(plain.get(resource, 0), NANO):
            milli, too_large = _share_of(amount, sizes)
            return GpuShare(1, milli, SHARED_GPUS, too_large)
    return None


def hami_share(containers: Iterable[Container], path: str, sharing: GpuSharing) -> GpuShare | None:
    """Return the share that HAMi's resources request, None without them.

    Each container has as many devices as its `nvidia.com/gpu` (1 without it) and a share of each. Where containers
    have unequal shares, the largest counts for all. Raises FieldError.
    """
    shares = list(_hami_shares(containers, path, sharing)) if sharing.hami else []
    count, milli = sum(each.devices for each in shares), max((each.milli for each in shares), default=0)
    too_large = max((each.too_large for each in shares), default=0)
    return GpuShare(count, milli, NVIDIA_GPUS, too_large) if count else None


def has_unequal_shares(spec: PodSpec, sharing: GpuSharing) -> bool:
    """Return whether HAMi gives the containers of a pod, which may be invalid, unequal shares."""
    try:
        shares = _hami_shares(spec.containers or (), "spec.containers", sharing) if sharing.hami else ()
        return len({(each.milli, each.too_large) for each in shares if each.devices}) > 1
    except FieldError:
        return False


def _hami_shares(containers: Iterable[Container], path: str, sharing: GpuSharing) -> Iterator[GpuShare]:
    """Yield the share of each container that requests HAMi's resources. Raises FieldError."""
    for container in containers:
        amounts = _amounts(container)
        if not any(name in amounts for name in (NVIDIA_GPUS, *HAMI_RESOURCES)):
            continue
        try:
            gpus, mib, percent, cores = (
                ceil_div(nano(amounts.get(name, 0)), NANO) for name in (NVIDIA_GPUS, *HAMI_RESOURCES)
            )
        except ValueError as error:
            raise FieldError(path, str(error)) from None
        memory, over = sharing.memory_share(mib) if mib else (min(percent or 100, 100) * GPU_MILLI // 100, 0)
        milli = max(memory, min(cores, 100) * GPU_MILLI // 100)
        yield GpuShare(gpus if NVIDIA_GPUS in amounts else 1, milli, NVIDIA_GPUS, over)


def _whole(value: object, path: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise FieldError(path, f"{value!r} must be a whole number of at least 1")
    return number


def _amounts(container: Container) -> dict[str, Any]:
    resources = container.resources or NO_RESOURCES
    return {**(resources.limits or {}), **(resources.requests or {})}


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
