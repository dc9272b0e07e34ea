"""Rules that score a node for a pod, with what they prefer, in the order of their numbers in the core.

`core/src/rules.rs` computes them. Formulas of `dot-product`, `gpu-clustering`, `gpu-packing`, `best-fit` and `fgd`:
Weng et al., "Beware of Fragmentation", USENIX ATC 2023, as the paper's artifact computes them.
"""

from __future__ import annotations

RULES = {
    "dot-product": "the smallest dot product of free resources and requests, over CPU and GPU",
    "gpu-clustering": "pods of one kind on nodes of their own, fuller nodes first",
    "gpu-packing": "devices in use first, then nodes in use, then unused nodes",
    "best-fit": "the least CPU and GPU left over after the pod",
    "fgd": "GPU fragmentation grows least (fragmentation gradient descent)",
    "least-allocated": "the largest free share of CPU and memory, as kube-scheduler's LeastAllocated",
    "most-allocated": "the smallest free share of CPU and memory, as kube-scheduler's MostAllocated",
    "balanced-allocation": "used shares of CPU and memory differ least",
}
