"""From a journal to transitions: what a scheduler saw, chose and got for it, as an environment would have given them.

The order is that in which bindings reached the API. A scheduler that binds in the background may have decided in a
slightly other order; a choice that the state before it forbids is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steersman.cluster.model import GpuType, Node, Pod, gpu_types
from steersman.features import GPU, View
from steersman.live.journal import Entry, NodeEvent, PodEvent
from steersman.live.witnessing import Arrays, Known, Placed, Row, Stage
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.objectives.judging import reward
from steersman.policies.outlook import outlook_arrays
from steersman.workloads.mix import mix_arrays, typical_pods

PARTS = ("nodes", "pod", "context", "mask", "groups")
NOTHING = {"nodes": 0, "mask": 0, "groups": -1}
"""What stands where a node was not there."""


@dataclass(slots=True)
class Seen:
    """A decision, and what is not known before the next one: how long pods waited, and whether it was the last.

    Attributes:
        before: what there was to see, of the nodes that there were.
        columns: [n] which nodes these are, of all that ever were.
        action: the chosen node among all that ever were.
        row, next_row: the state before and after it, see `objectives.summary`.
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
    """What was recorded.

    Attributes:
        seen: the decisions.
        nodes: all nodes that ever were, as they were last.
        left_out: decisions for nodes that the state before them forbids.
    """

    seen: list[Seen] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    left_out: int = 0


def transitions(entries: Sequence[Entry], scheduler_name: str, view: View) -> Transitions:
    """The decisions of a scheduler.

    Args:
        entries: the journal.
        scheduler_name: whose decisions.
        view: what an agent would see.
    """
    return Reader(entries, scheduler_name, known_of(entries, scheduler_name, view)).read()


def known_of(entries: Sequence[Entry], scheduler_name: str, view: View) -> Known:
    """What is known of the pods of a whole journal: all that come, as a workload of these pods would have it."""
    pods = {each.event.key: each.event.pod for each in entries if isinstance(each.event, PodEvent)}
    mix = typical_pods(pod for pod in pods.values() if pod.scheduler_name == scheduler_name)
    outlook = outlook_arrays(mix, mix_arrays(mix, journal_gpu_types(entries))) if view is GPU else None
    return Known(view, mix, all_pods(entries), outlook)


def all_pods(entries: Sequence[Entry]) -> list[Pod]:
    """Every pod of a journal, in every version of it."""
    return [each.event.pod for each in entries if isinstance(each.event, PodEvent)]


def journal_gpu_types(entries: Sequence[Entry]) -> tuple[GpuType, ...]:
    """Return the types of the devices of a journal's nodes."""
    nodes = [each.event.node for each in entries if isinstance(each.event, NodeEvent) and each.event.node]
    return gpu_types(nodes)


def save(found: Transitions, objective: objectives.Mix, file: Path) -> int:
    """Write the transitions as `steersman train --recording` reads them (.npz); how many there are.

    The last decision is left out unless it ended an episode: nothing followed it.
    """
    seen = found.seen if found.seen and found.seen[-1].terminated else found.seen[:-1]
    if not seen:
        return 0
    before = {part: _joined(part, seen, len(found.nodes)) for part in PARTS}
    followed = [*seen[1:], found.seen[-1]]
    after = {part: _joined(part, followed, len(found.nodes)) for part in PARTS}
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


def _joined(part: str, seen: Sequence[Seen], nodes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """[B, ...] a part of the observations, of all nodes that ever were."""
    if part not in NOTHING:
        return np.stack([each.before[part] for each in seen])
    first = seen[0].before[part]
    joined = np.full((len(seen), nodes, *first.shape[1:]), NOTHING[part], dtype=first.dtype)
    for i, each in enumerate(seen):
        joined[i, each.columns] = each.before[part]
    return joined


class Reader:
    """Plays a journal.

    Args:
        entries: the journal.
        scheduler_name: whose decisions.
        known: of the pods beforehand.
        columns: numbers of nodes that are known already; it grows.

    Attributes:
        found: what was read so far.
        decided_at: where in the journal each decision of `found` is.
    """

    def __init__(
        self, entries: Sequence[Entry], scheduler_name: str, known: Known, columns: dict[str, int] | None = None
    ) -> None:
        self.entries, self.scheduler_name, self.known = entries, scheduler_name, known
        self.found = Transitions()
        self.nodes: dict[str, Node] = {}
        self.columns: dict[str, int] = {} if columns is None else columns
        self.decided_at: list[int] = []
        self.placed: dict[str, Placed] = {}
        self.waiting: dict[str, bool] = {}  # in the order of their coming, and whether they are the scheduler's
        self.own_waiting = self.own_placed = 0
        self.stage: Stage | None = None
        self._time, self._at = entries[0].time if entries else 0.0, 0

    def read(self) -> Transitions:
        """All of it."""
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
                    self._comes(event)
        return self.found

    def _wait_until(self, time: float) -> None:
        """Count how long pods wait after the last decision."""
        if self.found.seen:
            self.found.seen[-1].next_row[summed.WAITED] += self.own_waiting * (time - self._time)
        self._time = time

    def _node(self, name: str, node: Node | None) -> None:
        self.stage = None
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = self.found.nodes[name] = node
            self.columns.setdefault(name, len(self.columns))

    def _comes(self, event: PodEvent) -> None:
        own = self.waiting[event.key] = event.pod.scheduler_name == self.scheduler_name
        self.own_waiting += own

    def _waits_no_more(self, key: str) -> bool:
        """A pod was bound or is gone; whether it was one of the scheduler's that waited."""
        own = self.waiting.pop(key, False)
        self.own_waiting -= own
        return own

    def _gone(self, event: PodEvent) -> None:
        self._waits_no_more(event.key)
        placed = self.placed.pop(event.key, None)
        if placed is None:
            return
        if self.stage is not None:
            self.stage.remove(event.key, placed.pod)
        self.own_placed -= placed.pod.scheduler_name == self.scheduler_name
        if self.found.seen and not self.own_placed:
            self.found.seen[-1].terminated = True

    def _bound(self, event: PodEvent) -> None:
        if event.key in self.placed:  # it was bound elsewhere, or told twice
            self._gone(event)
        placed = Placed(event.pod, event.node, event.devices)
        waiting = self._left_behind(event.key)
        decided = self._waits_no_more(event.key)
        here = event.node in self.nodes
        if here and self.stage is None:
            self.stage = Stage(self.known, list(self.nodes.values()), self.placed, 2 * len(self.entries))
        if here and self.stage is not None:
            self._place(event.key, placed, self.stage, waiting, decided=decided)
        else:
            self.found.left_out += decided
        self.placed[event.key] = placed
        self.own_placed += event.pod.scheduler_name == self.scheduler_name

    def _place(self, key: str, placed: Placed, stage: Stage, waiting: int, *, decided: bool) -> None:
        """A pod comes to a node that is known; `decided`: the scheduler chose that for one that waited."""
        if not decided:
            stage.place(key, placed)
            return
        before, row = stage.look(placed.pod, waiting), stage.summary(waiting)
        slot = stage.slot(placed.node)
        assert slot is not None
        stage.place(key, placed)
        if not before["mask"][slot]:
            self.found.left_out += 1
            return
        next_row = stage.summary(waiting)
        next_row[summed.TOGETHER] = stage.together(placed.pod, slot)
        columns = [self.columns[name] for name in stage.names]
        self.decided_at.append(self._at)
        self.found.seen.append(Seen(before, columns, columns[slot], row, next_row))

    def _left_behind(self, key: str) -> int:
        """How many pods have waited for longer than this one: they were tried before, and fit nowhere."""
        count = 0
        for other, own in self.waiting.items():
            if other == key:
                break
            count += own
        return count
