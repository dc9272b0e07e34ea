"""Turn an event log into transitions, observations, choices and rewards, as an environment would give them.

The order is that in which bindings reached the API. A scheduler that binds in the background may have decided in a
slightly different order; a choice that the state before it forbids is skipped, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import eligible_nodes
from steersman.cluster.model import Node, Pod, PodClass
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.objectives.summary import reward
from steersman.policies.base import Candidates
from steersman.policies.decision.live_core import ClusterView, LiveCore
from steersman.policies.features import GPU, View
from steersman.policies.heuristics import heuristic
from steersman.policies.leftovers import LeftoverArrays, leftover_arrays
from steersman.policies.live_observations import LiveObservations
from steersman.workloads.profile import TypicalPod, typical_pods
from steersman.workloads.topology import node_places

Arrays = dict[str, npt.NDArray[Any]]
Row = npt.NDArray[np.float64]
PARTS = ("nodes", "pod", "context", "mask", "groups")
NOTHING = {"nodes": 0, "mask": 0, "groups": -1}  # padding of observations where a node did not exist


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node was added or changed, or deleted (None)."""

    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A pod became pending (`node` ""), was bound, or was deleted (`gone`)."""

    key: str  # namespace and name
    pod: Pod  # the pod without its node
    node: str = ""  # its node
    devices: int | None = None  # bit mask of the GPU devices that it holds there; None: unknown
    gone: bool = False  # whether it was deleted or has finished


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event with its time, in seconds of any clock."""

    time: float
    event: NodeEvent | PodEvent


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node, with a bit mask of its GPU devices (None: those of the default rule)."""

    pod: Pod
    node: str
    devices: int | None


class EpisodeContext:
    """What is known of all pods in advance: the workload profile and the owners' numbers."""

    def __init__(
        self,
        view: View,
        profile: tuple[TypicalPod, ...],
        pods: Iterable[Pod],
        demand: Iterable[PodClass],
        leftovers: LeftoverArrays | None = None,
    ) -> None:
        self.view, self.profile, self.pods, self.leftovers = view, profile, list(pods), leftovers
        self.demand = {each.constraints for each in demand}
        self.owners: dict[tuple[str, str], int] = {}
        for pod in self.pods:
            if pod.owner:
                self.owners.setdefault((pod.namespace, pod.owner), len(self.owners))

    def owner(self, pod: Pod) -> int:
        """Return the number of a pod's owner, -1 if it has none."""
        return self.owners.get((pod.namespace, pod.owner), -1) if pod.owner else -1


class ObservationBuilder:
    """Nodes that stay the same, and the pods on them."""

    def __init__(self, context: EpisodeContext, nodes: Sequence[Node], pods: Mapping[str, PlacedPod]) -> None:
        self.context, self.names = context, [node.name for node in nodes]
        state = self.state = ClusterState(nodes)
        self._classes = {pod.pod_class: state.class_id(pod.pod_class) for pod in context.pods}
        for pod in context.pods:
            state.labels_id(pod)
        self.eligible = eligible_nodes(state.table, context.demand)
        self._racks = node_places(nodes).rack
        self._owner_pods: dict[int, Counter[int]] = {}  # of an owner, by slot
        for key, placed in pods.items():
            if placed.node in state.slots:
                self._place(key, placed)
        view = ClusterView(state, profile=context.profile, leftovers=context.leftovers)
        self._live = LiveCore(view, heuristic("best-fit"))
        self._observations = LiveObservations(context.view, self._live)

    def slot(self, name: str) -> int | None:
        """Return the slot of a node, None if it is unknown."""
        return self.state.slots.get(name)

    def look(self, pod: Pod, waiting: int) -> Arrays:
        """Return the observation of a pod that is to be placed, while `waiting` others wait."""
        c, labels = self._classes[pod.pod_class], self.state.labels_id(pod)
        nodes = Candidates(self.state.mask(c, labels), self.eligible, waiting)
        query = PodQuery(c, labels, owner_pods=OwnerPods(dict(self._of_owner(pod))))
        seen, groups = self._observations.observe(query, nodes)
        parts = {name: getattr(seen, name).copy() for name in ("nodes", "pod", "context", "mask")}
        return parts | {"groups": groups}

    def place(self, key: str, placed: PlacedPod) -> None:
        self._live.changed(self._place(key, placed))

    def remove(self, key: str, pod: Pod) -> None:
        """Remove a pod, if it is on one of the nodes."""
        if key in self.state.placements:
            slot = self.state.remove(key).slot
            self._of_owner(pod)[slot] -= 1
            self._live.changed(slot)

    def summary(self, waiting: int) -> Row:
        """Return the state in numbers, see `objectives.summary`."""
        return self._live.summary(waiting, self.eligible)

    def together(self, pod: Pod, slot: int) -> float:
        """Return the share of the running pods of a pod's owner that are in its rack, 0 to 1."""
        running = self._of_owner(pod)
        if not running.total():
            return 1.0
        rack = self._racks[slot]
        near = sum(n for other, n in running.items() if other == slot or (rack >= 0 and self._racks[other] == rack))
        return near / running.total()

    def _of_owner(self, pod: Pod) -> Counter[int]:
        """Return how many pods of a pod's owner run, by slot; none if it has no owner."""
        owner = self.context.owner(pod)
        return Counter() if owner < 0 else self._owner_pods.setdefault(owner, Counter())

    def _place(self, key: str, placed: PlacedPod) -> int:
        state, slot = self.state, self.state.slots[placed.node]
        c = self._classes[placed.pod.pod_class]
        state.place(key, c, slot, placed.devices, state.labels_id(placed.pod), force=True)
        self._of_owner(placed.pod)[slot] += 1
        return slot


@dataclass(slots=True)
class ObservedDecision:
    """A decision with what is known only at the next one: how long pods waited, and whether it was the last."""

    before: Arrays  # observation of the nodes that existed
    columns: list[int]  # [n] columns of these nodes among all that ever existed
    action: int  # column of the chosen node
    # `row`, `next_row`: states before and after it, see `objectives.summary`.
    row: Row
    next_row: Row
    terminated: bool = False  # whether all pods of the scheduler were gone before the next decision


@dataclass(slots=True)
class Transitions:
    """Recorded transitions."""

    seen: list[ObservedDecision] = field(default_factory=list)  # the decisions
    nodes: dict[str, Node] = field(default_factory=dict)  # all nodes that ever existed, in their last form
    skipped_decisions: int = 0  # decisions for nodes that the state before them forbids


def transitions(entries: Sequence[LoggedEvent], scheduler_name: str, view: View) -> Transitions:
    return EventLogReader(entries, scheduler_name, episode_context(entries, scheduler_name, view)).read()


def episode_context(entries: Sequence[LoggedEvent], scheduler_name: str, view: View) -> EpisodeContext:
    """Return the context of a whole log: all its pods, as in a workload of these pods."""
    events = [each.event for each in entries if isinstance(each.event, PodEvent)]
    pods = {event.key: event.pod for event in events}
    demand = [pod for pod in pods.values() if pod.scheduler_name == scheduler_name]
    profile = typical_pods(demand)
    leftovers = leftover_arrays(profile) if view == GPU else None
    return EpisodeContext(view, profile, [event.pod for event in events], [pod.pod_class for pod in demand], leftovers)


def save(result: Transitions, objective: objectives.WeightedObjectives, file: Path) -> int:
    """Write transitions as `steersman train --recording` reads them (.npz), and return their number.

    The last decision is left out unless it ended an episode: nothing followed it.
    """
    seen = result.seen if result.seen and result.seen[-1].terminated else result.seen[:-1]
    if not seen:
        return 0
    before = {part: _joined(part, seen, len(result.nodes)) for part in PARTS}
    # The observation after a decision is the one before the next.
    followed = [*seen[1:], result.seen[-1]]
    after = {part: _joined(part, followed, len(result.nodes)) for part in PARTS}
    arrays: Arrays = {f"before.{name}": part for name, part in before.items()}
    arrays |= {f"after.{name}": part for name, part in after.items()}
    arrays["actions"] = np.array([each.action for each in seen], dtype=np.int64)
    rewards = [reward(objective, each.row, each.next_row) for each in seen]
    arrays["rewards"] = np.array(rewards, dtype=np.float32)
    arrays["terminated"] = np.array([each.terminated for each in seen], dtype=np.bool_)
    arrays["truncated"] = np.zeros(len(seen), dtype=np.bool_)
    with file.open("wb") as out:
        np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return len(seen)


def _joined(
    part: str, seen: Sequence[ObservedDecision], nodes: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    if part not in NOTHING:
        return np.stack([each.before[part] for each in seen])
    first = seen[0].before[part]
    joined = np.full((len(seen), nodes, *first.shape[1:]), NOTHING[part], dtype=first.dtype)
    for i, each in enumerate(seen):
        joined[i, each.columns] = each.before[part]
    return joined


class EventLogReader:
    """Player of a log."""

    def __init__(self, entries: Sequence[LoggedEvent], scheduler_name: str, context: EpisodeContext) -> None:
        self.entries, self.scheduler_name, self.context = entries, scheduler_name, context
        self.found = Transitions()
        self.nodes: dict[str, Node] = {}
        self.columns: dict[str, int] = {}  # of nodes, by name
        self.decided_at: list[int] = []
        self.placed: dict[str, PlacedPod] = {}
        self.waiting: dict[str, bool] = {}  # in order of arrival, and whether they are the scheduler's
        self.own_waiting = self.own_placed = 0
        self.stage: ObservationBuilder | None = None
        self._time, self._at = entries[0].time if entries else 0.0, 0

    def read(self) -> Transitions:
        for i, entry in enumerate(self.entries):
            self._at = i
            self._wait_until(entry.time)
            match entry.event:
                case NodeEvent(name, node):
                    self._node(name, node)
                case PodEvent() as event if event.gone:
                    self._gone(event)
                case PodEvent() as event if event.node:
                    self._bound(event)
                case PodEvent() as event:
                    self._on_pending(event)
        return self.found

    def _wait_until(self, time: float) -> None:
        if self.found.seen:
            # Before the event is applied: until then the old number of pods waited.
            self.found.seen[-1].next_row[summed.POD_SECONDS_WAITED] += self.own_waiting * (time - self._time)
        self._time = time

    def _node(self, name: str, node: Node | None) -> None:
        # Arrays have fixed nodes; they are built again at the next binding.
        self.stage = None
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = self.found.nodes[name] = node
            self.columns.setdefault(name, len(self.columns))

    def _on_pending(self, event: PodEvent) -> None:
        own = self.waiting[event.key] = event.pod.scheduler_name == self.scheduler_name
        self.own_waiting += own

    def _remove_pending(self, key: str) -> bool:
        """Remove a bound or deleted pod from the pending ones; return whether it was one of the scheduler's."""
        own = self.waiting.pop(key, False)
        self.own_waiting -= own
        return own

    def _gone(self, event: PodEvent) -> None:
        self._remove_pending(event.key)
        placed = self.placed.pop(event.key, None)
        if placed is None:
            return
        if self.stage is not None:
            self.stage.remove(event.key, placed.pod)
        self.own_placed -= placed.pod.scheduler_name == self.scheduler_name
        if self.found.seen and not self.own_placed:
            self.found.seen[-1].terminated = True

    def _bound(self, event: PodEvent) -> None:
        if event.key in self.placed:  # bound elsewhere, or reported twice
            self._gone(event)
        placed = PlacedPod(event.pod, event.node, event.devices)
        waiting = self._pods_ahead(event.key)
        decided = self._remove_pending(event.key)
        here = event.node in self.nodes
        if here and self.stage is None:
            self.stage = ObservationBuilder(self.context, list(self.nodes.values()), self.placed)
        if here and self.stage is not None:
            self._place(event.key, placed, self.stage, waiting, decided=decided)
        else:
            self.found.skipped_decisions += decided
        self.placed[event.key] = placed
        self.own_placed += event.pod.scheduler_name == self.scheduler_name

    def _place(self, key: str, placed: PlacedPod, stage: ObservationBuilder, waiting: int, *, decided: bool) -> None:
        if not decided:
            stage.place(key, placed)
            return
        # Before the pod is placed, though the log has the binding only afterwards.
        before, row = stage.look(placed.pod, waiting), stage.summary(waiting)
        slot = stage.slot(placed.node)
        assert slot is not None
        stage.place(key, placed)
        if not before["mask"][slot]:
            self.found.skipped_decisions += 1
            return
        next_row = stage.summary(waiting)
        next_row[summed.RACK_LOCALITY] = stage.together(placed.pod, slot)
        columns = [self.columns[name] for name in stage.names]
        self.decided_at.append(self._at)
        self.found.seen.append(ObservedDecision(before, columns, columns[slot], row, next_row))

    def _pods_ahead(self, key: str) -> int:
        """Return how many pods have waited longer than this one: they were tried before, and fit nowhere."""
        count = 0
        for other, own in self.waiting.items():
            if other == key:
                break
            count += own
        return count
