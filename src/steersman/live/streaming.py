"""A scheduler's decisions while it takes them: a journal that goes on, read a window at a time.

The last decision of a window is read again as the first one of the next: what followed it is known only then.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.cluster.model import GpuType, Node
from steersman.features import GPU, View
from steersman.live.journal import Entry, NodeEvent, PodEvent
from steersman.live.mix import PodWindow
from steersman.live.transitions import Reader, Seen, all_pods, journal_gpu_types
from steersman.live.witnessing import Known
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.workloads.mix import TypicalPod, mix_arrays


class Stream:
    """Decisions out of a journal that goes on.

    Args:
        scheduler_name: whose decisions.
        view: what an agent would see.
        most: decisions that are looked at in a window; of those that come faster the last ones are.

    Attributes:
        columns: the number of every node that ever was.
        skipped: decisions that came too fast to be looked at.
    """

    def __init__(self, scheduler_name: str, view: View, most: int) -> None:
        self.scheduler_name, self.view, self.most = scheduler_name, view, most
        self.columns: dict[str, int] = {}
        self.skipped = 0
        self._open: list[Entry] = []
        self._window = PodWindow()
        self._keys: set[str] = set()
        self._mix: tuple[TypicalPod, ...] = ()
        self._models: tuple[GpuType, ...] = ()
        self._outlook: OutlookArrays | None = None

    def read(self, more: Sequence[Entry]) -> list[Seen]:
        """The decisions among what was read before and `more` that another decision followed, each once."""
        entries = self._limited([*self._open, *more])
        self._learn_mix(entries, more)
        reader = Reader(entries, self.scheduler_name, self._known(entries), self.columns)
        seen = reader.read().seen
        if reader.decided_at:
            last = reader.decided_at[-1]
            self._open = [*condensed(entries[:last]), *entries[last:]]
        else:
            self._open = condensed(entries)
        return seen[:-1]

    def _limited(self, entries: list[Entry]) -> list[Entry]:
        """The entries, and what the first of them led to where they hold too many decisions."""
        decided = decisions(entries, self.scheduler_name)
        if len(decided) <= self.most:
            return entries
        self.skipped += len(decided) - self.most
        start = decided[-self.most]
        return [*condensed(entries[:start]), *entries[start:]]

    def _learn_mix(self, entries: Sequence[Entry], more: Sequence[Entry]) -> None:
        for event in (each.event for each in more):
            if isinstance(event, PodEvent) and event.gone:
                self._keys.discard(event.key)
            elif isinstance(event, PodEvent) and event.key not in self._keys:
                self._keys.add(event.key)
                self._window.see(event.pod.pod_class)  # of all schedulers, as the live scheduler's own mix
        models = journal_gpu_types(entries)
        if not self._window.due and models == self._models:
            return
        mix = self._window.typical_pods()
        if self.view is GPU and (mix != self._mix or models != self._models):
            self._outlook = outlook_arrays(mix, mix_arrays(mix, models))
        self._mix, self._models = mix, models

    def _known(self, entries: Sequence[Entry]) -> Known:
        return Known(self.view, self._mix, all_pods(entries), self._outlook)


def decisions(entries: Sequence[Entry], scheduler_name: str) -> list[int]:
    """Where in a journal pods of a scheduler that waited were bound."""
    waiting: set[str] = set()
    found = []
    for i, event in enumerate(each.event for each in entries):
        if isinstance(event, PodEvent) and event.pod.scheduler_name == scheduler_name:
            if event.node and not event.gone and event.key in waiting:
                found.append(i)
            (waiting.discard if event.node or event.gone else waiting.add)(event.key)
    return found


def condensed(entries: Sequence[Entry]) -> list[Entry]:
    """The shortest journal that ends in the same state: nodes, pods on them, and those that wait in their order."""
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
    return [Entry(time, event) for event in events]
