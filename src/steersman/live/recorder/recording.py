"""Implementation of `steersman workload record`: watch a scheduler, and write its decisions as data to learn from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.cluster.state import ClusterState
from steersman.core.atomic_files import new_folder
from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.live.recorder.transitions import LoggedEvent, NodeEvent, PodEvent, save, transitions
from steersman.live.runtime.tasks import BackgroundTasks
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.features import View
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods

TRANSITIONS, NODES, PODS = "transitions.npz", "nodes.yaml", "pods.yaml"


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """Numbers of written transitions, nodes and pods, and of decisions that were left out."""

    transitions: int
    nodes: int
    pods: int
    skipped_decisions: int


class EventLog(Listener):
    """Listener of a cache that logs what happens."""

    def __init__(self, scheduler_name: str, on_decision: Callable[[int], None] = lambda _: None) -> None:
        self.scheduler_name, self._on_decision = scheduler_name, on_decision
        self.entries: list[LoggedEvent] = []  # logged events
        self.decisions = 0  # bindings, by this scheduler, of pods that were pending before
        self.state: Callable[[], ClusterState] = lambda: ClusterState(())
        self._nodes: dict[int, Node] = {}
        self._waiting: set[str] = set()

    def on_pod_pending(self, pod: CachedPod) -> None:
        if pod.key not in self._waiting:
            self._waiting.add(pod.key)
            self._note(PodEvent(pod.key, pod.pod))

    def on_pod_bound(self, pod: CachedPod) -> None:
        self._note(PodEvent(pod.key, pod.pod, pod.node, pod.devices))
        if pod.key in self._waiting:
            self._waiting.discard(pod.key)
            if pod.pod.scheduler_name == self.scheduler_name:
                self.decisions += 1
                self._on_decision(self.decisions)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        self._waiting.discard(pod.key)
        self._note(PodEvent(pod.key, pod.pod, gone=True))

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """See `kubernetes.cache.cached_pod.Listener`; changes of pods on the node are logged already."""
        before, after = self._nodes.get(slot), self.state().nodes[slot]
        if before == after:
            return
        # Slots of deleted nodes are reused.
        if before is not None and (after is None or after.name != before.name):
            self._note(NodeEvent(before.name, None))
        if after is None:
            self._nodes.pop(slot, None)
        else:
            self._nodes[slot] = after
            self._note(NodeEvent(after.name, after))

    def on_rebuilt(self) -> None:
        """See `kubernetes.cache.cached_pod.Listener`; the nodes are the same, in other slots."""
        self._nodes = {slot: node for slot, node in enumerate(self.state().nodes) if node is not None}

    def _note(self, event: NodeEvent | PodEvent) -> None:
        self.entries.append(LoggedEvent(time.monotonic(), event))


async def watch(
    client: Client,
    scheduler_name: str,
    decisions: int,
    seconds: float | None,
    report: Callable[[int], None],
    started: Callable[[], None] = lambda: None,
) -> EventLog:
    """Log events until a scheduler has taken `decisions` decisions, the time is up, or this is cancelled.

    `started` is called when the cluster was listed: from then on no decision is missed.
    """
    enough = asyncio.Event()

    def count(done: int) -> None:
        report(done)
        if done >= decisions:
            enough.set()

    journal = EventLog(scheduler_name, count)
    cache = ClusterCache(client, journal)
    journal.state = lambda: cache.state
    # A recording usually ends by being cancelled; nothing is lost.
    with suppress(TimeoutError, asyncio.CancelledError):
        async with BackgroundTasks(*(reflector.run() for reflector in cache.reflectors)), asyncio.timeout(seconds):
            for reflector in cache.reflectors:
                await reflector.synced.wait()
            started()
            await enough.wait()
    return journal


def write(journal: EventLog, view: View, objective: WeightedObjectives, output: Path) -> RecordingSummary:
    """Write a log into a new folder: the transitions, and nodes and pods as a workload."""
    result = transitions(journal.entries, journal.scheduler_name, view)
    with new_folder(output) as folder:
        count = save(result, objective, folder / TRANSITIONS)
        if not count:
            seen = f"{journal.decisions} decisions of {journal.scheduler_name!r} were seen"
            raise SteersmanError(f"{seen}; two that follow on each other are needed, so nothing is written")
        pods = pods_from_log(journal.entries, journal.scheduler_name)
        write_nodes(result.nodes.values(), folder / NODES)
        write_pods(pods, folder / PODS)
    return RecordingSummary(count, len(result.nodes), len(pods), result.skipped_decisions)


def pods_from_log(entries: Sequence[LoggedEvent], scheduler_name: str) -> list[Pod]:
    """Return the pods of a scheduler with times as in a trace: their arrival, and their duration after the binding.

    A pod that is created again under its name gets a number.
    """
    pods_in_order: list[Pod] = []
    there: dict[str, tuple[int, float]] = {}
    names: dict[str, int] = {}
    start: float | None = None
    for entry in entries:
        event = entry.event
        if not isinstance(event, PodEvent) or event.pod.scheduler_name != scheduler_name:
            continue
        start = entry.time if start is None else start
        if event.gone:
            i, bound = there.pop(event.key, (-1, 0.0))
            if i >= 0:
                pods_in_order[i] = replace(
                    pods_in_order[i], deletion_time=(pods_in_order[i].creation_time or 0.0) + entry.time - bound
                )
        elif event.key not in there:
            names[event.key] = names.get(event.key, 0) + 1
            life = f"-{names[event.key]}" if names[event.key] > 1 else ""
            there[event.key] = len(pods_in_order), entry.time
            pods_in_order.append(replace(event.pod, name=event.pod.name + life, creation_time=entry.time - start))
        elif event.node:
            there[event.key] = there[event.key][0], entry.time
    return pods_in_order
