"""Policy of a formula: its scores, evaluated in compiled code, and its terms as reasons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.policies.decision.contributions import Contribution
from steersman.policies.formulas.features import FEATURE_COUNT, term_column
from steersman.policies.formulas.formula import Formula, read_formula
from steersman.policies.formulas.kernels import feature_rows, formula_scores, pod_kinds

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class FormulaPolicy(Policy):
    """Policy of a formula; it takes the GPU devices with the least free that suffice.

    Attributes:
        name: name in results.
        formula: the formula.
    """

    name: str
    formula: Formula
    order: Order = AGE

    is_learned: ClassVar[bool] = True

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return FormulaScorer(self.formula, context)

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """See `Policy`; the contributions are those of the formula's terms, named by line and text."""
        state = context.state
        rows = np.zeros((len(state.nodes), 2 * FEATURE_COUNT))
        arrays = self.formula.arrays(state.gpu_types)
        feature_rows(arrays, state.arrays, state.class_arrays, query.class_id, rows)
        kind = pod_kinds(state.class_arrays)[query.class_id]
        parts = []
        for term in self.formula.terms[kind]:
            value, others = (float(rows[n, term_column(term.name)]) for n in (slot, other))
            if value != others:
                where = f"line {term.line}: " if term.line else ""
                parts.append(Contribution(f"{where}{term}", value, others, term.weight * (value - others)))
        return parts


class FormulaScorer(Scorer):
    """Scorer of a formula for one cluster."""

    def __init__(self, formula: Formula, context: ScoringContext) -> None:
        self._formula, self._state = formula, context.state
        self._types = context.state.gpu_types
        self._arrays = formula.arrays(self._types)
        self._values = np.zeros(2 * FEATURE_COUNT)

    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        """See `Scorer`."""
        state = self._state
        # A node that joins a live cluster may bring another type of GPUs.
        if state.gpu_types is not self._types:
            self._types = state.gpu_types
            self._arrays = self._formula.arrays(self._types)
        scores = np.empty(len(nodes.feasible))
        formula_scores(
            self._arrays, state.arrays, state.class_arrays, query.class_id, nodes.feasible, self._values, scores
        )
        return scores


def open_formula(spec: str) -> FormulaPolicy:
    """Return the policy of a formula's text, under the name of the file. Raises InputError: see `read_formula`."""
    path = Path(spec)
    return FormulaPolicy(path.stem, read_formula(path))
