"""Numbers of the heuristics, which are functions of a pod class and one node alone; `core/src/rules.rs` computes them.

Formulas of `dot-product`, `gpu-clustering`, `gpu-packing`, `best-fit` and `fgd`: Weng et al., "Beware of
Fragmentation", USENIX ATC 2023, as the paper's artifact computes them.
"""

from __future__ import annotations

NAMES = (
    "dot-product",
    "gpu-clustering",
    "gpu-packing",
    "best-fit",
    "fgd",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
)
"""Names of the heuristics by number."""
BEST_FIT, FGD = NAMES.index("best-fit"), NAMES.index("fgd")
LEARNED = len(NAMES)
"""Number of a learned policy among what is summed."""
