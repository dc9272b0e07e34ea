"""Features of formulas: quantities of one node with the pod on it, each defined in a line of text, Python and Go.

All three languages compute the same operations on float64 in the same order, so that scores are equal to the last bit.
Amounts of GPUs are integers (milli) until they are divided.
"""

from __future__ import annotations

from dataclasses import dataclass

CHANGE = "_change"
"""Ending of the name of a feature's change: with the pod on the node minus without it."""


@dataclass(frozen=True, slots=True)
class FormulaFeature:
    """A quantity of a node.

    Attributes:
        name: its name in formulas; with `CHANGE` it is by how much the pod changes it.
        meaning: definition in a phrase.
        others: features that the definition names.
        python: expression over the names in scope in `python_form`; arrays over nodes.
        go: expression over the names in scope in `go_form`.
    """

    name: str
    meaning: str
    python: str
    go: str
    others: tuple[str, ...] = ()


FORMULA_FEATURES = (
    FormulaFeature("idle", "GPUs that are free, free parts included", "total / 1000", "total / 1000"),
    FormulaFeature("whole", "GPUs that nothing uses", "whole * 1.0", "whole"),
    FormulaFeature(
        "parts", "free parts of GPUs in use, summed", "(total - whole * 1000) / 1000", "(total - whole*1000) / 1000"
    ),
    FormulaFeature("shared", "GPUs in use of which a part is free", "shared * 1.0", "shared"),
    FormulaFeature(
        "untouched",
        "1 where nothing uses any GPU, else 0",
        "np.where(whole == count, 1.0, 0.0)",
        "flag(whole == count)",
    ),
    FormulaFeature("gpus", "GPUs of the node, used or not", "count * 1.0", "count"),
    FormulaFeature("cpu", "GPUs that pods would use with the free CPU or memory, whichever is scarcer", "cpu", "cpu"),
    FormulaFeature(
        "short",
        "what cpu lacks to idle, at least 0",
        "np.maximum(total / 1000 - cpu, 0.0)",
        "max(total/1000-cpu, 0)",
        ("cpu", "idle"),
    ),
    FormulaFeature(
        "spare",
        "what cpu has beyond idle, at least 0",
        "np.maximum(cpu - total / 1000, 0.0)",
        "max(cpu-total/1000, 0)",
        ("cpu", "idle"),
    ),
    FormulaFeature("cpu_share", "free share of the node's CPU", "cpu_share", "cpuShare"),
    FormulaFeature("memory_share", "free share of the node's memory", "memory_share", "memoryShare"),
    FormulaFeature(
        "imbalance",
        "difference of these two shares, at least 0",
        "abs(cpu_share - memory_share)",
        "math.Abs(cpuShare - memoryShare)",
    ),
    FormulaFeature("dead", "free parts that are too small for any of sizes, summed", "dead / 1000", "dead / 1000"),
    FormulaFeature(
        "waste", "what the largest of sizes that fits leaves of each GPU, summed", "waste / 1000", "waste / 1000"
    ),
    FormulaFeature(
        "squares", "squares of the free amounts of each GPU, summed", "squares / 1000000", "squares / 1000000"
    ),
    FormulaFeature("idle_idle", "idle * idle", "np.square(total / 1000)", "square(total / 1000)", ("idle",)),
    FormulaFeature("whole_whole", "whole * whole", "np.square(whole * 1.0)", "whole * whole", ("whole",)),
    FormulaFeature("cpu_cpu", "cpu * cpu", "cpu * cpu", "cpu * cpu", ("cpu",)),
    FormulaFeature("idle_cpu", "idle * cpu", "total / 1000 * cpu", "total / 1000 * cpu", ("idle", "cpu")),
    FormulaFeature("whole_cpu", "whole * cpu", "whole * cpu", "whole * cpu", ("whole", "cpu")),
    FormulaFeature(
        "short_short",
        "short * short",
        "np.square(np.maximum(total / 1000 - cpu, 0.0))",
        "square(max(total/1000-cpu, 0))",
        ("short",),
    ),
    FormulaFeature(
        "spare_spare",
        "spare * spare",
        "np.square(np.maximum(cpu - total / 1000, 0.0))",
        "square(max(cpu-total/1000, 0))",
        ("spare",),
    ),
    FormulaFeature(
        "claimed",
        "idle times the share of the requested GPUs that must be of the node's model",
        "total / 1000 * claims",
        "total / 1000 * claims",
        ("idle",),
    ),
)
"""The features, in the order of `kernels.write_features`."""

FEATURE_COUNT = len(FORMULA_FEATURES)
FEATURE_NAMES = tuple(feature.name for feature in FORMULA_FEATURES)
TERM_NAMES = (*FEATURE_NAMES, *(f"{name}{CHANGE}" for name in FEATURE_NAMES if name != "gpus"))
"""All names that a term may have."""


def term_column(name: str) -> int:
    """Return the column of a term's values, see `kernels.write_features`; `name` is one of `TERM_NAMES`."""
    base = name.removesuffix(CHANGE)
    return FEATURE_NAMES.index(base) + (FEATURE_COUNT if base != name else 0)


def column_name(column: int) -> str:
    """Return the name of the term of a column."""
    return FEATURE_NAMES[column % FEATURE_COUNT] + (CHANGE if column >= FEATURE_COUNT else "")
