"""Read a scheduler's decisions while it takes them: a growing log, window by window.

The last decision of a window is read again as the first of the next: only then is it known what followed.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.apps.recorder.event_log import LoggedEvent, NodeEvent, PodEvent
from steersman.apps.recorder.observation import EpisodeContext
from steersman.apps.recorder.transitions import EventLogReader, ObservedDecision, all_pods, log_gpu_types
from steersman.apps.runtime.live_profile import PodWindow
from steersman.cluster.model import GpuType, Node
from steersman.policies.features import GPU, View
from steersman.policies.linear.leftovers import LeftoverArrays, leftover_arrays
from steersman.workloads.profile import TypicalPod, profile_arrays


class DecisionStream:
    """Decisions from a growing log.

    Args:
        scheduler_name: scheduler whose decisions are read.
        view: view of the observations.
        most: maximum decisions per window; of more the last ones are read.

    Attributes:
        columns: column of every node that ever existed, by name.
        skipped: decisions beyond `most`.
    """

    def __init__(self, scheduler_name: str, view: View, most: int) -> None:
        self.scheduler_name, self.view, self.most = scheduler_name, view, most
        self.columns: dict[str, int] = {}
        self.skipped = 0
        self._open: list[LoggedEvent] = []
        self._window, self._demand = PodWindow(), PodWindow()  # of all schedulers, and of this one
        self._keys: set[str] = set()
        self._mix: tuple[TypicalPod, ...] = ()
        self._models: tuple[GpuType, ...] = ()
        self._leftovers: LeftoverArrays | None = None

    def read(self, new_events: Sequence[LoggedEvent]) -> list[ObservedDecision]:
        """Return the decisions in the events so far and `more` that another decision followed, each once."""
        entries = self._limited([*self._open, *new_events])
        self._learn_profile(entries, new_events)
        reader = EventLogReader(entries, self.scheduler_name, self._known(entries), self.columns)
        seen = reader.read().seen
        if reader.decided_at:
            last = reader.decided_at[-1]
            self._open = [*compact(entries[:last]), *entries[last:]]
        else:
            self._open = compact(entries)
        return seen[:-1]

    def _limited(self, entries: list[LoggedEvent]) -> list[LoggedEvent]:
        """Return the entries, with those before the last `most` decisions compacted."""
        decided = decisions(entries, self.scheduler_name)
        if len(decided) <= self.most:
            return entries
        self.skipped += len(decided) - self.most
        start = decided[-self.most]
        return [*compact(entries[:start]), *entries[start:]]

    def _learn_profile(self, entries: Sequence[LoggedEvent], more: Sequence[LoggedEvent]) -> None:
        for event in (each.event for each in more):
            if isinstance(event, PodEvent) and event.gone:
                self._keys.discard(event.key)
            elif isinstance(event, PodEvent) and event.key not in self._keys:
                self._keys.add(event.key)
                self._window.see(event.pod.pod_class)  # of all schedulers, like the live scheduler's own profile
                if event.pod.scheduler_name == self.scheduler_name:
                    self._demand.see(event.pod.pod_class)
        models = log_gpu_types(entries)
        if not self._window.due and models == self._models:
            return
        profile = self._window.typical_pods()
        if self.view is GPU and (profile != self._mix or models != self._models):
            self._leftovers = leftover_arrays(profile, profile_arrays(profile, models))
        self._mix, self._models = profile, models

    def _known(self, entries: Sequence[LoggedEvent]) -> EpisodeContext:
        return EpisodeContext(self.view, self._mix, all_pods(entries), self._demand.classes, self._leftovers)


def decisions(entries: Sequence[LoggedEvent], scheduler_name: str) -> list[int]:
    """Return the positions in a log at which pending pods of a scheduler were bound."""
    waiting: set[str] = set()
    result = []
    for i, event in enumerate(each.event for each in entries):
        if isinstance(event, PodEvent) and event.pod.scheduler_name == scheduler_name:
            if event.node and not event.gone and event.key in waiting:
                result.append(i)
            (waiting.discard if event.node or event.gone else waiting.add)(event.key)
    return result


def compact(entries: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Return the shortest log with the same final state: nodes, pods on them, and pending pods in their order."""
    nodes: dict[str, Node] = {}
    waiting: dict[str, PodEvent] = {}
    placed: dict[str, PodEvent] = {}
    for each in entries:
        match each.event:
            case NodeEvent(name, None):
                nodes.pop(name, None)
            case NodeEvent(name, node) if node is not None:
                nodes[name] = node
            case PodEvent() as event if event.gone:
                waiting.pop(event.key, None)
                placed.pop(event.key, None)
            case PodEvent() as event if event.node:
                waiting.pop(event.key, None)
                placed[event.key] = event
            case PodEvent() as event:
                waiting[event.key] = event
    time = entries[-1].time if entries else 0.0
    there: list[NodeEvent | PodEvent] = [NodeEvent(name, node) for name, node in nodes.items()]
    events = [*there, *placed.values(), *waiting.values()]
    return [LoggedEvent(time, event) for event in events]
