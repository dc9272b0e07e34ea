"""Choose the protocols of a comparison by the available data, and state the assumptions about missing durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from steersman.cluster.model import Pod
from steersman.simulation.arrivals import DEFAULT_DURATION
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

NO_GPUS = "inflation is left out: it counts GPUs, and {}'s {} no GPU"


class ProtocolChoice(NamedTuple):
    """The protocols that suit some workloads, at least one, and the reason."""

    protocols: tuple[Protocol, ...]
    reason: str


def choose_protocols(workloads: Sequence[Workload], *, mean_duration: float | None = None) -> ProtocolChoice:
    """Return the protocols that all workloads have the data for.

    Pods that come and go at known times are replayed (`timed`); pods without times arrive in their order (`arrivals`).
    `inflation` fills the cluster by either, if it has GPUs and pods request some.

    Args:
        workloads: of one comparison, at least one.
        mean_duration: seconds, if durations that are not in the data are drawn; creation times are enough then.
    """
    untimed = next((each.name for each in workloads if not is_timed(each, mean_duration)), None)
    missing = next(filter(None, map(_lack_of_gpus, workloads)), "")
    inflation: tuple[Protocol, ...] = () if missing else ("inflation",)
    if any(each.from_now for each in workloads):
        protocols: tuple[Protocol, ...] = (*inflation, "arrivals")
        reason = "the remaining time of running pods is unknown, so timed is left out"
    elif untimed is None:
        protocols = ("timed", *inflation)
        reason = "pods have creation times and durations"
    else:
        protocols = (*inflation, "arrivals")
        lack = "creation times" if mean_duration is not None else "creation times and durations"
        reason = f"the pods of {untimed} have no {lack}, so timed is left out"
    return ProtocolChoice(protocols, f"{reason}; {missing}" if missing else reason)


def is_timed(workload: Workload, mean_duration: float | None = None) -> bool:
    """Return whether all pods have creation times, and some have ends or missing durations are drawn.

    Pods that run from the start need none.
    """
    pods = _coming(workload)
    ends = mean_duration is not None or any(pod.deletion_time is not None for pod in pods)
    return ends and all(pod.creation_time is not None for pod in pods)


def duration_warnings(workload: Workload, load: float | None, mean_duration: float | None) -> tuple[str, ...]:
    """Return what the protocol `timed` assumes of pods whose durations are not in the data, if it is not stated.

    Args:
        load: of generated arrivals, None: the times of the trace.
        mean_duration: seconds, None: not given.
    """
    pods = _coming(workload)
    missing = sum(pod.deletion_time is None for pod in pods)
    if mean_duration is not None or not missing:
        return ()
    many = f"durations of {missing:,} of {len(pods):,} pods are not in the data"
    if load is None:
        return (f"{workload.name}: {many}: they run to the end; --mean-duration draws exponential ones",)
    hours = DEFAULT_DURATION / 3600
    return (f"{workload.name}: {many}: exponential with mean {hours:g} h assumed; --mean-duration sets it",)


def _coming(workload: Workload) -> list[Pod]:
    standing = set(workload.standing())
    return [pod for i, pod in enumerate(workload.pods) if i not in standing]


def _lack_of_gpus(workload: Workload) -> str:
    if not workload.gpu_capacity:
        return NO_GPUS.format(workload.name, "nodes have")
    if not any(workload.gpu_demand[i] for i in workload.demand()):
        return NO_GPUS.format(workload.name, "pods ask for")
    return ""
