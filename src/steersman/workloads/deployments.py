"""Reference A's workload: random Deployments until the cluster is as full as asked, cleared and filled anew; its CSV.

A run is a list of rows `name,pod_count,cpu_request,cpu_limit,mem_request,mem_limit,action`. Replaying rows gives the
pods with their times, and generating is choosing rows and replaying them; so a written file replays exactly what was
generated.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests, Taint
from steersman.errors import InputError, UsageError
from steersman.quantities import Quantity, bytes_, cpu_milli, format_bytes, format_cpu
from steersman.workloads.kubernetes import MAX_REPLICAS, replica_name
from steersman.workloads.names import funny_name
from steersman.workloads.openb import read_text

COLUMNS = ("name", "pod_count", "cpu_request", "cpu_limit", "mem_request", "mem_limit", "action")
ADD, DELETE = "add", "delete"
ACTIONS = {"add": ADD, "create": ADD, "delete": DELETE, "remove": DELETE}
"""Actions of a row; reference A writes `add`."""

CONTROL_PLANE = "control-plane"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"

INTERVAL_SECONDS = 10.0
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of reference A's CSV: a Deployment that appears or goes, its quantities as they are spelt."""

    name: str
    pod_count: int
    cpu_request: str
    cpu_limit: str
    mem_request: str
    mem_limit: str
    action: str = ADD


@dataclass(frozen=True, slots=True)
class Settings:
    """What to generate.

    Attributes:
        cpu_load, memory_load, pod_load: fractions of the schedulable cluster; filling ends when one of them is reached.
        resets: how often the cluster is filled; after each time it is left alone and then cleared.
        interval_seconds: from one Deployment to the next.
        wait_seconds: from the last Deployment to clearing, and from clearing to the next filling.
        min_replicas, max_replicas: pods of a Deployment, both ends included.
        cpu_requests, cpu_limits, memory_requests, memory_limits: the values to draw from; a limit is never below its
            request.
    """

    cpu_load: float = 0.5
    memory_load: float = 0.5
    pod_load: float = 0.5
    resets: int = 1
    interval_seconds: float = INTERVAL_SECONDS
    wait_seconds: float = WAIT_SECONDS
    min_replicas: int = 5
    max_replicas: int = 15
    cpu_requests: tuple[str, ...] = ("100m", "250m", "500m", "1000m", "1500m", "2000m", "2500m", "3000m", "3500m")
    cpu_limits: tuple[str, ...] = ("500m", "750m", "1000m", "1500m", "2000m", "2500m", "3000m", "3500m")
    memory_requests: tuple[str, ...] = (
        "256Mi",
        "512Mi",
        "1Gi",
        "1.5Gi",
        "2Gi",
        "2.5Gi",
        "3Gi",
        "3.5Gi",
        "4Gi",
        "5Gi",
        "10Gi",
        "20Gi",
    )
    memory_limits: tuple[str, ...] = ("1Gi", "1.5Gi", "2Gi", "2.5Gi", "3Gi", "3.5Gi", "4Gi", "5Gi", "10Gi", "20Gi")

    def __post_init__(self) -> None:
        for name in ("cpu_load", "memory_load", "pod_load"):
            load = getattr(self, name)
            if not 0 < load <= 10:
                raise UsageError(
                    f"{name.replace('_', ' ')} {load} is out of range; a share above 0, such as 0.5, is right"
                )
        for name in ("interval_seconds", "wait_seconds"):
            seconds = getattr(self, name)
            if not 0 <= seconds < 1e9:
                raise UsageError(
                    f"{name.replace('_seconds', '')} {seconds} is out of range; seconds, 0 or more, are right"
                )
        if self.resets < 1:
            raise UsageError(f"resets {self.resets} is out of range; 1 or more is right")
        if not 1 <= self.min_replicas <= self.max_replicas <= MAX_REPLICAS:
            raise UsageError(
                f"replicas {self.min_replicas}-{self.max_replicas} are out of range; such as 5-15 is right"
            )
        for requests, limits, parse in (
            (self.cpu_requests, self.cpu_limits, cpu_milli),
            (self.memory_requests, self.memory_limits, bytes_),
        ):
            if not requests or not limits:
                raise UsageError("the lists of requests and limits need one value or more")
            _check_lists(requests, limits, parse)


def generate(settings: Settings, nodes: Sequence[Node], rng: np.random.Generator) -> tuple[Row, ...]:
    """Random Deployments that fill the schedulable nodes `settings.resets` times.

    Raises:
        UsageError: there is no schedulable node, or names run out.
    """
    capacity = _capacity(nodes)
    names: set[str] = set()
    rows: list[Row] = []
    for _ in range(settings.resets):
        epoch: list[Row] = []
        used = np.zeros(3)
        targets = np.array([settings.cpu_load, settings.memory_load, settings.pod_load])
        # As reference A: another Deployment while every load is below its target, so the last one passes it.
        while np.all(used / capacity < targets):
            row = _draw(settings, names, rng)
            epoch.append(row)
            used += row.pod_count * np.array([cpu_milli(row.cpu_request), bytes_(row.mem_request), 1])
        rows += epoch
        rows += [replace(row, action=DELETE) for row in epoch]
    return tuple(rows)


def replay(
    rows: Iterable[Row],
    *,
    interval_seconds: float = INTERVAL_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    scheduler_name: str = "custom-scheduler",
    namespace: str = "default",
    file: str = "",
) -> tuple[Pod, ...]:
    """The pods of a run, in order of creation, with creation and deletion times.

    Every `add` takes `interval_seconds`. Rows that delete happen together, `wait_seconds` after the last addition,
    and the next addition follows `wait_seconds` later. A Deployment that is never deleted stays.

    Raises:
        InputError: a Deployment is added while it is there, or deleted while it is not.
    """
    made: list[list[Pod]] = []
    alive: dict[str, int] = {}
    lives: dict[str, int] = {}
    time, deleting = 0.0, False
    for number, row in enumerate(rows):
        where = f"line {number + 2} ({row.name})"
        if row.action == ADD:
            if row.name in alive:
                raise InputError(file, where, "name", "is added while it is there; delete it first")
            if made:
                time += wait_seconds if deleting else interval_seconds
            deleting = False
            alive[row.name] = len(made)
            lives[row.name] = lives.get(row.name, 0) + 1
            made.append(list(_pods(row, lives[row.name], time, scheduler_name, namespace)))
        else:
            if row.name not in alive:
                raise InputError(file, where, "name", "is deleted while it is not there")
            time += 0.0 if deleting else wait_seconds
            deleting = True
            index = alive.pop(row.name)
            made[index] = [replace(pod, deletion_time=time) for pod in made[index]]
    pods = tuple(pod for deployment in made for pod in deployment)
    if len({pod.name for pod in pods}) != len(pods):
        raise InputError(file, "", "name", "Deployments make pods of the same name; rename one of them")
    return pods


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """Read reference A's CSV. Raises InputError: names file, line and field."""
    text = read_text(path)
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for column in COLUMNS:
            if header.count(column) != 1:
                problem = "column is missing" if column not in header else "column appears twice"
                raise InputError(path, "line 1", column, f"{problem}; the header is {','.join(COLUMNS)}")
        rows = []
        for cells in reader:
            where = f"line {reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise InputError(path, where, "", f"has {len(cells)} cells where the header has {len(header)}")
            rows.append(_row(dict(zip(header, (cell.strip() for cell in cells), strict=True)), path, where))
    except csv.Error as error:
        raise InputError(path, f"line {reader.line_num}", "", f"is not CSV: {error}") from None
    if not rows:
        raise InputError(path, "", "", "has no Deployments, only a header")
    return tuple(rows)


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write reference A's CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([getattr(row, column) for column in COLUMNS] for row in rows)


def cluster(
    count: int,
    *,
    cpu: Quantity = "64",
    memory: Quantity = "256Gi",
    pods: int = 110,
    gpus: int = 0,
    gpu_model: str = "",
) -> tuple[Node, ...]:
    """Reference A's cluster: `count` equal nodes and a tainted control-plane node, which takes no pods of Deployments.

    Raises:
        UsageError: no nodes, or a quantity that is none.
    """
    if count < 1:
        raise UsageError(f"{count} nodes are too few; 1 or more is right")
    try:
        milli, memory_bytes = cpu_milli(cpu, round_up=False), bytes_(memory, round_up=False)
    except ValueError as error:
        raise UsageError(str(error)) from None
    width = max(4, len(str(count - 1)))
    workers = [
        Node(
            name=(name := f"node-{i:0{width}}"),
            cpu_milli=milli,
            memory_bytes=memory_bytes,
            pods=pods,
            gpu_count=gpus,
            gpu_model=gpu_model,
            labels={"kubernetes.io/hostname": name, "type": "kwok"},
        )
        for i in range(count)
    ]
    control_plane = Node(
        name=CONTROL_PLANE,
        cpu_milli=milli,
        memory_bytes=memory_bytes,
        pods=pods,
        labels={"kubernetes.io/hostname": CONTROL_PLANE, CONTROL_PLANE_LABEL: "", "type": "kwok"},
        taints=(Taint(CONTROL_PLANE_LABEL, "", "NoSchedule"),),
    )
    return (control_plane, *workers)


def rows_of(pods: Sequence[Pod]) -> tuple[tuple[Row, ...], tuple[Pod, ...]]:
    """Rows that make these pods as far as rows can, and the pods in the order in which a replay makes them.

    Pods of one owner and creation time are a Deployment. Whether the replay gives the same pods is for the caller to
    check. Limits, which the model does not keep, are the requests.
    """
    groups: dict[tuple[str, float], list[Pod]] = {}
    for pod in pods:
        name = pod.owner.rpartition("/")[2] or pod.name
        groups.setdefault((name, pod.creation_time or 0.0), []).append(pod)
    events: list[tuple[float, int, int, Row]] = []
    for order, ((name, created), members) in enumerate(groups.items()):
        requests = members[0].requests
        cpu, memory = format_cpu(requests.cpu_milli), format_bytes(requests.memory_bytes)
        row = Row(name, len(members), cpu, cpu, memory, memory, ADD)
        events.append((created, 1, order, row))
        deleted = members[0].deletion_time
        if deleted is not None:
            events.append((deleted, 0, order, replace(row, action=DELETE)))
    # At one time, what goes makes room for what comes.
    events.sort(key=lambda event: event[:3])
    made = list(groups.values())
    originals = [pod for _, adds, order, _ in events if adds for pod in made[order]]
    return tuple(row for *_, row in events), tuple(originals)


def _row(cells: dict[str, str], path: str | Path, where: str) -> Row:
    name = cells["name"]
    if not name:
        raise InputError(path, where, "name", "is empty; every Deployment needs a name")
    count = cells["pod_count"]
    if not (count.isascii() and count.isdigit() and 0 < int(count[:19]) <= MAX_REPLICAS):
        raise InputError(path, where, "pod_count", f"{count!r} is not a number of pods, 1 to {MAX_REPLICAS}")
    action = ACTIONS.get(cells["action"].lower())
    if action is None:
        raise InputError(path, where, "action", f"{cells['action']!r} is unknown; add (or create) and delete are right")
    for resource, parse in (("cpu", cpu_milli), ("mem", bytes_)):
        request, limit = f"{resource}_request", f"{resource}_limit"
        amounts = {}
        for field in (request, limit):
            try:
                amounts[field] = parse(cells[field])
            except ValueError as error:
                raise InputError(path, where, field, str(error)) from None
        if amounts[limit] < amounts[request]:
            raise InputError(path, where, limit, f"{cells[limit]} is below the request {cells[request]}")
    cpu_request, cpu_limit, mem_request, mem_limit = (cells[column] for column in COLUMNS[2:6])
    return Row(name, int(count), cpu_request, cpu_limit, mem_request, mem_limit, action)


def _pods(row: Row, life: int, time: float, scheduler_name: str, namespace: str) -> Iterator[Pod]:
    """A Deployment's pods. One that comes back under its name is told apart by the number of its life."""
    base = row.name if life == 1 else f"{row.name}-{life}"
    requests = Requests(cpu_milli=cpu_milli(row.cpu_request), memory_bytes=bytes_(row.mem_request))
    pod_class = PodClass(requests, Constraints())
    for i in range(1, row.pod_count + 1):
        yield Pod(
            name=replica_name(base, i),
            pod_class=pod_class,
            namespace=namespace,
            labels={"app": row.name},
            scheduler_name=scheduler_name,
            owner=f"Deployment/{row.name}",
            creation_time=time,
        )


def _capacity(nodes: Sequence[Node]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """CPU milli, memory bytes and pods of the nodes that take pods without tolerations."""
    usable = [n for n in nodes if not n.unschedulable and all(t.effect == "PreferNoSchedule" for t in n.taints)]
    if not usable:
        raise UsageError(
            "the cluster has no node that takes pods without tolerations; loads are fractions of such nodes"
        )
    sums = (sum(n.cpu_milli for n in usable), sum(n.memory_bytes for n in usable), sum(n.pods for n in usable))
    return np.array([float(max(total, 1)) for total in sums])


def _draw(settings: Settings, names: set[str], rng: np.random.Generator) -> Row:
    replicas = int(rng.integers(settings.min_replicas, settings.max_replicas + 1))
    cpu_request = _choose(settings.cpu_requests, rng)
    cpu_limit = _choose([v for v in settings.cpu_limits if cpu_milli(v) >= cpu_milli(cpu_request)], rng)
    memory_request = _choose(settings.memory_requests, rng)
    memory_limit = _choose([v for v in settings.memory_limits if bytes_(v) >= bytes_(memory_request)], rng)
    return Row(funny_name(names, rng), replicas, cpu_request, cpu_limit, memory_request, memory_limit)


def _choose(values: Sequence[str], rng: np.random.Generator) -> str:
    return values[int(rng.integers(len(values)))]


def _check_lists(requests: Sequence[str], limits: Sequence[str], parse: Callable[[Quantity], int]) -> None:
    """Every request must be a quantity and have a limit that is not below it."""
    try:
        largest = max(parse(value) for value in limits)
        for value in requests:
            if parse(value) > largest:
                raise UsageError(f"request {value} is above every limit ({', '.join(limits)})")
    except ValueError as error:
        raise UsageError(str(error)) from None
