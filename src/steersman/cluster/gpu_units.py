"""How much of a GPU one unit of a node's extended resource is: what percentages, reports and dashboards count.

kube-scheduler counts units, whatever they are: whole devices, MIG slices, replicas of a device that pods share. Labels
of NVIDIA's GPU feature discovery and of GKE say which. Amounts are milli of one physical GPU; a MIG slice is as many of
its compute slices as it has (1g.5gb of an A100 is 1/7). `with_standard_labels` gives a node the labels that its
kubelet and the feature discovery of its GPUs' vendor would give it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from steersman.cluster.model import GPU_MILLI, GPU_MODEL_KEY, GPU_RESOURCES, PLUGIN_GPUS, SHARED_GPUS, Node, Requests

NVIDIA_GPUS = "nvidia.com/gpu"
RENAMED = ".shared"  # suffix of a resource whose units are replicas (`renameByDefault` of NVIDIA's device plugin)
PRODUCT = "nvidia.com/gpu.product"
COUNT = "nvidia.com/gpu.count"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
SLICES = "nvidia.com/gpu.slices.ci"
MIG_STRATEGY = "nvidia.com/mig.strategy"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_MODEL = "cloud.google.com/gke-accelerator"

MIG_PREFIX = "nvidia.com/mig-"
_PROFILE = re.compile(r"(?:(?P<compute>\d+)c\.)?(?P<slices>\d+)g\.\d+gb(?:[.+-][a-z.+-]+)?")
_IN_PRODUCT = re.compile(r"-MIG-(?P<profile>[0-9A-Za-z.+-]+?)(?:-SHARED)?$")
SLICES_OF_A_GPU = 7
_FOUR_SLICES = re.compile(r"\bA30\b|RTX.PRO", re.IGNORECASE)
"""Models that have 4 compute slices. Source: NVIDIA MIG User Guide, supported profiles."""
_FOUR_SLICE_PROFILES = frozenset(("1g.6gb", "2g.12gb", "4g.24gb", "2g.48gb", "4g.96gb"))

AMD_GPUS = "amd.com/gpu"
AMD_PARTITION = "amd.com/gpu.compute-memory-partition"
AMD_MODEL = "amd.com/gpu.product-name"
_AMD_MODE = re.compile(r"(?P<mode>[sdtqc]px)_nps\d")
_AMD_PARTS: Mapping[str, int] = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
"""Compute partitions of a GPU by mode; `cpx` makes one of each die. Source: AMD GPU Operator, partitioning profiles."""
_SIX_DIES = re.compile("MI300A")

INTEL_PREFIX = "gpu.intel.com/"
_INTEL_COUNT = re.compile(r"gpu\.intel\.com/device-id\..+\.count")
INTEL_COUNT = "gpu.intel.com/device.count"

PARTS: Mapping[str, tuple[str, int]] = {
    "aliyun.com/gpu-mem": ("aliyun.com/gpu-count", 0),
    "volcano.sh/gpu-memory": ("volcano.sh/gpu-number", 0),
    "tencent.com/vcuda-core": ("", 100),
}
"""Resources of which a GPU has many: the resource that is the node's number of GPUs, or else the units of each GPU."""

_VENDORS = re.compile(
    r"(nvidia|amd|gpu\.intel|habana|huawei|cambricon|hygon|metax-tech|mthreads|iluvatar|enflame|kunlunxin|birentech)"
    r"\.(com|ai)/|aws\.amazon\.com/neuron|google\.com/tpu|.*gpu",
    re.IGNORECASE,
)
_NO_DEVICES = frozenset(
    (
        *(number for number, _ in PARTS.values() if number),
        "alibabacloud.com/gpu-mem",
        *(f"nvidia.com/{name}" for name in ("gpumem", "gpumem-percentage", "gpucores", "priority")),
        *(f"gpu.intel.com/{name}" for name in ("i915_monitoring", "xe_monitoring", "monitoring")),
        *(f"gpu.intel.com/{name}" for name in ("memory.max", "millicores", "tiles")),
    )
)
"""Resources that describe devices which other resources count."""


def unit_milli(resource: str, labels: Mapping[str, str], units: Mapping[str, int], physical: int = 0) -> float:
    """Return the milli of a GPU that one unit of a node's resource is, 0 if it is not known to be a part of one.

    `units`: what the node offers, by name; `physical`: number of GPUs behind `nvidia.com/gpu`, 0 if only labels say it.
    """
    if resource == NVIDIA_GPUS and physical and units.get(resource):
        return GPU_MILLI * physical / units[resource]
    if resource == SHARED_GPUS:
        return GPU_MILLI
    if resource.startswith(MIG_PREFIX):
        profile = resource.removeprefix(MIG_PREFIX).removesuffix(RENAMED)
        model = labels.get(PRODUCT, "")
        return _slice_milli(profile, model) / (_replicas(resource, labels, units) or 1)
    if resource in PLUGIN_GPUS:
        if resource == AMD_GPUS:
            return _amd_milli(labels.get(AMD_PARTITION, ""), labels)
        if resource.startswith(INTEL_PREFIX):
            return GPU_MILLI / _intel_replicas(resource, labels, units)
        if not resource.startswith(NVIDIA_GPUS):
            return GPU_MILLI
        return (_partition_milli(labels) or GPU_MILLI) / (_replicas(resource, labels, units) or 1)
    if resource.startswith("amd.com/"):
        mode = resource.removeprefix("amd.com/")
        return _amd_milli(mode, labels) if _AMD_MODE.fullmatch(mode) else 0.0
    if resource in PARTS:
        number, of_each = PARTS[resource]
        total = units.get(resource, 0)
        gpus = units.get(number, 0) if number else total / of_each
        return GPU_MILLI * gpus / total if total else 0.0
    return 0.0


def offered_units(node: Node) -> dict[str, int]:
    """Return what a node offers by name, devices in the mask included; those without a name are shared ones."""
    names = node.gpu_resources or (SHARED_GPUS,)
    return {name: node.gpu_count for name in names if node.gpu_count} | dict(node.extended)


def device_milli(node: Node) -> float:
    if not node.gpu_count or not node.gpu_resources:
        return GPU_MILLI
    return unit_milli(node.gpu_resources[0], node.labels, offered_units(node), node.physical_gpus)


def counted_milli(node: Node) -> dict[str, float]:
    """Return the milli of a GPU of one unit by name, of the extended resources that are GPUs or parts of them."""
    units = offered_units(node)
    milli = {name: unit_milli(name, node.labels, units, node.physical_gpus) for name, _ in node.extended}
    return {name: each for name, each in milli.items() if each}


def gpu_milli(node: Node) -> int:
    """Return all GPUs of a node in milli."""
    counted = counted_milli(node)
    return round(
        node.gpu_count * device_milli(node) + sum(units * counted.get(name, 0.0) for name, units in node.extended)
    )


def mean_milli(nodes: Iterable[Node]) -> dict[str, float]:
    """Return by name the mean milli of a GPU over all units that nodes offer."""
    units: dict[str, int] = {}
    milli: dict[str, float] = {}
    for node in nodes:
        each = {name: device_milli(node) for name in node.gpu_resources if node.gpu_count} | counted_milli(node)
        for name, amount in offered_units(node).items():
            if name in each:
                units[name] = units.get(name, 0) + amount
                milli[name] = milli.get(name, 0.0) + amount * each[name]
    return {name: milli[name] / units[name] for name in units}


def requested_units(requests: Requests) -> dict[str, int]:
    """Return by name the milli units that a pod requests of resources that may be GPUs or parts of them."""
    units = {requests.gpu_resource: requests.gpu_total_milli} if requests.gpu_count else {}
    return units | {name: amount * GPU_MILLI for name, amount in requests.extended}


def held_milli(node: Node, units: Mapping[str, int]) -> int:
    """Return the milli of GPUs that pods hold which request so many milli units of a node, by name."""
    each = dict.fromkeys(node.gpu_resources, device_milli(node)) if node.gpu_count else {}
    each |= counted_milli(node)
    milli = 0.0
    for name, amount in units.items():
        # A pod that runs may hold a GPU that its node offers no longer; it counts as a whole one.
        unknown = GPU_MILLI if not name or name in GPU_RESOURCES else 0.0
        milli += amount * each.get(name, unknown) / GPU_MILLI
    return round(milli)


def requested_milli(requests: Requests, means: Mapping[str, float]) -> int:
    """Return the milli of GPUs that a pod requests, wherever it may run; `means` as from `mean_milli`."""
    milli = requests.gpu_total_milli * means.get(requests.gpu_resource, GPU_MILLI) / GPU_MILLI
    for name, amount in requests.extended:
        milli += amount * (means[name] if name in means else unit_milli(name, {}, {}))
    return round(milli)


def is_accelerator(resource: str) -> bool:
    """Return whether a name is that of GPUs, of parts of them, or of other accelerators."""
    return resource not in _NO_DEVICES and _VENDORS.match(resource) is not None


def is_unclear(node: Node) -> bool:
    """Return whether the labels of a node say that its GPUs are shared or sliced, and not in how many parts.

    Its units count as whole GPUs or slices then.
    """
    units = offered_units(node)
    named = [name for name in units if name.startswith(MIG_PREFIX) or name.removesuffix(RENAMED) == NVIDIA_GPUS]
    is_sliced = any(name in PLUGIN_GPUS for name in named) and not _partition_milli(node.labels)
    return is_sliced or any(_replicas(name, node.labels, units) is None for name in named)


def _partition_milli(labels: Mapping[str, str]) -> float:
    """Return what the devices of `nvidia.com/gpu` are: MIG slices (strategy `single`), whole GPUs; 0: unclear."""
    product = labels.get(PRODUCT, "")
    if (match := _IN_PRODUCT.search(product)) is not None:
        return _slice_milli(match["profile"], product)
    if labels.get(GKE_PARTITION):
        return _slice_milli(labels[GKE_PARTITION], labels.get(GKE_MODEL, ""))
    slices = _number(labels.get(SLICES))
    if labels.get(MIG_STRATEGY) == "single" and slices:
        return GPU_MILLI * slices / _slices_of(product)
    return GPU_MILLI


def _slice_milli(profile: str, model: str) -> float:
    match = _PROFILE.fullmatch(profile)
    if match is None:
        return 0.0
    # The memory in the profile tells such models where the label is missing.
    total = 4 if profile in _FOUR_SLICE_PROFILES else _slices_of(model)
    return GPU_MILLI * int(match["compute"] or match["slices"]) / total


def _slices_of(model: str) -> int:
    return 4 if _FOUR_SLICES.search(model) else SLICES_OF_A_GPU


def _amd_milli(partition: str, labels: Mapping[str, str]) -> float:
    """Return what a GPU's partition is by its modes of compute and memory; a whole GPU without them."""
    match = _AMD_MODE.fullmatch(partition.lower())
    parts = 1 if match is None else _AMD_PARTS[match["mode"]]
    return GPU_MILLI / (6 if parts == 8 and _SIX_DIES.search(labels.get(AMD_MODEL, "")) else parts)


def _intel_replicas(resource: str, labels: Mapping[str, str], units: Mapping[str, int]) -> int:
    """Return how many containers may share a GPU (`-shared-dev-num`): units of all GPUs over their number."""
    devices = _number(labels.get(INTEL_COUNT)) or sum(
        _number(labels[key]) for key in labels if _INTEL_COUNT.fullmatch(key)
    )
    amount = units.get(resource, 0)
    # With a remainder the labels and the units describe different devices.
    return amount // devices if devices and amount and amount % devices == 0 else 1


def _replicas(resource: str, labels: Mapping[str, str], units: Mapping[str, int]) -> int | None:
    """Return how many units of a resource share a device, None if labels do not say how many."""
    base = resource.removesuffix(RENAMED)
    if base == resource and f"{base}{RENAMED}" in units:
        return 1  # the replicas have the other name
    stated = _number(labels.get(f"{base}.replicas")) or _number(labels.get(GKE_CLIENTS))
    if stated:
        return stated
    is_shared = base != resource or (
        base == NVIDIA_GPUS
        and (labels.get(PRODUCT, "").endswith("-SHARED") or labels.get(STRATEGY, "none") not in ("", "none"))
    )
    if not is_shared:
        return 1
    devices, amount = _number(labels.get(f"{base}.count")), units.get(resource, 0)
    return amount // devices if devices and amount % devices == 0 else None


def _number(text: str | None) -> int:
    # Labels are written by anyone; a long number would exceed what the arrays hold.
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else 0


HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GIB = 1 << 30

MEMORY_MIB: Mapping[str, int] = {
    "T4": 15360,
    "P4": 7680,
    "P40": 24576,
    "P100": 16384,
    "V100": 16384,
    "V100M16": 16384,
    "V100M32": 32768,
    "A10": 23028,
    "A10G": 23028,
    "A30": 24576,
    "A40": 46068,
    "A100": 40960,
    "L4": 23034,
    "L40": 46068,
    "L40S": 46068,
    "H100": 81559,
    "H200": 143771,
    "B200": 183359,
}
"""Memory of NVIDIA's GPUs by model, as nvidia-smi reports it."""
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def with_standard_labels(node: Node) -> Node:
    """Return the node with the labels of a real one; those that it has are left as they are."""
    return replace(node, labels={**_standard_labels(node), **node.labels})


def added_labels(node: Node) -> dict[str, str]:
    """Return the labels of a node that `with_standard_labels` would add to it without them."""
    standard = _standard_labels(replace(node, labels={}))
    return {key: value for key, value in node.labels.items() if standard.get(key) == value}


def _standard_labels(node: Node) -> dict[str, str]:
    gpus = dict(node.extended) | dict.fromkeys(node.gpu_resources or (SHARED_GPUS,), node.gpu_count)
    model = node.gpu_model or next((node.gpu_model_for(name) for name in node.counted_gpus), "")
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", HOSTNAME: node.name}
    parts = [f"{node.cpu_milli / 1000:g}cpu", f"{node.memory_bytes / GIB:.0f}gi"]
    parts += [f"{node.gpu_total}x{model or 'gpu'}"] if node.gpu_total else []
    labels[INSTANCE_TYPE] = "-".join(parts)
    if gpus.get(SHARED_GPUS):
        labels[GPU_MODEL_KEY] = model
    if gpus.get(NVIDIA_GPUS) or gpus.get(SHARED_GPUS):
        labels[f"{NVIDIA_GPUS}.present"] = "true"
        labels[COUNT] = str(gpus.get(NVIDIA_GPUS) or gpus.get(SHARED_GPUS))
        labels[PRODUCT] = model
        labels[f"{NVIDIA_GPUS}.memory"] = str(MEMORY_MIB.get(model, ""))
    else:
        labels |= {PLUGIN_GPUS[name]: model for name in node.gpu_resources if PLUGIN_GPUS.get(name)}
    # The API refuses a node with an invalid label, such as a model with a space or an unknown memory ("").
    return {key: value for key, value in labels.items() if _LABEL.fullmatch(value)}
