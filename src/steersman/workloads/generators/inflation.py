"""Workload inflation: the order of pods and nodes of the published openb experiments, with Go's random numbers.

Pods of the trace are shuffled, then drawn again with replacement until their GPU demand reaches `ratio` times the
cluster's capacity; nodes get a random rank that breaks ties. Times in the trace are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.errors import SteersmanError
from steersman.workloads.generators.go_random import GoRand
from steersman.workloads.workload import Workload

MAX_DRAWS = 20_000_000  # about 20 seconds, and what fits in memory
DISCARDED_DRAWS = 10  # what the published program draws between tuning and the permutation of nodes


@dataclass(frozen=True, slots=True)
class Inflation:
    """One experiment.

    Attributes:
        pods: [E] index into `workload.pods` of each arrival, in order; a pod may arrive several times. Pods that run
            from the start come first.
        nodes: [N] index into `workload.nodes`, in order of rank: among equal scores the first one wins.
    """

    pods: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]


def inflate(workload: Workload, *, ratio: float, seed: int, shuffle: bool = True) -> Inflation:
    """Make the experiment of `seed`, at `ratio` times the GPU capacity of the nodes.

    `shuffle` False keeps the order of `workload.pods` (simon's `shufflePod: false`) and appends the draws. Pods that
    run from the start count towards the ratio; those that belong to their node are not drawn.

    Raises:
        SteersmanError: the workload's nodes or pods have no GPU, so no GPU demand can be reached.
    """
    capacity, demand = workload.gpu_capacity, list(workload.gpu_demand)
    standing, drawable = workload.standing(), workload.drawable()
    if not capacity or not any(demand[i] for i in drawable):
        who = "pods" if capacity else "counted nodes" if workload.account.left_out else "nodes"
        raise SteersmanError(
            f"{workload.name}: its {who} have no GPU, so it cannot be inflated to a share of GPU capacity; "
            "use --protocol arrivals or timed"
        )
    # Order and draws of the published program (pkg/simulator: SortClusterPods, tuneUpPods), for the same pods by seed.
    by_name = sorted(drawable, key=lambda i: workload.pods[i].name)
    there = set(standing)
    random = GoRand(seed)
    # It draws this number for its log, right after seeding.
    random.int63()
    order = [i for i in (by_name if shuffle else drawable) if i not in there]
    if shuffle:
        random.shuffle(order)
    running = sum(workload.recorded_demand[i] for i in standing)
    target = ratio * capacity - running
    _check_reachable(workload, [demand[i] for i in drawable], target - sum(demand[i] for i in order))
    requests = [pod.requests for pod in workload.pods]
    device_milli = [min(r.gpu_milli, whole) or whole for r, whole in zip(requests, demand, strict=True)]
    _tune(order, by_name, demand, device_milli, target, random)
    if not order:
        whole, wanted = capacity / GPU_MILLI, ratio * capacity / GPU_MILLI
        raise SteersmanError(
            f"{workload.name}: no pod arrives at ratio {ratio:g}, a demand of {wanted:g} of {whole:g} GPUs: "
            f"pods that run already request {running / GPU_MILLI:g}, and the smallest other pod "
            f"{min(demand[i] for i in drawable) / GPU_MILLI:g}; expected a larger --ratio"
        )
    for _ in range(DISCARDED_DRAWS):
        random.int63()
    nodes = sorted(np.flatnonzero(workload.eligible).tolist(), key=lambda i: workload.nodes[i].name)
    rank = random.perm(len(nodes))
    ranked = np.empty(len(nodes), dtype=np.int64)
    ranked[rank] = nodes
    ranked = np.concatenate([ranked, np.flatnonzero(~workload.eligible)])
    return Inflation(np.array([*standing, *order], dtype=np.int64), ranked)


def _check_reachable(workload: Workload, demand: list[int], missing: float) -> None:
    draws = missing / (sum(demand) / len(demand))
    if draws > MAX_DRAWS:
        raise SteersmanError(
            f"{workload.name}: its pods request so little GPU that about {draws:.0f} would have to be drawn; "
            "use --protocol arrivals, or a smaller --ratio"
        )


def _tune(
    order: list[int], by_name: list[int], demand: list[int], device_milli: list[int], target: float, random: GoRand
) -> None:
    total = sum(demand[i] for i in order)
    if total > target:
        while total > target and order:
            total -= demand[order.pop(random.intn(len(order)))]
        return
    while True:
        pod = by_name[random.intn(len(by_name))]
        # The published program compares with the milli of one device, not of all; kept for comparable results.
        if total + device_milli[pod] > target:
            return
        order.append(pod)
        total += demand[pod]
