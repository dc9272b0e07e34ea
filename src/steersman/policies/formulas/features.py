"""Features of formulas: quantities of one node with the pod on it, each defined in a line of text."""

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
    """

    name: str
    meaning: str
    others: tuple[str, ...] = ()


FORMULA_FEATURES = (
    FormulaFeature("idle", "GPUs that are free, free parts included"),
    FormulaFeature("whole", "GPUs that nothing uses"),
    FormulaFeature("parts", "free parts of GPUs in use, summed"),
    FormulaFeature("shared", "GPUs in use of which a part is free"),
    FormulaFeature("untouched", "1 where nothing uses any GPU, else 0"),
    FormulaFeature("gpus", "GPUs of the node, used or not"),
    FormulaFeature("cpu", "GPUs that pods would use with the free CPU or memory, whichever is scarcer"),
    FormulaFeature("short", "what cpu lacks to idle, at least 0", ("cpu", "idle")),
    FormulaFeature("spare", "what cpu has beyond idle, at least 0", ("cpu", "idle")),
    FormulaFeature("cpu_share", "free share of the node's CPU"),
    FormulaFeature("memory_share", "free share of the node's memory"),
    FormulaFeature("imbalance", "difference of these two shares, at least 0"),
    FormulaFeature("dead", "free parts that are too small for any of sizes, summed"),
    FormulaFeature("waste", "what the largest of sizes that fits leaves of each GPU, summed"),
    FormulaFeature("squares", "squares of the free amounts of each GPU, summed"),
    FormulaFeature("idle_idle", "idle * idle", ("idle",)),
    FormulaFeature("whole_whole", "whole * whole", ("whole",)),
    FormulaFeature("cpu_cpu", "cpu * cpu", ("cpu",)),
    FormulaFeature("idle_cpu", "idle * cpu", ("idle", "cpu")),
    FormulaFeature("whole_cpu", "whole * cpu", ("whole", "cpu")),
    FormulaFeature("short_short", "short * short", ("short",)),
    FormulaFeature("spare_spare", "spare * spare", ("spare",)),
    FormulaFeature("claimed", "idle times the share of the requested GPUs that must be of the node's model", ("idle",)),
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
