"""The published heuristics and kube-scheduler's resource scores by name."""

from __future__ import annotations

from steersman.policies import local
from steersman.policies.policy import LocalPolicy

LOCAL = {
    "dot-product": local.DOT_PRODUCT,
    "gpu-clustering": local.GPU_CLUSTERING,
    "gpu-packing": local.GPU_PACKING,
    "best-fit": local.BEST_FIT,
    "fgd": local.FGD,
    "least-allocated": local.LEAST_ALLOCATED,
    "most-allocated": local.MOST_ALLOCATED,
    "balanced-allocation": local.BALANCED_ALLOCATION,
}
"""Numbers of the local policies in compiled code."""


def heuristic(name: str) -> LocalPolicy:
    """Return the heuristic of that name, which `LOCAL` must have."""
    return LocalPolicy(name, (LOCAL[name],), (1.0,), fgd_devices=name == "fgd")
