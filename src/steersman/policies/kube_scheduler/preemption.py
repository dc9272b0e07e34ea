"""Whom kube-scheduler's plugin DefaultPreemption preempts for a pod that fits nowhere, decided by the core.

Source: Kubernetes 1.34 to 1.37, pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import holds
from steersman.cluster.constraints.reasons import Mask, resolvable
from steersman.cluster.model import DisruptionBudget, Pod
from steersman.cluster.state import ClusterState, RunningPod
from steersman.core.handles import CoreDecider
from steersman.policies.kube_scheduler.profile import KubeProfile

NEVER = "preemptionPolicy: Never"
WAITS = "pods that it preempted are still being deleted on {}, its nominated node"
UNRESOLVABLE = "no node would take it, whatever pods were removed"
NO_VICTIMS = "no pod of lower priority runs on a node that would take it"
NO_ROOM = "no node would fit after removing pods of lower priority"
OFF = "the profile runs no DefaultPreemption"

SHOWN_VICTIMS, SHOWN_NODES = 10, 3  # in sentences
LATEST = 1 << 62  # start of pods that did not start yet
Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Preempting:
    """A node where a pod fits once others are gone."""

    node: str
    victims: tuple[Pod, ...]  # the most important first
    violations: int  # how many of them a PodDisruptionBudget would keep


@dataclass(frozen=True, slots=True)
class Preemption:
    """What kube-scheduler does for a pod that fits nowhere."""

    choices: tuple[Preempting, ...] = ()  # equally good; it takes one of them by chance
    why_not: str = ""  # why there are none

    def sentence(self, pod: Pod) -> str:
        """Return what kube-scheduler does for a pod, or why it preempts none for it."""
        if not self.choices:
            return f"kube-scheduler would preempt no pod for {_key(pod)}: {self.why_not}."
        first, *others = self.choices
        victims = ", ".join(map(_key, first.victims[:SHOWN_VICTIMS]))
        if more := first.victims[SHOWN_VICTIMS:]:
            victims += f" and {len(more)} more"
        kept = f", {first.violations} of them against a PodDisruptionBudget" if first.violations else ""
        names = ", ".join(each.node for each in others[:SHOWN_NODES])
        further = f" and {len(others) - SHOWN_NODES} more" if len(others) > SHOWN_NODES else ""
        as_well = f" (as good: {names}{further})" if others else ""
        where = f"on node {first.node}{as_well}{kept}"
        return f"kube-scheduler would preempt {victims} {where}, which steersman does not do."


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """What preemption reads of a cluster beside its state.

    The state has all running pods, by NAMESPACE/NAME. Those of a node are in the order in which it got them.
    """

    running: Sequence[Pod]
    waiting: Sequence[Pod] = ()
    budgets: Sequence[DisruptionBudget] = ()  # in the order in which they are read

    def nominated(self, state: ClusterState, pod: Pod) -> list[Pod]:
        """Return the waiting pods whose nominated node keeps room for them that another pod may not take."""
        return [
            each
            for each in self.waiting
            if each.nominated in state.slots and each.priority >= pod.priority and _key(each) != _key(pod)
        ]


def preempt(
    state: ClusterState,
    core: Callable[[], CoreDecider],  # returns a decider that follows the state
    pods: ClusterPods,
    pod: Pod,  # unbound; it fits nowhere
    profile: KubeProfile,
    order: Callable[[Slots], Slots] = lambda potential: potential,  # the nodes as they are tried, from where it starts
) -> Preemption:
    """Return whom kube-scheduler preempts for a pod."""
    if profile.candidates is None:
        return Preemption(why_not=OFF)
    if not pod.preempts:
        return Preemption(why_not=NEVER)
    c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
    nominated = pods.nominated(state, pod)
    refused, potential = _statuses(state, c, labels, nominated)
    slot = state.slots.get(pod.nominated, -1)
    if slot >= 0 and (potential[slot] or not refused[slot]):
        leaving = (each for each in pods.running if each.priority < pod.priority and each.preempted)
        if any(state.placements[_key(each)].slot == slot for each in leaving):
            return Preemption(why_not=WAITS.format(pod.nominated))
    nodes = order(np.flatnonzero(potential))
    if not len(nodes):
        return Preemption(why_not=UNRESOLVABLE)
    percentage, least = profile.candidates
    enough = min(max(len(nodes) * percentage // 100, least), len(nodes))
    here, lower = set(nodes.tolist()), (each for each in pods.running if each.priority < pod.priority)
    victims = [each for each in lower if state.placements[_key(each)].slot in here]
    if not victims:
        return Preemption(why_not=NO_VICTIMS)
    described = {
        "preempt.pod": np.array([c, labels]),
        "preempt.nodes": nodes,
        "preempt.enough": np.array(enough),
        "preempt.victims": _rows([_numbers(state, each) for each in victims], 6),
        "preempt.allowed": np.array([each.allowed for each in pods.budgets], dtype=np.int64),
        "preempt.budgets": _rows(_counted(victims, pods.budgets), 2),
        "preempt.stops": np.array(int(profile.minor.stops_at_violation)),
        "preempt.nominated": _rows([_waiting_numbers(state, each) for each in nominated], 3),
    }
    # Only now, since the state gives numbers to what is described.
    found = core().preempt(described, len(victims))
    names = {slot: name for name, slot in state.slots.items()}
    choices = (Preempting(names[node], tuple(victims[v] for v in chosen), count) for node, count, chosen in found)
    return Preemption(tuple(choices), "" if found else NO_ROOM)


def _statuses(state: ClusterState, c: int, labels: int, nominated: Sequence[Pod]) -> tuple[Mask, Mask]:
    """Return [N] which nodes refuse a pod, and which of them may not do so once pods are removed.

    A node is asked with the pods for which its room is kept, and then without them.
    """
    refused, potential = resolvable(state, c, labels)
    for slot in {state.slots[each.nominated] for each in nominated}:
        kept = [_waiting_numbers(state, each) for each in nominated if state.slots[each.nominated] == slot]
        there = [RunningPod(f"nominated {i}", c, slot, 0, labels) for i, (c, labels, _) in enumerate(kept)]
        state.place_running(there)
        beside, may_fit = resolvable(state, c, labels)
        for each in there:
            state.remove(each.name)
        if beside[slot]:
            refused[slot], potential[slot] = True, may_fit[slot]
    return refused, potential


def _numbers(state: ClusterState, pod: Pod) -> tuple[int, ...]:
    """Return class, labels, slot, devices, priority and start of a pod that runs.

    Its labels are those of a pod that is not being deleted: PodTopologySpread takes a pod that preemption removes from
    its counts even where it did not count it.
    """
    placed = state.placements[_key(pod)]
    labels = state.terms.labels_id(pod.namespace, pod.labels)
    started = LATEST if pod.started is None else round(pod.started * 1000)
    return placed.class_id, labels, placed.slot, placed.devices, pod.priority, started


def _waiting_numbers(state: ClusterState, pod: Pod) -> tuple[int, int, int]:
    return state.class_id(pod.pod_class), state.labels_id(pod), state.slots[pod.nominated]


def _counted(pods: Sequence[Pod], budgets: Sequence[DisruptionBudget]) -> Iterator[tuple[int, int]]:
    """Yield which of the pods are counted by which budgets."""
    for (v, pod), (b, budget) in product(enumerate(pods), enumerate(budgets)):
        requirements = budget.requirements if pod.labels and pod.namespace == budget.namespace else ()
        is_counted = requirements and pod.name not in budget.disrupted
        if is_counted and all(holds(each, pod.labels) for each in requirements):
            yield v, b


def _rows(rows: Iterable[tuple[int, ...]], columns: int) -> Slots:
    return np.array(list(rows), dtype=np.int64).reshape(-1, columns)


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
