"""What the server sends to the page of a live cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.live.dashboard.columns import NodeColumns
from steersman.workloads.profile import TypicalPod


class LiveDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """Base class: fields are written as JavaScript does."""


class UseColumns(LiveDocument):
    """What is on some nodes, [K] each."""

    at: list[int] = []  # position of the node
    # `cpu`, `memory`: requested milli-CPU and MiB.
    cpu: list[int] = []
    memory: list[int] = []
    pods: list[int] = []  # number of its pods
    gpu: list[list[int]] = []  # requested milli of each GPU device
    counted: list[float] = []  # GPUs in use of those that are counted, see `NodeColumns`
    sharing: list[list[int]] = []  # pods on each GPU
    state: list[str] = []  # what keeps pods off it, "" for nothing


class Snapshot(LiveDocument):
    """Nodes, what is on all of them, and what percentages of GPUs do not count."""

    layout: int
    nodes: NodeColumns
    use: UseColumns
    profile: Sequence[TypicalPod]
    warnings: list[str]


class WaitingGroup(LiveDocument):
    """Pods that wait for the same scheduler with the same reason; `pod` waits for longest, since Unix time `since`."""

    scheduler: str
    reason: str
    pods: int
    since: float
    pod: str


class RuleRate(LiveDocument):
    """In how many of the last decisions on which a rule had an opinion it agreed."""

    rule: str
    agreed: int
    of: int


class Summary(LiveDocument):
    """Counts of the whole cluster."""

    age: int | None  # seconds since the API server was last heard, 0 while nodes and pods are watched; None: never
    nodes: int
    not_ready: int
    pods: int
    waiting: int
    groups: list[WaitingGroup]  # waiting pods by scheduler and reason, the most first
    bound: int
    rate: float  # bindings per second
    # `gpu`, `cpu`: requested percent of the nodes that are counted; None where there is none
    gpu: float | None
    cpu: float | None
    rules: list[RuleRate]  # what rules would have decided
    skipped: int  # bindings that were not compared with rules
    odd: int  # nodes that are not understood


class MetricRow(LiveDocument):
    """A number of a scheduler's or service's metrics."""

    source: str  # `scheduler` or `service`
    title: str  # what it is
    value: float | None = None  # the number; None where it is a word
    word: str = ""  # a state, such as that of a breaker
    unit: str = ""  # of the number
    series: str = ""  # name of its series in the history, "" without one


class SourceStatus(LiveDocument):
    """A source of metrics, and why it does not answer ("": it does)."""

    source: str
    url: str
    problem: str


class Metrics(LiveDocument):
    """What schedulers and services say of themselves."""

    sources: list[SourceStatus]
    rows: list[MetricRow]


class NodeLatency(LiveDocument):
    """How long pods waited that were bound to a node lately, seconds; `user`: its measured latency to users, ms."""

    node: str
    pods: int
    median: float
    p90: float
    user: float | None = None


class ChartLine(LiveDocument):
    """A line of a chart; None where nothing is known."""

    label: str
    values: list[float | None]


class HistoryDocument(LiveDocument):
    """Charts of a time: mean pods on a node by group, waiting pods by reason, other series, latencies by node."""

    time: list[float]
    pods: list[ChartLine]
    waiting: list[ChartLine]
    series: dict[str, list[float | None]]
    latencies: list[NodeLatency]


class PodRow(LiveDocument):
    """A pod."""

    name: str  # namespace and name
    scheduler: str
    node: str  # "" while it waits
    # `cpu`, `memory`, `gpus`, `milli`: requests: milli-CPU, MiB, GPUs, milli of each.
    cpu: int
    memory: int
    gpus: int
    milli: int
    devices: tuple[int, ...]  # its GPUs on the node
    since: float | None = None  # Unix time since when it waits; None for a bound one
    waited: float | None = None  # seconds that a bound one has waited; None if that was not seen
    reason: str = ""  # of its scheduler's last attempt
    rules: dict[str, bool] = {}  # whether rules agree with its binding


class NodeCard(LiveDocument):
    """A node with its pods; of one that was never understood only name, state, problem and pods."""

    name: str
    state: str  # what keeps pods off it, "" for nothing
    problem: str  # why it is not understood, "" if it is
    pods: list[PodRow]  # its pods
    left_out: int  # number of pods that are not listed
    model: str = ""  # of its GPUs, "" without one
    # `gpus`, `used_gpu`: number of all its GPUs; milli of them in use.
    gpus: float = 0
    used_gpu: int = 0
    # `cpu`, `memory`: allocatable milli-CPU and MiB.
    cpu: int = 0
    memory: int = 0
    # `used_cpu`, `used_memory`: requested by all of its pods.
    used_cpu: int = 0
    used_memory: int = 0
    labels: dict[str, str] = {}


class Match(LiveDocument):
    """A node or pod that a search found."""

    kind: str
    name: str
