"""Turn an event log into transitions, observations, choices and rewards, as an environment would give them.

The order is that in which bindings reached the API. A scheduler that binds in the background may have decided in a
slightly different order; a choice that the state before it forbids is skipped, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steersman.apps.recorder.event_log import LoggedEvent, NodeEvent, PodEvent
from steersman.apps.recorder.observation import Arrays, EpisodeContext, ObservationBuilder, PlacedPod, Row
from steersman.cluster.model import GpuType, Node, Pod, gpu_types
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.objectives.judging import reward
from steersman.policies.features import GPU, View
from steersman.policies.gpu_state.leftovers import leftover_arrays
from steersman.workloads.profile import typical_pods

PARTS = ("nodes", "pod", "context", "mask", "groups")
NOTHING = {"nodes": 0, "mask": 0, "groups": -1}
"""Padding of observations where a node did not exist."""


@dataclass(slots=True)
class ObservedDecision:
    """A decision with what is known only at the next one: how long pods waited, and whether it was the last.

    Attributes:
        before: observation of the nodes that existed.
        columns: [n] columns of these nodes among all that ever existed.
        action: column of the chosen node.
        row, next_row: states before and after it, see `objectives.summary`.
        terminated: whether all pods of the scheduler were gone before the next decision.
    """

    before: Arrays
    columns: list[int]
    action: int
    row: Row
    next_row: Row
    terminated: bool = False


@dataclass(slots=True)
class Transitions:
    """Recorded transitions.

    Attributes:
        seen: the decisions.
        nodes: all nodes that ever existed, in their last form.
        skipped_decisions: decisions for nodes that the state before them forbids.
    """

    seen: list[ObservedDecision] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    skipped_decisions: int = 0


def transitions(entries: Sequence[LoggedEvent], scheduler_name: str, view: View) -> Transitions:
    """Return the decisions of a scheduler.

    Args:
        entries: log.
        scheduler_name: scheduler.
        view: view of the observations.
    """
    return EventLogReader(entries, scheduler_name, episode_context(entries, scheduler_name, view)).read()


def episode_context(entries: Sequence[LoggedEvent], scheduler_name: str, view: View) -> EpisodeContext:
    """Return the context of a whole log: all its pods, as in a workload of these pods."""
    pods = {each.event.key: each.event.pod for each in entries if isinstance(each.event, PodEvent)}
    demand = [pod for pod in pods.values() if pod.scheduler_name == scheduler_name]
    profile = typical_pods(demand)
    leftovers = leftover_arrays(profile) if view == GPU else None
    return EpisodeContext(view, profile, all_pods(entries), [pod.pod_class for pod in demand], leftovers)


def all_pods(entries: Sequence[LoggedEvent]) -> list[Pod]:
    """Return every pod of a log, in every version."""
    return [each.event.pod for each in entries if isinstance(each.event, PodEvent)]


def log_gpu_types(entries: Sequence[LoggedEvent]) -> tuple[GpuType, ...]:
    """Return the types of the GPU devices of a log's nodes."""
    nodes = [each.event.node for each in entries if isinstance(each.event, NodeEvent) and each.event.node]
    return gpu_types(nodes)


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
    """Player of a log.

    Args:
        entries: log.
        scheduler_name: scheduler whose decisions are read.
        known: context of the episode.

    Attributes:
        found: transitions so far.
        decided_at: position in the log of each decision in `found`.
    """

    def __init__(self, entries: Sequence[LoggedEvent], scheduler_name: str, known: EpisodeContext) -> None:
        self.entries, self.scheduler_name, self.known = entries, scheduler_name, known
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
        """Read the whole log."""
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
            self.stage = ObservationBuilder(self.known, list(self.nodes.values()), self.placed, 2 * len(self.entries))
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
