"""Random clusters and the pods that want to run on them, for training and for tests of policies on many shapes.

A cluster and its workload profile are drawn together, because what makes a placement hard is how they meet: pods that
leave half a node, CPU that runs out before the GPUs do, models that few pods insist on. The distribution, for a cluster
of N nodes:

| what | drawn as |
| --- | --- |
| N | log-uniform over `nodes` (5 to 2,000 by default) |
| GPU models | 1 to 6, with probabilities 0.35, 0.25, 0.16, 0.12, 0.07, 0.05; shares of the nodes by Dirichlet(1) |
| devices of a node | 1, 2, 4, 8 or 16 (0.1, 0.14, 0.28, 0.44, 0.04), one number for each model |
| CPU for a device | 4 to 32 cores, memory for a device 16 to 256 GiB, for each model; a node keeps 2 % for itself |
| nodes without GPUs | none in 55 % of the clusters, else 5 to 40 % of the nodes; 16 to 128 cores |
| sharing | no pod (45 %), some (30 %), most (25 %) of the pods with GPUs ask for a share of one device |
| shares | 1 to 6 sizes, round ones (50 to 750 milli) or arbitrary ones (30 to 950) |
| whole devices | weights of 1, 2, 4 devices and of the largest node by Dirichlet(0.7) |
| CPU and memory of a pod | a factor of the node's CPU or memory for each of its devices, log-normal around a
  centre of the cluster, 0.2 to 1.15 (above 1 the GPUs cannot all be used) |
| pods without GPUs | none to 60 % of the pods, 0.25 to 16 cores |
| owners | 4 to 120 templates (log-uniform), whose numbers of replicas follow a log-normal distribution |
| constraints | GPU models in up to 60 % of the owners of a cluster, node selectors and tainted pools in some clusters |
| GPU demand | 60 to 160 % of the capacity |
| order | random, by size, or bursts by owner |
| times | Poisson arrivals at a load of 0.7 to 1.2, log-normal durations by owner |

`Distribution.VALIDATION` draws from other values (devices of 1, 2, 3, 4, 6, 8, 10 and 16, other CPU and memory for a
device, other sizes of shares) with other random numbers, so that what is chosen by it was not only remembered.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.gpu_units import with_standard_labels
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests, Taint, Toleration
from steersman.core.errors import UsageError
from steersman.workloads.workload import Workload

MIN_NODES, MAX_NODES = 5, 2_000
MAX_PODS = 60_000
GIB = 1 << 30
POOL_LABEL, POOL_TAINT = "pool", "dedicated"
KEPT_BY_NODE = 0.02  # share of CPU and memory that a kubelet reserves: pods never fit without a remainder

MODELS = ("T4", "V100", "A10", "L40S", "A100", "H100")
MODEL_COUNTS = (0.35, 0.25, 0.16, 0.12, 0.07, 0.05)


class Distribution(enum.StrEnum):
    """The distribution that a cluster is drawn from."""

    TRAINING = "training"
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class _Values:
    """The values in which the two distributions differ."""

    devices: tuple[int, ...]
    device_weights: tuple[float, ...]
    cores: tuple[int, ...]
    gibibytes: tuple[int, ...]
    cpu_cores: tuple[int, ...]
    shares: tuple[int, ...]
    stream: int


_VALUES = {
    Distribution.TRAINING: _Values(
        devices=(1, 2, 4, 8, 16),
        device_weights=(0.1, 0.14, 0.28, 0.44, 0.04),
        cores=(4, 6, 8, 12, 16, 24, 32),
        gibibytes=(16, 32, 64, 96, 128, 256),
        cpu_cores=(16, 32, 64, 96, 128),
        shares=(50, 100, 125, 200, 250, 300, 333, 400, 500, 600, 750),
        stream=1,
    ),
    Distribution.VALIDATION: _Values(
        devices=(1, 2, 3, 4, 6, 8, 10, 16),
        device_weights=(0.1, 0.12, 0.05, 0.25, 0.05, 0.35, 0.04, 0.04),
        cores=(5, 7, 10, 14, 20, 28),
        gibibytes=(20, 48, 80, 112, 192),
        cpu_cores=(8, 24, 48, 80, 192),
        shares=(80, 110, 150, 166, 220, 280, 350, 450, 550, 650, 700, 800),
        stream=2,
    ),
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Equal nodes; `model` and `pool` may be empty."""

    model: str
    devices: int
    cpu_milli: int
    memory_bytes: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class _Owner:
    """A pod template, its frequency, and the mean duration of its pods."""

    name: str
    kind: str
    pod_class: PodClass
    weight: float
    seconds: float


def random_cluster(
    seed: int, *, distribution: Distribution = Distribution.TRAINING, nodes: tuple[int, int] = (MIN_NODES, MAX_NODES)
) -> Workload:
    """Draw a cluster with a number of nodes in a range, and its pods in order of arrival."""
    low, high = nodes
    if not 1 <= low <= high <= 100_000:
        raise UsageError(f"nodes {low}-{high}: expected a range within 1 to 100000, such as 5-2000")
    values = _VALUES[distribution]
    random = np.random.default_rng((seed, values.stream))
    count = round(math.exp(random.uniform(math.log(low), math.log(high))))
    shapes, counts = _shapes(random, values, count)
    machines = _nodes(shapes, counts)
    owners = _owners(random, values, shapes, counts)
    pods = _pods(random, owners, machines)
    return Workload(f"{distribution.value}-{seed}", machines, pods)


def _shapes(random: np.random.Generator, values: _Values, count: int) -> tuple[list[_Shape], list[int]]:
    """Return the shapes of the nodes, those with GPUs first, and the number of nodes of each."""
    model_count = min(count, 1 + int(random.choice(len(MODELS), p=MODEL_COUNTS)))
    models = random.permutation(MODELS)[:model_count]
    pooled = random.random() < 0.25
    labelled = random.random() < 0.9  # some clusters do not label their GPUs
    shapes: list[_Shape] = []
    for model in models:
        devices = int(random.choice(values.devices, p=values.device_weights))
        cores, memory = int(random.choice(values.cores)), int(random.choice(values.gibibytes))
        shapes.append(
            _Shape(
                model=str(model) if labelled or model_count > 1 else "",
                devices=devices,
                cpu_milli=_kept(cores * devices * 1000),
                memory_bytes=_kept(memory * devices * GIB),
                pool=f"pool-{len(shapes)}" if pooled and random.random() < 0.5 else "",
            )
        )
    without = 0 if random.random() < 0.55 else int(count * random.uniform(0.05, 0.4))
    parts = random.dirichlet(np.ones(model_count))
    counts = _apportion(parts, count - without)
    if without:
        cores = int(random.choice(values.cpu_cores))
        shapes.append(_Shape("", 0, _kept(cores * 1000), _kept(cores * int(random.choice((2, 4, 8))) * GIB)))
        counts.append(without)
    return shapes, counts


def _kept(amount: int) -> int:
    return int(amount * (1 - KEPT_BY_NODE))


def _apportion(parts: npt.NDArray[np.float64], total: int) -> list[int]:
    """Return integers of at least one that sum to `total` in proportion to `parts` (at most `total` of them)."""
    counts = 1 + np.floor(parts * (total - len(parts))).astype(np.int64)
    counts[: total - int(counts.sum())] += 1
    return [int(each) for each in counts]


def _nodes(shapes: list[_Shape], counts: list[int]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for number, (shape, count) in enumerate(zip(shapes, counts, strict=True)):
        labels = {POOL_LABEL: shape.pool} if shape.pool else {}
        taints = (Taint(POOL_TAINT, shape.pool, "NoSchedule"),) if shape.pool else ()
        nodes += [
            with_standard_labels(
                Node(
                    name=f"node-{number}-{i:04}",
                    cpu_milli=shape.cpu_milli,
                    memory_bytes=shape.memory_bytes,
                    pods=250,
                    gpu_count=shape.devices,
                    gpu_model=shape.model,
                    labels=labels,
                    taints=taints,
                )
            )
            for i in range(count)
        ]
    return tuple(nodes)


def _owners(
    random: np.random.Generator, values: _Values, shapes: list[_Shape], counts: list[int]
) -> tuple[_Owner, ...]:
    """Return templates whose pods each fit on some node; at least one requests a GPU."""
    count = round(math.exp(random.uniform(math.log(4), math.log(120))))
    sharing = float(random.choice([0.0, random.uniform(0.1, 0.5), random.uniform(0.5, 1.0)], p=[0.45, 0.3, 0.25]))
    without_gpu = 0.0 if random.random() < 0.25 else float(random.uniform(0.05, 0.6))
    sizes = _share_sizes(random, values)
    gpu_shapes = [i for i, shape in enumerate(shapes) if shape.devices]
    largest = max(shapes[i].devices for i in gpu_shapes)
    wholes = sorted({size for size in (1, 2, 4, largest) if size <= largest})
    whole_weights = random.dirichlet(np.full(len(wholes), 0.7))
    centre = np.exp(random.uniform(math.log(0.2), math.log(1.15), size=2))
    insisting = float(random.uniform(0, 0.6)) if random.random() < 0.5 else 0.0
    devices = np.array([shapes[i].devices * counts[i] for i in gpu_shapes], dtype=np.float64)
    owners = []
    for number in range(count):
        no_gpu = number > 0 and random.random() < without_gpu
        shape = shapes[gpu_shapes[int(random.choice(len(gpu_shapes), p=devices / devices.sum()))]]
        if no_gpu:
            # A pod without GPUs may go to any shape; by the largest one its requests are bounded.
            shape = max(shapes, key=lambda s: s.cpu_milli)
            requests = _cpu_pod(random, shape)
        elif random.random() < sharing:
            requests = _gpu_pod(random, shape, 1, int(random.choice(sizes)), centre)
        else:
            fitting = [size <= shape.devices for size in wholes]
            # The weights of the sizes that fit may all be nearly 0, by which is divided next.
            weights = np.where(fitting, whole_weights + 1e-9, 0.0)
            size = int(random.choice(wholes, p=weights / weights.sum()))
            requests = _gpu_pod(random, shape, size, GPU_MILLI, centre)
        constraints = _constraints(random, shape, insisting if not no_gpu else 0.0)
        owners.append(
            _Owner(
                name=f"owner-{number:03}",
                kind=str(random.choice(("Deployment", "StatefulSet", "Job"))),
                pod_class=PodClass(requests, constraints),
                weight=float(random.lognormal(0.0, 1.2)) / max(1, requests.gpu_count),
                seconds=float(np.exp(random.normal(math.log(3600), 1.5))),
            )
        )
    return tuple(owners)


def _share_sizes(random: np.random.Generator, values: _Values) -> npt.NDArray[np.int64]:
    count = int(random.integers(1, 7))
    if random.random() < 0.6:
        return random.permutation(values.shares)[:count].astype(np.int64)
    return random.integers(3, 96, size=count) * 10


def _gpu_pod(
    random: np.random.Generator, shape: _Shape, count: int, milli: int, centre: npt.NDArray[np.float64]
) -> Requests:
    """Return a pod that fits on an empty node of the shape; its CPU and memory are roughly proportional to its GPUs."""
    gpus = count * milli / GPU_MILLI
    cpu, memory = np.exp(random.normal(np.log(centre), 0.4)) * gpus
    devices = max(1, shape.devices)
    cpu_milli = min(max(100, round(cpu * (shape.cpu_milli / devices) / 500) * 500), shape.cpu_milli)
    gibibytes = max(1, round(memory * (shape.memory_bytes / devices) / GIB))
    return Requests(cpu_milli, min(gibibytes * GIB, shape.memory_bytes), gpu_count=count, gpu_milli=milli)


def _cpu_pod(random: np.random.Generator, shape: _Shape) -> Requests:
    cores = float(np.exp(random.uniform(math.log(0.25), math.log(16))))
    cpu_milli = min(max(250, round(cores * 4) * 250), shape.cpu_milli)
    memory = round(cores * float(random.choice((1, 2, 4, 8)))) * GIB
    return Requests(cpu_milli, min(max(memory, GIB), shape.memory_bytes))


def _constraints(random: np.random.Generator, shape: _Shape, insisting: float) -> Constraints:
    """Return constraints: a pod of a pool tolerates its taint and may select it; some pods need the model."""
    models = (shape.model,) if shape.model and random.random() < insisting else ()
    if not shape.pool:
        return Constraints(gpu_models=models)
    selector = ((POOL_LABEL, shape.pool),) if random.random() < 0.5 else ()
    toleration = Toleration(POOL_TAINT, "Equal", shape.pool, "NoSchedule")
    return Constraints(gpu_models=models, tolerations=(toleration,), node_selector=selector)


def _pods(random: np.random.Generator, owners: tuple[_Owner, ...], nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
    capacity = GPU_MILLI * sum(node.gpu_count for node in nodes)
    demand = np.array([owner.pod_class.requests.gpu_total_milli for owner in owners], dtype=np.float64)
    weights = np.array([owner.weight for owner in owners])
    weights /= weights.sum()
    target = float(random.uniform(0.6, 1.6)) * capacity
    count = min(MAX_PODS, max(len(owners), round(target / float(weights @ demand))))
    drawn = random.choice(len(owners), count, p=weights)
    drawn = _ordered(random, drawn, demand)
    seconds = np.array([owner.seconds for owner in owners])[drawn]
    duration = np.maximum(60.0, random.lognormal(np.log(seconds), 0.7))
    load = float(random.uniform(0.7, 1.2))
    # Where no drawn pod requests a GPU, what is requested on average.
    asked = float((demand[drawn] * duration).mean()) or float(weights @ demand) * float(duration.mean())
    rate = load * capacity / asked
    created = np.cumsum(random.exponential(1 / rate, count))
    numbers = [0] * len(owners)
    pods = []
    for i, start, length in zip(drawn.tolist(), created.tolist(), duration.tolist(), strict=True):
        owner = owners[i]
        numbers[i] += 1
        pods.append(
            Pod(
                name=f"{owner.name}-{numbers[i]:05}",
                pod_class=owner.pod_class,
                labels={"app": owner.name},
                owner=f"{owner.kind}/{owner.name}",
                creation_time=round(start, 3),
                deletion_time=round(start + length, 3),
            )
        )
    return tuple(pods)


def _ordered(
    random: np.random.Generator, drawn: npt.NDArray[np.int64], demand: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Return the pods in random order, largest first, smallest first, or owner by owner."""
    order = int(random.integers(4))
    if order == 0:
        return drawn
    if order == 3:
        ranks = random.permutation(len(demand))
        return drawn[np.argsort(ranks[drawn], kind="stable")]
    sign = 1 if order == 1 else -1
    return drawn[np.argsort(sign * demand[drawn], kind="stable")]
