"""Score pods that the watched cluster does not have, beside its state and within a share of time.

A pod of the cluster has a class and labels with numbers in the state. Any other pod that a client describes gets
numbers for the time of its request alone, so that no client can enlarge the state, have it rebuilt, or add to the
labels that are stored. The answer is the one that the pod would get if it were created: pods that it selects by labels
that are not stored are counted for it one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from steersman.cluster.model import Pod
from steersman.cluster.pod_query import NO_OWNER_PODS, PodQuery
from steersman.cluster.provisional import (
    complexity,
    count_selected,
    known_numbers,
    pod_selectors,
    provisional_numbers,
    selector_keys,
)
from steersman.core.errors import SteersmanError
from steersman.live.service.scoring.node_scorer import NodeScorer
from steersman.policies.base import Need

if TYPE_CHECKING:
    from steersman.kubernetes.cache.cached_pod import CachedPod
    from steersman.kubernetes.cache.cluster_cache import ClusterCache

A = TypeVar("A")
R = TypeVar("R")
UNKNOWN_SHARE = 0.05
"""Share of the event loop's time for classes and label sets that no pod of the cluster has; scoring every node for one
takes some milliseconds on thousands of nodes."""
SELECTING_SHARE = 0.002  # share for those that also select other pods: they are counted without a pause
SAVED_SECONDS = 0.25
MOST_REQUIREMENTS = 256  # maximum requirements of a class that no pod of the cluster has; each is checked on every node


class TimeBudget:
    """CPU seconds of the event loop's thread that may be spent on something: a share of all time, saved up to a limit.

    A request that starts while time is left may take more; the following ones are refused until the debt is paid.
    """

    def __init__(
        self,
        share: float,  # share of elapsed time, 0 to 1
        most: float,  # seconds that are saved up at most, and at the start
        clock: Callable[[], float] = time.perf_counter,  # elapsed seconds
        # CPU seconds of the thread; a machine that is busy with something else costs nothing
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._most, self._clock, self._cpu = share, most, clock, cpu
        self._left, self._as_of = most, clock()

    @property
    def is_spent(self) -> bool:
        now = self._clock()
        self._left = min(self._most, self._left + self._share * (now - self._as_of))
        self._as_of = now
        return self._left <= 0

    @contextmanager
    def charged(self) -> Iterator[None]:
        began = self._cpu()
        try:
            yield
        finally:
            self._left -= self._cpu() - began

    def charging(self, function: Callable[[A], R]) -> Callable[[A], R]:
        """Return a function that does the same and charges its CPU time."""

        def charged(argument: A) -> R:
            with self.charged():
                return function(argument)

        return charged


class UnusualPodError(SteersmanError):
    """A request costs more than there is time for now; the message says why."""


class UnknownPods:
    """Queries about pods that may not be in a watched cluster."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._unknown = TimeBudget(UNKNOWN_SHARE, SAVED_SECONDS)
        self._selecting = TimeBudget(SELECTING_SHARE, SAVED_SECONDS)

    @contextmanager
    def query(
        self, node_scorer: NodeScorer, pod: Pod, waiting: CachedPod | None = None
    ) -> Iterator[tuple[NodeScorer, PodQuery]]:
        """Yield a scorer for a pod and the query about it; both are valid inside the block only."""
        if waiting is not None:
            yield node_scorer, self._query(node_scorer, pod, self._cache.number(waiting))
            return
        decider, kept, constraints = node_scorer.decider, self._cache.selected, pod.pod_class.constraints
        state = decider.state
        keys = {key for selector in pod_selectors(constraints) for key in selector_keys(selector)}
        labels = {key: value for key, value in pod.labels.items() if key in kept or key in keys}
        known = known_numbers(state, pod.pod_class, pod.namespace, labels) if keys <= kept else None
        if known is not None:
            yield node_scorer, self._query(node_scorer, pod, known)
            return
        if complexity(constraints) > MOST_REQUIREMENTS:
            raise UnusualPodError(
                f"no pod of the cluster is like this one, and it has over {MOST_REQUIREMENTS} requirements"
            )
        budget = self._selecting if any(pod_selectors(constraints)) else self._unknown
        if budget.is_spent:
            raise UnusualPodError("no pod of the cluster is like this one, and many such pods were asked about lately")
        with budget.charged():
            decider.follow()
            guest, counted = decider.guest(), len(state.term_arrays.matched)
            with provisional_numbers(state):
                numbers = state.class_id(pod.pod_class), state.terms.labels_id(pod.namespace, labels)
                if not keys <= kept:
                    count_selected(state, counted, kept, lambda name: self._cache.pods[name].pod)
                yield node_scorer.with_decider(guest), self._query(node_scorer, pod, numbers)

    def _query(self, node_scorer: NodeScorer, pod: Pod, numbers: tuple[int, int]) -> PodQuery:
        needs_peers = Need.PEERS in node_scorer.decider.policy.needs or pod.latency.limited
        owner_pods = self._cache.owner_pods(pod) if needs_peers else NO_OWNER_PODS
        return PodQuery(*numbers, owner_pods, pod.latency, pod=pod)
