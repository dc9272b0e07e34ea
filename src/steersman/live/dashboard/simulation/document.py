"""Simulated runs as a document of columns, from which the page computes the cluster after any event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.live.dashboard.columns import NodeColumns, PolicyLook, node_columns, policy_looks
from steersman.simulation.result import Curve, Placements, Protocol, RunResult
from steersman.workloads.profile import TypicalPod, typical_pods
from steersman.workloads.warnings import gpu_warnings
from steersman.workloads.workload import Workload

OUTCOMES = ("bound", "failed", "waiting", "finished", "evicted")  # of events; the document holds their positions
NOWHERE = -1  # node of an event without one

RecordedProtocol = Protocol | Literal["recorded"]  # how pods arrived; those of a recording, on a live cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a replay needs of a run, see `RunResult`."""

    policy: str
    protocol: RecordedProtocol
    seed: int
    placements: Placements | None
    timeline: Curve | None


class PodColumns(msgspec.Struct, kw_only=True, rename="camel"):
    """Pods in the workload's order, [P] each: name, milli-CPU, MiB of memory, number of GPUs, milli of each.

    `counted` are the GPUs that it holds where it has no devices.
    """

    name: list[str]
    cpu: list[int]
    memory: list[int]
    gpus: list[int]
    milli: list[int]
    counted: list[float]


class RunColumns(msgspec.Struct, kw_only=True, rename="camel"):
    """A policy's run, E events."""

    policy: str  # its name
    look: PolicyLook
    time: list[float]  # [E] seconds, or the number of the arrival
    pod: list[int]  # [E] index of the pod
    node: list[int]  # [E] index of the node, `NOWHERE` where there is none
    devices: list[str]  # [E] indices of GPUs joined by "-"
    outcome: list[int]  # [E] position in `OUTCOMES`
    reason: list[int]  # [E] position in `reasons`
    reasons: list[str]  # different reasons why a pod was not bound; the first is ""
    # `gpu`, `cpu`: [E] allocated share of the cluster in percent; None where it has none.
    gpu: list[float | None]
    cpu: list[float | None]
    fragmentation: list[float | None]  # [E] fragmented GPU in percent of all GPUs


class Replay(msgspec.Struct, kw_only=True, rename="camel"):
    """One or two runs on the same arrivals."""

    workload: str  # its name
    protocol: str  # `inflation`, `arrivals` or `timed`; `recorded` of a recording
    seed: int  # seed of the arrivals
    # `nodes`, `pods`, `profile`: what runs are about.
    nodes: NodeColumns
    pods: PodColumns
    profile: Sequence[TypicalPod]
    runs: list[RunColumns]  # by policy, in the order in which they were asked for
    warnings: list[str] = []  # of the workload, one line each
    sources: list[int] = []  # their positions in the list of all runs
    versions: list[str] = []  # texts that change when a run does


def replay_of(
    workload: Workload, results: Sequence[RunResult | RecordedRun], profile: Sequence[TypicalPod] | None = None
) -> Replay:
    """Return the document of runs with recorded placements on one workload."""
    nodes, pods = workload.nodes, workload.pods
    names = pod_names(workload)
    first, looks = results[0], policy_looks(list(dict.fromkeys(result.policy for result in results)))
    demand = [pods[i] for i in workload.demand()]
    own = (line.removeprefix(f"{workload.name}: ") for line in workload.warnings)
    return Replay(
        workload=workload.name,
        protocol=first.protocol,
        seed=first.seed,
        nodes=node_columns(nodes),
        pods=PodColumns(
            name=names,
            cpu=[pod.requests.cpu_milli for pod in pods],
            memory=[pod.requests.memory_bytes >> 20 for pod in pods],
            gpus=[pod.requests.gpu_count for pod in pods],
            milli=[pod.requests.gpu_milli for pod in pods],
            counted=[round(milli / GPU_MILLI, 3) for milli in workload.gpu_demand],
        ),
        profile=typical_pods(demand) if profile is None else profile,
        warnings=list(dict.fromkeys((*own, *gpu_warnings(nodes, pods)))),
        runs=[
            _run(result, looks[result.policy], _positions(names), _positions([node.name for node in nodes]))
            for result in results
        ],
    )


def pod_names(workload: Workload) -> list[str]:
    """Return the names of the pods as `placements.csv` has them."""
    plain = all(pod.namespace == "default" for pod in workload.pods)
    return [pod.name if plain else f"{pod.namespace}/{pod.name}" for pod in workload.pods]


def _run(result: RunResult | RecordedRun, look: PolicyLook, pods: dict[str, int], nodes: dict[str, int]) -> RunColumns:
    placements, timeline = result.placements, result.timeline
    assert isinstance(placements, Placements)
    assert isinstance(timeline, Curve)
    reasons = _positions(["", *placements.reason])
    return RunColumns(
        policy=result.policy,
        look=look,
        time=[float(value) for value in placements.time],
        pod=[pods[name] for name in placements.pod],
        node=[nodes[name] if name else NOWHERE for name in placements.node],
        devices=placements.devices,
        outcome=[OUTCOMES.index(outcome) for outcome in placements.outcome],
        reason=[reasons[reason] for reason in placements.reason],
        reasons=list(reasons),
        gpu=_percent(timeline.gpu_allocation_percent),
        cpu=_percent(timeline.cpu_allocation_percent),
        fragmentation=_percent(timeline.gpu_fragmented_percent),
    )


def _positions(values: Sequence[T]) -> dict[T, int]:
    """Return the position of each different value, in the order in which they first occur."""
    return {value: i for i, value in enumerate(dict.fromkeys(values))}


def _percent(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else round(float(value), 3) for value in values]
