"""A user's own policy at arm's length: it can neither break a run nor pass for a fault of steersman."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import NodeArrays
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError, UsageError
from steersman.extensions import attribute_errors
from steersman.policies.base import Policy, ScoreQuery, Scorer, ScoringContext
from steersman.workloads.mix import TypicalPod


@runtime_checkable
class PolicyProtocol(Protocol):
    """The open protocol: a user's own policy is any object with a name and these two methods."""

    name: str

    def prepare(self, state: ClusterState, mix: tuple[TypicalPod, ...], seed: int) -> None:
        """Prepare for a run: the empty cluster, the typical pods, and a seed for what is random."""

    def scores(self, state: ClusterState, class_id: int, feasible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return a score for every node slot, [N], read where `feasible`; the highest wins, of equals the first."""


@dataclass(frozen=True, eq=False, slots=True)
class UserPolicy(Policy):
    """A policy that a user wrote in Python.

    Attributes:
        name: what results call it.
        implementation: what the user wrote.
    """

    name: str
    implementation: PolicyProtocol

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return UserScorer(self.implementation, context)


class UserScorer(Scorer):
    """Asks a user's policy, and checks what it answers.

    Args:
        policy: what the user wrote.
        context: of the run; the policy gets its state with arrays that it cannot write to.

    Raises:
        SteersmanError: the policy failed to prepare.
    """

    def __init__(self, policy: PolicyProtocol, context: ScoringContext) -> None:
        self._policy = policy
        self._who = f"policy {policy.name!r}"
        self._state = copy.copy(context.state)
        self._state.arrays = NodeArrays(*(_read_only(array) for array in context.state.arrays))
        with attribute_errors(self._who):
            policy.prepare(self._state, context.typical_pods, context.seed)

    def scores(self, query: ScoreQuery) -> npt.NDArray[np.float64]:
        """See `Scorer`."""
        feasible = query.feasible
        with attribute_errors(self._who):
            answer = self._policy.scores(self._state, query.class_id, feasible.copy())
            scores = np.asarray(answer, dtype=np.float64)
        if scores.shape != feasible.shape:
            raise SteersmanError(f"{self._who}: scores have the shape {scores.shape}, not {feasible.shape}")
        if not np.isfinite(scores[feasible]).all():
            raise SteersmanError(f"{self._who}: a node that the pod fits on has a score that is not a finite number")
        return np.where(feasible, scores, -np.inf)


def user_policy(spec: str, factory: object) -> UserPolicy:
    """Return the policy that a user's class or function makes, or that an object is.

    Raises:
        SteersmanError: making it failed.
        UsageError: it is no policy.
    """
    with attribute_errors(f"policy {spec!r}"):
        policy = factory() if callable(factory) else factory
    for method in ("prepare", "scores"):
        if not callable(getattr(policy, method, None)):
            raise UsageError(f"policy {spec!r} has no method {method!r}; see {__name__}.{PolicyProtocol.__name__}")
    name = getattr(policy, "name", None)
    if not (isinstance(name, str) and name.strip() and name.isprintable()) or not isinstance(policy, PolicyProtocol):
        raise UsageError(f"policy {spec!r}: its attribute 'name' must be a text of one line, not {name!r}")
    return UserPolicy(name, policy)


def _read_only(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    view = array.view()
    view.flags.writeable = False
    return view
