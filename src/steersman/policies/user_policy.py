"""Adapter of user-defined policies: read-only inputs, checked scores, and errors that name the policy."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import NodeArrays
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import attribute_errors
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.workloads.profile import TypicalPod


@runtime_checkable
class PolicyProtocol(Protocol):
    """Interface of a user-defined policy: any object with a name and these two methods."""

    name: str

    def prepare(self, state: ClusterState, profile: tuple[TypicalPod, ...], seed: int) -> None:
        """Prepare for a run with the empty cluster, the typical pods and a seed for random numbers."""

    def scores(self, state: ClusterState, class_id: int, feasible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the score of every node slot, [N]; the highest feasible one wins, the lowest slot on ties."""


@dataclass(frozen=True, eq=False, slots=True)
class UserPolicy(Policy):
    """User-defined policy in Python."""

    name: str  # name in results
    implementation: PolicyProtocol  # the user's object
    order: Order = AGE

    def scorer(self, context: ScoringContext) -> Scorer:
        return UserScorer(self.implementation, context)


class UserScorer(Scorer):
    """Scorer that calls a user-defined policy and validates its scores.

    Args:
        policy: the user's object.
        context: inputs of the run; the policy gets the state with read-only arrays.

    Raises:
        SteersmanError: the policy's `prepare` failed.
    """

    def __init__(self, policy: PolicyProtocol, context: ScoringContext) -> None:
        self._policy = policy
        self._label = f"policy {policy.name!r}"
        self._source, self._state = context.state, copy.copy(context.state)
        self._show_state()
        with attribute_errors(self._label):
            policy.prepare(self._state, context.typical_pods, context.seed)

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        feasible = nodes.feasible
        self._show_state()
        with attribute_errors(self._label):
            scores = self._policy.scores(self._state, query.class_id, feasible.copy())
            scores = np.asarray(scores, dtype=np.float64)
        if scores.shape != feasible.shape:
            raise SteersmanError(f"{self._label}: scores must have the shape {feasible.shape}, not {scores.shape}")
        # Only where feasible: elsewhere a policy may return anything.
        if not np.isfinite(scores[feasible]).all():
            raise SteersmanError(f"{self._label}: the score of a feasible node is not a finite number")
        return np.where(feasible, scores, -np.inf)

    def _show_state(self) -> None:
        """Show the policy the present state: what has a number by now, and views of the same arrays."""
        vars(self._state).update(vars(self._source))
        self._state.arrays = NodeArrays(*(_read_only(array) for array in self._source.arrays))


def user_policy(spec: str, factory: object) -> UserPolicy:
    """Return the policy of a user's object, or of the object that a class or function returns.

    Raises:
        SteersmanError: the call of the class or function failed.
        UsageError: the object lacks a name or a method of `PolicyProtocol`.
    """
    with attribute_errors(f"policy {spec!r}"):
        policy = factory() if callable(factory) else factory
    for method in ("prepare", "scores"):
        if not callable(getattr(policy, method, None)):
            raise UsageError(f"policy {spec!r} has no method {method!r}; see {__name__}.{PolicyProtocol.__name__}")
    name = getattr(policy, "name", None)
    if not (isinstance(name, str) and name.strip() and name.isprintable()) or not isinstance(policy, PolicyProtocol):
        raise UsageError(f"policy {spec!r}: its attribute 'name' must be a one-line string, not {name!r}")
    return UserPolicy(name, policy)


def _read_only(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    view = array.view()
    view.flags.writeable = False
    return view
