"""Google's cluster trace of 2019: instance_events, one JSON object a line, as BigQuery exports them.

A time is in microseconds, CPU and memory are parts of the largest machine's. Instances of alloc sets count as pods;
those that run in an alloc set of the same file use its resources. Source: clusterdata_trace_format_v3.proto; Tirmazi et
al., "Borg: the Next Generation", EuroSys 2020.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from steersman.core.errors import InputError
from steersman.workloads.formats.base import WorkloadFormat
from steersman.workloads.formats.tables import read_text
from steersman.workloads.formats.traces import NEVER_RAN, TraceContent, TraceJob

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST = 0, 3, 4, 5, 6, 7, 8
ENDS = (EVICT, FAIL, FINISH, KILL, LOST)
ALLOC_SET = 1
NEVER = (1 << 63) - 1
"""Time of what happened after the end of the trace."""
IN_ALLOC_SET = "run in an alloc set that counts"
_FIRST_LINE = re.compile(r'\s*\{[^\n]*"collection_id"')


class RequestedShares(msgspec.Struct, frozen=True):
    """Parts of the largest machine's resources."""

    cpus: float | None = None
    memory: float | None = None


class InstanceEvent(msgspec.Struct, frozen=True):
    """A line. Numbers may be written as texts."""

    time: int
    collection_id: int
    type: int = SUBMIT
    instance_index: int | None = None
    collection_type: int | None = None
    priority: int | None = None
    alloc_collection_id: int | None = None
    machine_id: int | None = None
    resource_request: RequestedShares | None = None


class GoogleJson(WorkloadFormat):
    """The format of instance_events, which has no nodes."""

    name = "google-v3"
    title = "instance_events JSON"
    suffixes = (".json", ".json.gz", ".jsonl", ".jsonl.gz")

    def recognises(self, file: Path) -> bool:
        """Return whether the first line is an event, see `WorkloadFormat`."""
        return bool(_FIRST_LINE.match(read_text(file, head=True)))

    def open(self, files: Sequence[Path]) -> TraceContent:
        """Return the instances of the files, see `WorkloadFormat`."""
        unused = "CPU and memory are parts of the largest node's, constraints and updates of requests are not used"
        events = [each for file in files for each in _read(file)]
        return TraceContent(files, _instances(events), "collection", unused, "instance")


def _read(file: Path) -> Iterator[tuple[InstanceEvent, str, int]]:
    """Yield the events of a file with its name and their lines. Raises InputError: a line is no event."""
    decoder = msgspec.json.Decoder(InstanceEvent, strict=False)
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            try:
                yield decoder.decode(line), str(file), number
            except msgspec.DecodeError as error:
                raise InputError(file, f"line {number}", "", f"is not an instance event: {error}") from None


def _instances(events: Sequence[tuple[InstanceEvent, str, int]]) -> Iterator[TraceJob | str]:
    """Yield the instances of all events, or why one is left out."""
    alloc_sets = {event.collection_id for event, _, _ in events if event.collection_type == ALLOC_SET}
    by_instance: dict[tuple[int, int], list[tuple[InstanceEvent, str, int]]] = {}
    for each in sorted(events, key=lambda each: each[0].time):
        by_instance.setdefault((each[0].collection_id, each[0].instance_index or 0), []).append(each)
    for (collection, index), group in by_instance.items():
        _, file, line = group[0]
        of_instance = [event for event, _, _ in group if event.time < NEVER]
        if not of_instance:
            yield NEVER_RAN
        elif any(event.alloc_collection_id in alloc_sets for event in of_instance):
            yield IN_ALLOC_SET
        else:
            yield _instance(f"{collection}-{index}", of_instance, (file, line))


def _instance(name: str, events: Sequence[InstanceEvent], place: tuple[str, int]) -> TraceJob | str:
    """Return an instance of its events in order of time."""
    created, ran, since, has_ended = events[0].time, 0, None, False
    for event in events:
        if event.type == SCHEDULE:
            since, has_ended = event.time, False
        elif event.type in ENDS:
            ran += 0 if since is None else event.time - since
            since, has_ended = None, True
        elif event.type == SUBMIT:
            has_ended = False
    if has_ended and not any(event.type == SCHEDULE for event in events):
        # Its beginning is not in the file, unless it was killed while it waited.
        if not any(event.machine_id or event.type in (FAIL, FINISH) for event in events):
            return NEVER_RAN
        ran = events[-1].time - created
    request = next((event.resource_request for event in events if event.resource_request), RequestedShares())
    return TraceJob(
        name,
        created / 1e6,
        ran / 1e6 if has_ended else None,
        cpu_share=request.cpus or 0.0,
        memory_share=request.memory or 0.0,
        owner=f"Collection/{events[0].collection_id}",
        priority=max(event.priority or 0 for event in events),
        place=place,
    )
