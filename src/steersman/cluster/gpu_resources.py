"""Names under which nodes offer GPUs and pods request them; the Go plugin has the same, held by a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHARED_GPUS = "alibabacloud.com/gpu-count"
"""Resource of shared GPUs: pods request it by annotations, so kube-scheduler alone does not count it."""

PLUGIN_GPUS: Mapping[str, str] = {
    "nvidia.com/gpu": "nvidia.com/gpu.product",
    "nvidia.com/gpu.shared": "nvidia.com/gpu.product",
    "amd.com/gpu": "amd.com/gpu.product-name",
    "gpu.intel.com/i915": "gpu.intel.com/product",
    "gpu.intel.com/xe": "gpu.intel.com/product",
    "habana.ai/gaudi": "",
}
"""Extended resources of device plugins, which are whole devices: name -> the label of a node's model, "" if none."""

GPU_RESOURCES = frozenset((SHARED_GPUS, *PLUGIN_GPUS))

GPU_MODEL_KEY = "alibabacloud.com/gpu-card-model"
"""Label of a node's GPU model, whatever offers the GPUs; it precedes the labels of vendors."""

MODEL_LABELS = (GPU_MODEL_KEY, *dict.fromkeys(filter(None, PLUGIN_GPUS.values())))


def gpu_model(labels: Mapping[str, str], resources: Iterable[str]) -> str:
    """Return the model that a node's labels state for GPUs that it offers under these names, "" if none.

    Labels of other vendors do not count, unless no vendor is among the names.
    """
    vendors = [PLUGIN_GPUS[name] for name in resources if name in PLUGIN_GPUS]
    keys = (GPU_MODEL_KEY, *vendors) if vendors else MODEL_LABELS
    return next((labels[key] for key in keys if labels.get(key)), "")


def is_offered(resource: str, offered: tuple[str, ...]) -> bool:
    """Return whether devices offered under these names (none: any) serve pods that request `resource` ("": any)."""
    return not resource or not offered or resource in offered


def shown_name(resource: str) -> str:
    """Return the resource's name in a refusal: kube-scheduler knows only those of device plugins."""
    return resource if resource in PLUGIN_GPUS else "GPU"
