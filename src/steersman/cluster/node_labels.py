"""Labels that a kubelet and the feature discovery of a GPU's vendor would give a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from steersman.cluster.model import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS, Node

HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
NVIDIA_GPUS = "nvidia.com/gpu"
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
        labels[f"{NVIDIA_GPUS}.count"] = str(gpus.get(NVIDIA_GPUS) or gpus.get(SHARED_GPUS))
        labels[f"{NVIDIA_GPUS}.product"] = model
        labels[f"{NVIDIA_GPUS}.memory"] = str(MEMORY_MIB.get(model, ""))
    else:
        labels |= {PLUGIN_GPUS[name]: model for name in node.gpu_resources if PLUGIN_GPUS.get(name)}
    # The API refuses a node with an invalid label, such as a model with a space or an unknown memory ("").
    return {key: value for key, value in labels.items() if _LABEL.fullmatch(value)}
