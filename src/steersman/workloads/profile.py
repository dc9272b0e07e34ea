"""The profile: typical pods of a workload and their frequencies. It is all that a policy may know of future pods."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import ANY_GPU, GPU_MILLI, GpuType, Node, Pod, PodClass, Requests, is_offered
from steersman.workloads.workload import Workload

POPULARITY_PERCENT = 95
EMPTY_CPU_MILLI = 100  # milli-CPU of a typical pod that requests none
MOST_KINDS = 256  # the cost of planning, and of FGD's decisions, is proportional to them; openb has up to 113
ROUNDINGS = ((1.05, 5), (1.1, 10), (1.25, 25), (1.6, 50), (2.5, 100))
"""How kinds are merged until there are few enough: ratio of CPU, and step of GPU milli."""


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A kind of pod in the profile and its share (shares sum to 1).

    `gpu_resource` is as in `Requests`; `memory_bytes` is the mean of its pods and does not distinguish kinds.
    """

    cpu_milli: int
    gpu_milli: int
    gpu_count: int
    gpu_models: tuple[str, ...]
    share: float
    gpu_resource: str = ""
    memory_bytes: int = field(default=0, compare=False)

    def accepts(self, devices: GpuType) -> bool:
        known = not self.gpu_models or devices.model in self.gpu_models
        return known and is_offered(self.gpu_resource, devices.resources)


class ProfileArrays(NamedTuple):
    """The profile as arrays, T typical pods and M GPU types."""

    cpu: npt.NDArray[np.int64]  # [T] milli-CPU
    gpu_count: npt.NDArray[np.int64]  # [T] devices
    milli: npt.NDArray[np.int64]  # [V] the distinct milli per device that typical pods request
    value: npt.NDArray[np.int64]  # [T] index into `milli` of the pod's request (0 if it requests no GPU)
    accepts: npt.NDArray[np.bool_]  # [T, M + 1] whether the pod may use devices of type m; the last column is `ANY_GPU`
    share: npt.NDArray[np.float64]  # [T] share of the profile


Kind = tuple[int, int, int, str, str]  # (mCPU, GPU milli, devices, models, resource name of the GPUs)


def typical_pods(
    pods: Iterable[Pod | PodClass], *, popularity_percent: float = POPULARITY_PERCENT, cpu_pods: bool = True
) -> tuple[TypicalPod, ...]:
    """Return the most frequent kinds of pods that together reach `popularity_percent` of all.

    Kinds are (mCPU, GPU milli, devices, models, resource name of the GPUs), the most frequent first, ties by the larger
    kind (the order in which the FGD artifact sums, which decides the last bits of a fragmentation). More than
    `MOST_KINDS` of them are merged with others of similar requests.
    """
    counts: Counter[Kind] = Counter()
    models: dict[str, tuple[str, ...]] = {}
    memory: Counter[Kind] = Counter()
    for pod in pods:
        r = pod.requests
        if r.gpu_count or cpu_pods:
            spec = "|".join(pod.constraints.gpu_models)
            models[spec] = pod.constraints.gpu_models
            kind = r.cpu_milli or EMPTY_CPU_MILLI, r.gpu_milli, r.gpu_count, spec, r.gpu_resource
            counts[kind] += 1
            memory[kind] += r.memory_bytes
    chosen = _frequent(counts, popularity_percent)
    for cpu_ratio, milli_step in ROUNDINGS:
        if len(chosen) <= MOST_KINDS:
            break
        counts, memory = _merged(counts, memory, cpu_ratio, milli_step)
        chosen = _frequent(counts, popularity_percent)
    total, reached = sum(counts.values()), sum(number for _, number in chosen)
    # Dividing twice, as the artifact does, decides the last bits: count / reached would differ.
    scale = reached / total if total else 1.0
    return tuple(
        TypicalPod(cpu, milli, count, models[spec], number / total / scale, resource, memory[kind] // number)
        for kind, number in chosen
        for cpu, milli, count, spec, resource in (kind,)
    )


def _frequent(counts: Counter[Kind], popularity_percent: float) -> list[tuple[Kind, int]]:
    ranked = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    total, reached, chosen = sum(counts.values()), 0, 0
    while chosen < len(ranked) and reached * 100 < popularity_percent * total:
        reached += ranked[chosen][1]
        chosen += 1
    return ranked[:chosen]


def _merged(
    counts: Counter[Kind], memory: Counter[Kind], cpu_ratio: float, milli_step: int
) -> tuple[Counter[Kind], Counter[Kind]]:
    """Merge kinds with similar requests: the mean of their CPU, and the next multiple of `milli_step`."""
    groups: dict[Kind, list[Kind]] = defaultdict(list)
    for kind in counts:
        cpu, milli, count, spec, resource = kind
        shared = min(GPU_MILLI, milli_step * math.ceil(milli / milli_step))
        groups[geometric_class(cpu, cpu_ratio), shared, count, spec, resource].append(kind)
    merged_counts: Counter[Kind] = Counter()
    merged_memory: Counter[Kind] = Counter()
    for (_, milli, count, spec, resource), kinds in groups.items():
        number = sum(counts[kind] for kind in kinds)
        mean = sum(counts[kind] * kind[0] for kind in kinds) // number
        merged_counts[mean, milli, count, spec, resource] += number
        merged_memory[mean, milli, count, spec, resource] += sum(memory[kind] for kind in kinds)
    return merged_counts, merged_memory


def geometric_class(value: int, ratio: float) -> int:
    """Return the class of a request, so that values of a class differ by less than `ratio`; -1 for none."""
    return math.floor(math.log(value, ratio)) if value > 0 else -1


def accepted_types(profile: tuple[TypicalPod, ...], gpu_types: Sequence[GpuType]) -> npt.NDArray[np.bool_]:
    """Return [T, M + 1] `ProfileArrays.accepts`."""
    accepts = np.zeros((len(profile), len(gpu_types) + 1), dtype=np.bool_)
    for i, pod in enumerate(profile):
        accepts[i] = [pod.accepts(devices) for devices in (*gpu_types, ANY_GPU)]
    return accepts


def profile_arrays(profile: tuple[TypicalPod, ...], gpu_types: Sequence[GpuType]) -> ProfileArrays:
    """Return the profile as arrays, for a cluster whose node arrays number GPU types as in `gpu_types`."""
    milli = sorted({pod.gpu_milli for pod in profile if pod.gpu_count})
    return ProfileArrays(
        cpu=np.array([pod.cpu_milli for pod in profile], dtype=np.int64),
        milli=np.array(milli, dtype=np.int64),
        value=np.array([milli.index(pod.gpu_milli) if pod.gpu_count else 0 for pod in profile], dtype=np.int64),
        gpu_count=np.array([pod.gpu_count for pod in profile], dtype=np.int64),
        accepts=accepted_types(profile, gpu_types),
        share=np.array([pod.share for pod in profile], dtype=np.float64),
    )


Shape = tuple[int, int, int, str]  # milli-CPU, MiB of memory, GPUs and their model
GpuRequest = tuple[int, int]  # devices, and milli of each; (0, 0) for pods without a GPU

MEBIBYTE = 1 << 20


def node_shapes(nodes: Iterable[Node]) -> Counter[Shape]:
    """Count nodes by shape, regardless of names and labels."""
    return Counter((node.cpu_milli, node.memory_bytes // MEBIBYTE, node.gpu_count, node.gpu_model) for node in nodes)


def shapes_digest(shapes: Mapping[Shape, int]) -> str:
    """Return 16 hexadecimal digits that are equal for clusters with as many nodes of each shape."""
    return hashlib.sha256(repr(sorted(shapes.items())).encode()).hexdigest()[:16]


def profile_distance(one: Mapping[GpuRequest, float], other: Mapping[GpuRequest, float]) -> float:
    """Return the total variation distance between two profiles, 0 to 1: the share of pods that would have to change."""
    return 0.5 * sum(abs(one.get(kind, 0.0) - other.get(kind, 0.0)) for kind in one.keys() | other.keys())


# Workloads with so many classes of pods that simulating them is slow, with similar requests made equal. A simulation is
# fast because pods with equal requests and constraints share what is known of a node. Where thousands of pods have
# requests of their own (a vertical autoscaler does that), every decision evaluates every node again. Short simulations
# that only have to rank policies (`simulation.selection.choice`) run on a coarse workload then; published measures
# always come from the workload itself.

MOST_CLASSES = 512
CLASS_ROUNDINGS = ((1.1, 5), (1.3, 10), (1.7, 25), (2.5, 50), (4.0, 100))
"""Steps of rounding, tried in order until there are few enough classes: ratio of CPU and memory, GPU milli step."""


def coarse(workload: Workload) -> Workload:
    """Return the workload with at most about `MOST_CLASSES` classes of pods, or the workload itself if it has no more.

    Running pods and pods tied to one node stay as they are, and so do constraints: pods that differ in them cannot be
    made equal.
    """
    fixed = set(workload.standing())
    free = [i for i, pod in enumerate(workload.pods) if i not in fixed and not pod.constraints.node_name]
    classes = [workload.pods[i].pod_class for i in free]
    if len(set(classes)) <= MOST_CLASSES:
        return workload
    for ratio, step in CLASS_ROUNDINGS:
        merged = _merged_classes(classes, ratio, step)
        if len(set(merged)) <= MOST_CLASSES:
            break
    pods = list(workload.pods)
    for i, pod_class in zip(free, merged, strict=True):
        pods[i] = replace(pods[i], pod_class=pod_class)
    return replace(workload, pods=tuple(pods))


def _merged_classes(classes: Sequence[PodClass], ratio: float, step: int) -> list[PodClass]:
    """Return each class with the mean CPU and memory of similar ones, so that it fits where the largest of them do."""
    groups: dict[PodClass, list[int]] = defaultdict(list)
    for i, pod_class in enumerate(classes):
        r = pod_class.requests
        rounded = replace(
            r,
            # The number of the class stands for the request: this is a key, and no pod requests it.
            cpu_milli=geometric_class(r.cpu_milli, ratio),
            memory_bytes=geometric_class(r.memory_bytes, ratio),
            ephemeral_bytes=geometric_class(r.ephemeral_bytes, ratio),
            # Up, so that merged pods are not placed where the larger of them would not fit.
            gpu_milli=min(GPU_MILLI, step * math.ceil(r.gpu_milli / step)),
            cpu_nonzero_milli=0,
            memory_nonzero_bytes=0,
        )
        groups[replace(pod_class, requests=rounded)].append(i)
    merged = list(classes)
    for key, members in groups.items():
        requests = _mean([classes[i].requests for i in members], key.requests)
        for i in members:
            merged[i] = replace(key, requests=requests)
    return merged


def _mean(requests: Sequence[Requests], like: Requests) -> Requests:
    def mean(values: Iterable[int]) -> int:
        return sum(values) // len(requests)

    return replace(
        like,
        cpu_milli=mean(r.cpu_milli for r in requests),
        memory_bytes=mean(r.memory_bytes for r in requests),
        ephemeral_bytes=mean(r.ephemeral_bytes for r in requests),
        cpu_nonzero_milli=mean(r.cpu_nonzero_milli for r in requests),
        memory_nonzero_bytes=mean(r.memory_nonzero_bytes for r in requests),
    )
