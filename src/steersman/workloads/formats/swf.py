"""The Standard Workload Format of the Parallel Workloads Archive: a job a line, 18 fields, and a header of comments.

Times are in seconds from the start of the log, memory is in KB per processor, and -1 is unknown. Source: Chapin et al.,
"Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999, and Feitelson, "The Standard
Workload Format", https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from steersman.cluster.gpu_units import with_standard_labels
from steersman.cluster.model import EXECUTABLE, Node
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_MEMORY_BYTES, MAX_NODE_MEMORY_BYTES
from steersman.workloads.files import SWF_SUFFIXES
from steersman.workloads.formats.base import WorkloadFormat
from steersman.workloads.formats.tables import read_text
from steersman.workloads.formats.traces import TraceContent, TraceJob

FIELDS = (
    *("job number", "submit time", "wait time", "run time", "allocated processors", "CPU time", "used memory"),
    *("requested processors", "requested time", "requested memory", "status", "user", "group", "executable"),
    *("queue", "partition", "preceding job", "think time"),
)
"""Names of the fields, in order."""
JOB, SUBMIT, RUN, ALLOCATED, PROCESSORS, TIME, MEMORY, STATUS, USER, GROUP, PROGRAM, QUEUE, PARTITION = (
    *(0, 1, 3, 4, 7, 8, 9),
    *(10, 11, 12, 13, 14, 15),
)
"""Indices of the fields that are used."""
PARTS = (2, 3, 4)  # statuses of lines that repeat a part of a job, which has a line of its own
POOL = "pool"  # name of the node that stands for the machine of a log
MAX_PROCESSORS = 1_000_000
MAX_SECONDS = 1e15
DID_NOT_RUN, WITHOUT_RUN_TIME, PART = ("did not run", "without a run time", "part of a job with a line of its own")
"""Why lines are left out."""
_FIRST_LINE = re.compile(r"\s*(;|(-?[0-9.]+\s+){17}-?[0-9.]+\s)")
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*([0-9]+)")


class SwfContent(TraceContent):
    """Logs of jobs; several are of one machine."""

    field = f"field {JOB + 1} ({FIELDS[JOB]})"
    # Not numbered here: a log that has a number twice most likely has jobs twice.
    advice = "remove the duplicate, or renumber the jobs"

    def __init__(self, files: Sequence[Path]) -> None:
        logs = [_read(file) for file in files]
        self._processors = max(processors for processors, _ in logs)
        pool = f"the machine of {self._processors} processors is one node where no nodes are given, "
        unused = "wait times, used memory and dependencies are not used"
        entries = (entry for _, log in logs for entry in log)
        super().__init__(files, entries, "user", (pool if self._processors else "") + unused, "job", from_first=False)

    def has_nodes(self) -> bool:
        return self._processors > 0

    def is_stand_in(self) -> bool:
        """Return True: the machine is known by its size alone, see `FormatContent`."""
        return True

    def nodes(self) -> Sequence[Node]:
        if not self._processors:
            return ()
        # The header does not say how much memory there is, so that it is enough for all jobs that fit.
        of_one = max(job.memory_bytes // job.processors for job in self.jobs)
        memory = max(MAX_MEMORY_BYTES, self._processors * of_one)
        pool = Node(POOL, self._processors * 1000, min(memory, MAX_NODE_MEMORY_BYTES))
        return (with_standard_labels(pool),)


class Swf(WorkloadFormat):
    """The Standard Workload Format, which is only read."""

    name = "swf"
    title = "the Standard Workload Format"
    suffixes = SWF_SUFFIXES

    def recognises(self, file: Path) -> bool:
        return super().recognises(file) or bool(_FIRST_LINE.match(read_text(file, "replace", head=True)))

    def open(self, files: Sequence[Path]) -> SwfContent:
        return SwfContent(files)


def _read(file: Path) -> tuple[int, list[TraceJob | str]]:
    """Return the processors of a log's machine, 0: not stated, and its jobs, or why lines are left out."""
    machine: dict[str, int] = {}
    entries: list[TraceJob | str] = []
    # Comments of old logs are not always UTF-8.
    for number, line in enumerate(read_text(file, errors="replace").split("\n"), start=1):
        stated = line.strip()
        if stated.startswith(";"):
            if match := _MACHINE.match(stated):
                if len(match[2]) > 9 or int(match[2]) > MAX_PROCESSORS:
                    raise InputError(file, f"line {number}", match[1], _beyond(match[2]))
                machine[match[1]] = int(match[2])
            continue
        if stated:
            entries.append(_job(_Line(file, number, stated)))
    if all(isinstance(each, str) for each in entries):
        count = len(entries)
        raise InputError(file, "", "", f"has no job that ran ({count} left out)" if count else "has no jobs")
    return machine.get("MaxProcs") or machine.get("MaxNodes", 0), entries


class _Line:
    """A line with the numbers of a job. Raises InputError: it has not 18 fields, or one is not a number."""

    __slots__ = ("file", "number", "texts", "values")

    def __init__(self, file: Path, number: int, text: str) -> None:
        self.file, self.number = file, number
        self.texts = text.split()
        if len(self.texts) != len(FIELDS):
            problem = f"has {len(self.texts)} fields; expected {len(FIELDS)} (-1 for what is unknown)"
            raise InputError(file, f"line {number}", "", problem)
        try:
            self.values: list[float] = list(map(int, self.texts))
        except ValueError:
            self.values = [_number(text) for text in self.texts]
        if "_" in text or not -MAX_SECONDS < min(self.values) <= max(self.values) < MAX_SECONDS:
            bad = next(i for i, text in enumerate(self.texts) if not -MAX_SECONDS < _number(text) < MAX_SECONDS)
            raise self.error(bad, f"{self.texts[bad]!r} is not a number below 1e15 (-1 for unknown)")

    def error(self, field: int, problem: str) -> InputError:
        return InputError(self.file, f"line {self.number}", f"field {field + 1} ({FIELDS[field]})", problem)

    def whole(self, field: int) -> int:
        """Return a whole number, -1 if it is unknown. Raises InputError."""
        value = self.values[field]
        if value < -1 or value != int(value):
            raise self.error(field, f"{self.texts[field]} is not a whole number of 0 or more (-1 for unknown)")
        return int(value)

    def seconds(self, field: int) -> float:
        """Return a time, -1 if it is unknown. Raises InputError."""
        value = self.values[field]
        if value < 0 and value != -1:
            raise self.error(field, f"{self.texts[field]} is not a time of 0 seconds or more (-1 for unknown)")
        return value


def _number(text: str) -> float:
    """Return a number, inf if it is none."""
    try:
        value = float(text) if "_" not in text else math.inf
    except ValueError:
        return math.inf
    return math.inf if math.isnan(value) else value


def _job(line: _Line) -> TraceJob | str:
    """Return the job of a line, or why it is left out. Raises InputError: a field is invalid."""
    status, run = line.whole(STATUS), line.seconds(RUN)
    if status in PARTS:
        return PART
    if run < 0 or (run == 0 and status != 1):
        return WITHOUT_RUN_TIME if status == 1 else DID_NOT_RUN
    number, submit, requested = line.whole(JOB), line.seconds(SUBMIT), line.seconds(TIME)
    processors = max(line.whole(ALLOCATED), line.whole(PROCESSORS))
    if number < 0:
        raise line.error(JOB, "is -1; every job needs a number of 0 or more")
    if submit < 0:
        raise line.error(SUBMIT, "is -1; every job needs a time of 0 seconds or more")
    if processors <= 0:
        raise line.error(PROCESSORS, "neither it nor field 5 states processors; a job that ran needs at least 1")
    if processors > MAX_PROCESSORS:
        field = ALLOCATED if line.values[ALLOCATED] == processors else PROCESSORS
        raise line.error(field, _beyond(line.texts[field]))
    if requested == 0:
        raise line.error(TIME, "0 is not a time above 0 seconds (-1 for unknown)")
    memory = line.whole(MEMORY)
    if memory * processors << 10 > MAX_NODE_MEMORY_BYTES:
        problem = f"{memory} KB for each of {processors} processors is more than any real machine has"
        raise line.error(MEMORY, problem)
    user, group = line.whole(USER), line.whole(GROUP)
    stated = (("queue", QUEUE), ("partition", PARTITION), (EXECUTABLE, PROGRAM))
    return TraceJob(
        f"job-{number}",
        float(submit),
        float(run),
        cpu_milli=processors * 1000,
        memory_bytes=processors * memory << 10 if memory > 0 else 0,
        processors=processors,
        owner=f"User/user-{user}" if user >= 0 else "",
        namespace=f"group-{group}" if group >= 0 else "default",
        labels=tuple((name, str(line.whole(field))) for name, field in stated if line.whole(field) >= 0),
        estimate=float(requested) if requested > 0 else None,
        place=(str(line.file), line.number),
    )


def _beyond(stated: str) -> str:
    return f"{stated} processors are beyond any real machine (at most {MAX_PROCESSORS})"
