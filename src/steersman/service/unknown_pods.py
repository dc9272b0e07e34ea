"""Questions about pods that the watched cluster does not have: answered beside its state, and within a share of time.

A pod that is in the cluster has a class and labels with numbers in the state. Any other pod that a client describes
gets numbers for the time of its question alone, so that nobody who asks can make the state larger, have it built anew,
or add to the labels that are kept apart. The answer is the one that the pod would get if it were created: pods that it
selects by labels that are not kept apart are counted for it one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING

from steersman.cluster.model import Pod
from steersman.cluster.provisional import (
    complexity,
    count_selected,
    known_numbers,
    pod_selectors,
    provisional_numbers,
    selector_keys,
)
from steersman.errors import SteersmanError
from steersman.policies.decider import UNSEEN
from steersman.service.budget import TimeBudget
from steersman.service.opinions import Numbers, Opinions

if TYPE_CHECKING:
    from steersman.kube.cache import ClusterCache

UNKNOWN_SHARE = 0.05
"""Share of the event loop's time for classes and label sets that no pod of the cluster has; scoring every node for one
takes some milliseconds on thousands of nodes."""
SELECTING_SHARE = 0.002
"""Share for those that also select other pods: counting these looks at every pod of the cluster, in one go."""
SAVED_SECONDS = 0.25
MOST_REQUIREMENTS = 256
"""Of a class that no pod of the cluster has; each is looked up on every node."""


class UnusualPod(SteersmanError):  # noqa: N818 - no error of ours
    """A question costs more than there is time for now; the message says why."""


class UnknownPods:
    """Numbers for pods that may not be in a watched cluster.

    Args:
        cache: of the cluster.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._unknown = TimeBudget(UNKNOWN_SHARE, SAVED_SECONDS)
        self._selecting = TimeBudget(SELECTING_SHARE, SAVED_SECONDS)

    @contextmanager
    def numbered(self, opinions: Opinions, pod: Pod) -> Iterator[tuple[Opinions, Numbers]]:
        """Opinions to be asked about a pod, and the numbers of its class and labels; both hold inside the block alone.

        Args:
            opinions: about the cluster.
            pod: any.

        Raises:
            UnusualPod: it is not in the cluster, and looking at it costs more than is left.
        """
        decider, kept, constraints = opinions.decider, self._cache.selected, pod.pod_class.constraints
        state = decider.state
        keys = {key for selector in pod_selectors(constraints) for key in selector_keys(selector)}
        labels = {key: value for key, value in pod.labels.items() if key in kept or key in keys}
        known = known_numbers(state, pod.pod_class, pod.namespace, labels) if keys <= kept else None
        if known is not None:
            yield opinions, known
            return
        if complexity(constraints) > MOST_REQUIREMENTS:
            raise UnusualPod(
                f"no pod of the cluster is like this one, and it has over {MOST_REQUIREMENTS} requirements"
            )
        budget = self._selecting if any(pod_selectors(constraints)) else self._unknown
        if budget.is_spent:
            raise UnusualPod("no pod of the cluster is like this one, and many such pods were asked about just now")
        with budget.charged():
            decider.follow()
            guest, counted = copy(decider), len(state.term_arrays.matched)
            try:
                with provisional_numbers(state):
                    numbers = state.class_id(pod.pod_class), state.terms.labels_id(pod.namespace, labels)
                    if not keys <= kept:
                        count_selected(state, counted, kept, lambda name: self._cache.pods[name].pod)
                    yield opinions.with_decider(guest), numbers
            finally:
                decider.cluster.table.seen[len(state.classes) :] = UNSEEN  # rows that the next class is given
