"""Policy `most-even`: the node that leaves the CPU use of all nodes most even; the greedy rule for `balance`.

With u a node's share of CPU in use and v that share with the pod, m the mean of u over n nodes, the placement changes n
times the variance by (v - m)² - (u - m)² - (v - u)² / n: only the chosen node's share and the mean change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext

NAME = "most-even"

Floats = npt.NDArray[np.float64]


def variance_change(before: Floats, after: Floats, count: Floats | int) -> Floats:
    """Return the change of n times the variance by each placement.

    Args:
        before: distance of the node's share of CPU in use from the mean, both before the placement.
        after: distance of its share after the placement from the same mean.
        count: n.
    """
    change: Floats = after * after - before * before - (after - before) ** 2 / count
    return change


@dataclass(frozen=True, slots=True)
class MostEvenPolicy(Policy):
    """Minimise the standard deviation of the nodes' shares of requested CPU after each placement."""

    name: str = NAME
    order: Order = AGE

    def scorer(self, context: ScoringContext) -> Scorer:
        return MostEvenScorer(context.state)


class MostEvenScorer(Scorer):
    """Score by the variance after the placement."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state  # the cluster, which the caller keeps up to date

    def scores(self, query: PodQuery, candidates: Candidates) -> Floats:
        """Return minus the change of n times the variance, -inf where the pod does not fit; see `Scorer`."""
        nodes = self._state.arrays
        whole = np.maximum(nodes.allocatable[:, CPU], 1).astype(np.float64)
        share = (nodes.allocatable[:, CPU] - nodes.free[:, CPU]) / whole
        added = self._state.classes[query.class_id].requests.cpu_milli / whole
        # Nodes that no pod may enter do not count, as in the objective.
        counts = candidates.eligible & (nodes.allocatable[:, CPU] > 0)
        number = max(int(counts.sum()), 1)
        before = share - share[counts].sum() / number
        return np.where(candidates.feasible, -variance_change(before, before + added, number), -np.inf)
