"""The workload of AAML's scheduler: random Deployments until the cluster reaches a load, cleared and refilled; its CSV.

A run is a list of rows `name,pod_count,cpu_request,cpu_limit,mem_request,mem_limit,action`. Replaying rows gives the
pods with their times, and generating means choosing rows and replaying them, so a written file replays exactly what
was generated.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests, Taint
from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.core.errors import InputError, UsageError
from steersman.core.quantities import (
    MAX_CPU_MILLI,
    MAX_MEMORY_BYTES,
    Quantity,
    bytes_,
    cpu_milli,
    format_bytes,
    format_cpu,
    plausible,
)
from steersman.workloads.formats import tables
from steersman.workloads.formats.kubernetes.replicas import replica_name
from steersman.workloads.formats.tables import TableRow, delimiter_of, needs, read_text

_ADJECTIVES = (
    "amber ancient bashful bold brave breezy bright brisk bubbly calm cheerful chilly clever cosmic cozy crisp "
    "curious daring dapper dizzy drowsy eager earnest electric fancy fearless feisty fluffy foggy frosty fuzzy "
    "gentle giddy gleeful golden grumpy happy hasty hidden humble hungry icy jaunty jolly jumpy keen kind lanky "
    "lazy leafy lively lucky mellow merry mighty misty modest mossy nimble noble nosy odd patient peppy perky "
    "placid playful plucky polite proud puzzled quick quiet quirky rainy rapid rosy rowdy rusty salty scruffy shiny "
    "shy silent silly sleepy sly smooth snappy snug solemn spicy spry steady stormy stubborn sturdy sunny swift "
    "tame tidy tiny tough tricky upbeat vivid wacky warm wavy wild windy wise witty zany zesty"
)
_NOUNS = (
    "acorn albatross anchor apricot badger bagel banjo barnacle beacon beaver biscuit bison bobcat bosun buoy "
    "cactus canoe captain caravel carrot catamaran cheddar cobbler compass coral cormorant crumpet cuttlefish "
    "dinghy dolphin donkey dumpling falcon ferret fiddle flamingo frigate galleon gecko ginger goblet gondola "
    "gopher gosling halibut hammock harbor harpoon hedgehog helm heron hippo iguana jackal jellyfish kayak ketch "
    "kettle keel lantern lemur lighthouse limpet lobster mackerel magpie mango marmot mast mermaid minnow mitten "
    "mongoose muffin narwhal noodle nutmeg octopus otter oyster paddle pancake parrot pelican penguin pickle "
    "pinecone pirate plover porpoise pretzel puffin pumpkin quail rabbit raccoon radish rudder sailor salmon "
    "schooner seahorse sextant shanty shrimp sloop snail spanner squid starfish tadpole teapot tiller toucan "
    "trawler turnip turtle urchin waffle walrus whistle wombat yak yawl zebra"
)


def funny_name(taken: set[str], rng: np.random.Generator) -> str:
    """Return a name that is not in `taken`, and add it; nouns are added when a plain pair is taken."""
    name = f"{_choose(_ADJECTIVES.split(), rng)}-{_choose(_NOUNS.split(), rng)}"
    while name in taken:
        name = f"{name}-{_choose(_NOUNS.split(), rng)}"
    taken.add(name)
    return name


COLUMNS = ("name", "pod_count", "cpu_request", "cpu_limit", "mem_request", "mem_limit", "action")
TITLE = "a list of Deployments"
ADD, DELETE = "add", "delete"
ACTIONS = {"add": ADD, "create": ADD, "delete": DELETE, "remove": DELETE}  # actions of a row; AAML's files say `add`

CONTROL_PLANE = "control-plane"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"

MAX_NODES = 1_000_000
MAX_PODS = 10_000_000  # more than memory holds; a larger number is a typing error

INTERVAL_SECONDS = 10.0
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of AAML's CSV: a Deployment that is created or deleted, with quantities as they are written."""

    name: str
    pod_count: int
    cpu_request: str
    cpu_limit: str
    mem_request: str
    mem_limit: str
    action: str = ADD


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """What to generate.

    Attributes:
        cpu_load, memory_load, pod_load: fractions of the schedulable cluster; filling ends when one of them is reached.
        resets: number of fillings; after each the cluster is left alone for a while and then cleared.
        interval_seconds: time between Deployments.
        wait_seconds: time from the last Deployment to clearing, and from clearing to the next filling.
        min_replicas, max_replicas: pods of a Deployment, both inclusive.
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
        *("256Mi", "512Mi", "1Gi", "1.5Gi", "2Gi", "2.5Gi", "3Gi", "3.5Gi"),
        *("4Gi", "5Gi", "10Gi", "20Gi"),
    )
    memory_limits: tuple[str, ...] = ("1Gi", "1.5Gi", "2Gi", "2.5Gi", "3Gi", "3.5Gi", "4Gi", "5Gi", "10Gi", "20Gi")

    def __post_init__(self) -> None:
        for name in ("cpu_load", "memory_load", "pod_load"):
            load = getattr(self, name)
            if not 0 < load <= 10:
                raise UsageError(f"{_option(name)} {load} is out of range; expected a share above 0, such as 0.5")
        for name in ("interval_seconds", "wait_seconds"):
            seconds = getattr(self, name)
            if not 0 <= seconds < 1e9:
                option = _option(name.removesuffix("_seconds"))
                raise UsageError(f"{option} {seconds} is out of range; expected seconds, 0 or more")
        if self.resets < 1:
            raise UsageError(f"--cluster-resets must be at least 1, not {self.resets}")
        if not 1 <= self.min_replicas <= self.max_replicas <= MAX_REPLICAS:
            raise UsageError(
                f"--replicas {self.min_replicas}-{self.max_replicas} is out of range; expected a range such as 5-15"
            )
        _check_lists("cpu_requests", self.cpu_requests, self.cpu_limits, _cpu)
        _check_lists("memory_requests", self.memory_requests, self.memory_limits, _memory)


def generate(settings: DeploymentSettings, nodes: Sequence[Node], rng: np.random.Generator) -> tuple[Row, ...]:
    """Return random Deployments that fill the schedulable nodes `settings.resets` times."""
    usable = _usable(nodes)
    _check_sizes("cpu_requests", settings.cpu_requests, _cpu, max(node.cpu_milli for node in usable), format_cpu)
    largest = max(node.memory_bytes for node in usable)
    _check_sizes("memory_requests", settings.memory_requests, _memory, largest, format_bytes)
    capacity = _capacity(usable)
    pod_count = 0
    names: set[str] = set()
    rows: list[Row] = []
    for epoch_number in range(1, settings.resets + 1):
        epoch: list[Row] = []
        used = np.zeros(3)
        targets = np.array([settings.cpu_load, settings.memory_load, settings.pod_load])
        # As AAML: add a Deployment while every load is below its target, so the last one exceeds it.
        while np.all(used / capacity < targets):
            row = _draw(settings, names, rng)
            epoch.append(row)
            pod_count += row.pod_count
            # Extrapolated from the fillings so far, so that it fails before memory is full.
            if pod_count * settings.resets > MAX_PODS * epoch_number:
                raise UsageError(
                    f"this would be more than {MAX_PODS} pods; choose fewer nodes, a lower --pod-load, larger requests "
                    "or fewer --cluster-resets"
                )
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
    """Return the pods of a run, in order of creation, with creation and deletion times.

    Every `add` takes `interval_seconds`. Rows that delete happen together, `wait_seconds` after the last addition,
    and the next addition follows `wait_seconds` later. A Deployment that is never deleted stays.
    """
    pods_by_row: list[list[Pod]] = []
    alive: dict[str, int] = {}
    lives: dict[str, int] = {}
    time, deleting, count = 0.0, False, 0
    for number, row in enumerate(rows):
        where = f"line {number + 2} ({row.name})"
        if row.action == ADD:
            if row.name in alive:
                raise InputError(file, where, "name", "is added while it is there; delete it first")
            if pods_by_row:
                time += wait_seconds if deleting else interval_seconds
            deleting = False
            count += row.pod_count
            if count > MAX_PODS:
                raise InputError(file, where, "pod_count", f"makes more than {MAX_PODS} pods together with those above")
            alive[row.name] = len(pods_by_row)
            lives[row.name] = lives.get(row.name, 0) + 1
            pods_by_row.append(list(_pods(row, lives[row.name], time, scheduler_name, namespace)))
        else:
            if row.name not in alive:
                raise InputError(file, where, "name", "is deleted while it is not there")
            time += 0.0 if deleting else wait_seconds
            deleting = True
            index = alive.pop(row.name)
            pods_by_row[index] = [replace(pod, deletion_time=time) for pod in pods_by_row[index]]
    pods = tuple(pod for deployment in pods_by_row for pod in deployment)
    if len({pod.name for pod in pods}) != len(pods):
        raise InputError(file, "", "name", "Deployments make pods of the same name; rename one of them")
    return pods


def is_deployments(columns: Set[str]) -> bool:
    return "pod_count" in columns or "action" in columns


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """Read AAML's CSV. Raises InputError: names file, line and field."""
    text = read_text(path)
    return parse_rows(path, io.StringIO(text, newline=""), delimiter_of(text))


def parse_rows(path: str | Path, lines: Iterable[str], delimiter: str = ",") -> tuple[Row, ...]:
    """Return the rows of AAML's CSV; `path` is only named in errors. Raises InputError: see `read_rows`."""

    def columns(first: Iterator[list[str]]) -> list[str]:
        header = [cell.strip() for cell in next(first, [])]
        for column in COLUMNS:
            if header.count(column) != 1:
                problem = "column is missing" if column not in header else "column appears twice"
                raise InputError(path, "line 1", column, f"{problem}; the table is read as {needs(TITLE, COLUMNS)}")
        return header

    rows = tuple(map(_row, tables.rows_of(str(path), lines, delimiter, columns)))
    if not rows:
        raise InputError(path, "", "", "has no Deployments, only a header")
    return rows


def write_rows(rows: Iterable[Row], path: Path) -> None:
    tables.write_table(path, COLUMNS, ([getattr(row, column) for column in COLUMNS] for row in rows))


def cluster(
    count: int, *, cpu: Quantity = "64", memory: Quantity = "256Gi", pods: int = 110, gpus: int = 0, gpu_model: str = ""
) -> tuple[Node, ...]:
    """Return AAML's cluster: `count` equal nodes and a tainted control-plane node that takes no pods of Deployments."""
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"--node-count {count} is out of range; expected 1 to {MAX_NODES}")
    milli = _amount("node_cpu", cpu, _cpu)
    memory_bytes = _amount("node_memory", memory, _memory)
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
    """Return rows that give these pods as far as rows can, and the pods in the order in which a replay creates them.

    Pods of one owner and creation time are a Deployment. The caller checks whether the replay gives the same pods. A
    limit, which a row must have, is the request if a pod has none.
    """
    groups: dict[tuple[str, float], list[Pod]] = {}
    for pod in pods:
        name = pod.owner.partition("/")[2] or pod.name
        groups.setdefault((name, pod.creation_time or 0.0), []).append(pod)
    events: list[tuple[float, int, int, Row]] = []
    for order, ((name, created), members) in enumerate(groups.items()):
        first = members[0]
        cpu, memory = format_cpu(first.requests.cpu_milli), format_bytes(first.requests.memory_bytes)
        cpu_limit = format_cpu(first.cpu_limit_milli) if first.cpu_limit_milli else cpu
        memory_limit = format_bytes(first.memory_limit_bytes) if first.memory_limit_bytes else memory
        row = Row(name, len(members), cpu, cpu_limit, memory, memory_limit, ADD)
        events.append((created, 1, order, row))
        deleted = first.deletion_time
        if deleted is not None:
            events.append((deleted, 0, order, replace(row, action=DELETE)))
    # Deletions come before creations of the same time.
    events.sort(key=lambda event: event[:3])
    deployments = list(groups.values())
    originals = [pod for _, adds, order, _ in events if adds for pod in deployments[order]]
    return tuple(row for *_, row in events), tuple(originals)


def _row(row: TableRow) -> Row:
    cells, name = row.cells, row.text("name")
    if not name:
        raise row.error("name", "is empty; every Deployment needs a name")
    count = cells["pod_count"]
    if not (count.isascii() and count.isdigit() and 0 < int(count[:19]) <= MAX_REPLICAS):
        raise row.error("pod_count", f"{count!r} is not a number of pods, 1 to {MAX_REPLICAS}")
    action = ACTIONS.get(cells["action"].lower())
    if action is None:
        raise row.error("action", f"{cells['action']!r} is unknown; expected add (or create) or delete")
    for resource, parse in (("cpu", _cpu), ("mem", _memory)):
        request, limit = f"{resource}_request", f"{resource}_limit"
        amounts = {}
        for field in (request, limit):
            try:
                amounts[field] = parse(cells[field])
            except ValueError as error:
                raise row.error(field, str(error)) from None
        if amounts[limit] < amounts[request]:
            raise row.error(limit, f"{cells[limit]} is below the request {cells[request]}")
    cpu_request, cpu_limit, mem_request, mem_limit = (cells[column] for column in COLUMNS[2:6])
    return Row(name, int(count), cpu_request, cpu_limit, mem_request, mem_limit, action)


def _pods(row: Row, life: int, time: float, scheduler_name: str, namespace: str) -> Iterator[Pod]:
    """Yield a Deployment's pods; one that comes back under the same name is told apart by the number of its life."""
    base = row.name if life == 1 else f"{row.name}-{life}"
    cpu, memory = cpu_milli(row.cpu_request), bytes_(row.mem_request)
    # A row states its requests, even 0, so scoring assumes no default.
    pod_class = PodClass(Requests(cpu, memory, cpu_nonzero_milli=cpu, memory_nonzero_bytes=memory), Constraints())
    cpu_limit, memory_limit = cpu_milli(row.cpu_limit), bytes_(row.mem_limit)
    for i in range(1, row.pod_count + 1):
        yield Pod(
            name=replica_name(base, i),
            pod_class=pod_class,
            namespace=namespace,
            labels={"app": row.name},
            scheduler_name=scheduler_name,
            owner=f"Deployment/{row.name}",
            creation_time=time,
            cpu_limit_milli=cpu_limit,
            memory_limit_bytes=memory_limit,
        )


def _usable(nodes: Sequence[Node]) -> list[Node]:
    usable = [node for node in nodes if node.takes_any_pod]
    if not usable:
        raise UsageError(
            "the cluster has no node that takes pods without tolerations; loads are fractions of such nodes"
        )
    return usable


def _capacity(nodes: Sequence[Node]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the total milli-CPU, memory bytes and pods of the nodes."""
    sums = (sum(n.cpu_milli for n in nodes), sum(n.memory_bytes for n in nodes), sum(n.pods for n in nodes))
    return np.array([float(max(total, 1)) for total in sums])


def _draw(settings: DeploymentSettings, names: set[str], rng: np.random.Generator) -> Row:
    replicas = int(rng.integers(settings.min_replicas, settings.max_replicas + 1))
    cpu_request = _choose(settings.cpu_requests, rng)
    cpu_limit = _choose([v for v in settings.cpu_limits if cpu_milli(v) >= cpu_milli(cpu_request)], rng)
    memory_request = _choose(settings.memory_requests, rng)
    memory_limit = _choose([v for v in settings.memory_limits if bytes_(v) >= bytes_(memory_request)], rng)
    return Row(funny_name(names, rng), replicas, cpu_request, cpu_limit, memory_request, memory_limit)


def _choose(values: Sequence[str], rng: np.random.Generator) -> str:
    return values[int(rng.integers(len(values)))]


def _cpu(quantity: Quantity) -> int:
    return plausible(cpu_milli(quantity), MAX_CPU_MILLI, quantity)


def _memory(quantity: Quantity) -> int:
    return plausible(bytes_(quantity), MAX_MEMORY_BYTES, quantity)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _amount(name: str, quantity: Quantity, parse: Callable[[Quantity], int]) -> int:
    """Return an amount above 0. Raises UsageError: names the option."""
    try:
        amount = parse(quantity)
    except ValueError as error:
        raise UsageError(f"{_option(name)}: {error}") from None
    if not amount:
        raise UsageError(f"{_option(name)} {quantity}: must be above 0")
    return amount


def _check_lists(name: str, requests: Sequence[str], limits: Sequence[str], parse: Callable[[Quantity], int]) -> None:
    """Check that every request is a quantity above 0 with a limit that is not below it."""
    if not requests or not limits:
        raise UsageError(f"{_option(name)}: the lists of requests and limits need one value or more")
    amounts = [_amount(name, value, parse) for value in requests]
    largest = max(_amount(name.replace("requests", "limits"), value, parse) for value in limits)
    for value, amount in zip(requests, amounts, strict=True):
        if amount > largest:
            raise UsageError(f"{_option(name)} {value} is above every limit ({', '.join(limits)})")


def _check_sizes(
    name: str, requests: Sequence[str], parse: Callable[[Quantity], int], most: int, spell: Callable[[int], str]
) -> None:
    """Check that some node could hold each request: a pod that fits nowhere would count as load and never run."""
    for value in requests:
        if parse(value) > most:
            problem = f"is more than any node has ({spell(most)} at most); name smaller requests or take larger nodes"
            raise UsageError(f"{_option(name)} {value} {problem}")
