"""How well predictions of waits are calibrated, on simulated histories that are stopped at random moments.

Arrivals are generated, or those of the Philly trace, in whose order of time the moments are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from studies.queues.traces import trace_file
from tests.support.frozen import Outcome, ranks, recorded_history, simulated_history

from steersman.cluster.model import Node, Pod
from steersman.core.processes import default_jobs
from steersman.policies.registry import in_order, resolve
from steersman.simulation.prediction.prediction import predict_wait
from steersman.workloads.formats.openb import embedded
from steersman.workloads.formats.published import PhillyTrace
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Workload

SEEDS = range(1, 13)
LOADS = (1.0, 1.05, 1.1)
MOMENTS, PODS, ROLLOUTS = 2, 8, 40
"""Of each history. With 40 rollouts the interval from P10 to P90 holds 80 % of exact predictions: 33 of 41."""
CLUSTERS = range(1, 13)
REPEATS = 5
TRACE, TRACE_NODES, TRACE_GPUS = "philly_first.csv", 12, 8
TRACE_BEGIN = 20 * 86_400.0
"""Seconds of the trace before which only jobs are in it that ran for weeks."""
TRACE_LOADS, TRACE_MOMENTS = (0.9, 1.0, 1.1), 12
TRACE_ORDERS = ("age", "wfp3:easy")
VIRTUAL_CLUSTERS = {
    "first": ("6214e9", "11cb48", "ee9e8c", "ed69ec", "103959", "e13805"),
    "second": ("b436b2", "6c71a0", "0e4a51", "7f04ca", "2869ce"),
}
"""Two groups of virtual clusters. Settings of the prediction were chosen with both in view: neither is held out."""


def wait_calibration() -> dict[str, float]:
    """Measure which share of pods starts between P10 and P90, before and after: on openb, and on small clusters."""
    openb = [(embedded("default"), load, seed) for load in LOADS for seed in SEEDS]
    small = [(random_cluster(seed), load, seed) for load in LOADS for seed in CLUSTERS]
    return _shares("openb", openb) | _shares("generated", small)


def wait_calibration_trace() -> dict[str, float]:
    """Measure the same on arrivals of the Philly trace: by order, and for pods of one GPU and of several."""
    found: dict[str, float] = {}
    for name, clusters in VIRTUAL_CLUSTERS.items():
        for order in TRACE_ORDERS:
            policy = in_order(resolve("fgd"), order)
            outcomes = [
                outcome
                for load in TRACE_LOADS
                for outcome in ranks(
                    recorded_history(_trace(clusters, load), policy), policy, TRACE_MOMENTS, PODS, ROLLOUTS
                )
            ]
            kind = f"{name}_{order}"
            found |= _figures(kind, outcomes)
            found |= _figures(f"{kind}_one_gpu", [each for each in outcomes if not each.several_gpus])
            found |= _figures(f"{kind}_several_gpus", [each for each in outcomes if each.several_gpus])
    return found


def _trace(clusters: Sequence[str], load: float) -> Workload:
    """Return jobs of virtual clusters that fit on a node, thinned at random to a load."""
    nodes = tuple(
        Node(f"node-{i:02}", 1, 1, gpu_count=TRACE_GPUS, gpu_resources=("nvidia.com/gpu",)) for i in range(TRACE_NODES)
    )
    pods = [
        pod
        for pod in PhillyTrace().open([trace_file(TRACE)]).pods(nodes)[0]
        if pod.namespace in clusters and not pod.gang and _arrival(pod) >= TRACE_BEGIN
    ]
    end = max(map(_arrival, pods))
    order = np.random.default_rng(1).permutation(len(pods))
    work = [
        pods[i].requests.gpu_count * (min(pods[i].deletion_time or end, end) - _arrival(pods[i]))
        for i in order.tolist()
    ]
    few = np.cumsum(work) <= load * TRACE_NODES * TRACE_GPUS * (end - TRACE_BEGIN)
    return Workload("philly", nodes, tuple(_from_begin(pods[i]) for i in np.sort(order[few]).tolist()))


def _arrival(pod: Pod) -> float:
    return pod.creation_time or 0.0


def _from_begin(pod: Pod) -> Pod:
    end = None if pod.deletion_time is None else pod.deletion_time - TRACE_BEGIN
    return replace(pod, creation_time=_arrival(pod) - TRACE_BEGIN, deletion_time=end)


def wait_speed() -> dict[str, float]:
    """Measure predictions on openb's 1,213 nodes, with changes that are tried: of pods that start, and of one late one.

    Seconds of the processor, and by the clock on the cores that there are.
    """
    policy = resolve("fgd")
    history = simulated_history(embedded("default"), policy, 1.05, 1)
    moment, starts = history.moment(float(history.plan.time[-1]) / 2.0)
    pods = moment.workload.pods
    # Running pods come first, then those that wait, the oldest first.
    waiting = pods[len(pods) - len(starts) :]
    predict_wait(moment, [waiting[0]], policy, rollouts=1)  # compiles
    found = {"pods": float(len(pods)), "cores": float(default_jobs())}
    for name, asked in (("late", waiting[:1] * REPEATS), ("soon", waiting[-REPEATS:])):
        spent = []
        for seed, pod in enumerate(asked):
            processor, clock = time.process_time(), time.perf_counter()
            predict_wait(moment, [pod], policy, seed=seed)
            spent.append((time.process_time() - processor, time.perf_counter() - clock))
        found[f"{name}_processor_seconds"], found[f"{name}_seconds"] = np.median(spent, axis=0).round(2).tolist()
    return found


def _shares(name: str, histories: Sequence[tuple[Workload, float, int]]) -> dict[str, float]:
    policy = resolve("fgd")
    found = [
        outside
        for workload, load, seed in histories
        for outside in ranks(simulated_history(workload, policy, load, seed), policy, MOMENTS, PODS, ROLLOUTS)
    ]
    return _figures(name, found)


def _figures(name: str, outcomes: Sequence[Outcome]) -> dict[str, float]:
    before, after, _ = np.array(outcomes, dtype=np.float64).reshape(-1, 3).mean(axis=0)
    shares = {"inside": 1.0 - before - after, "before": before, "after": after}
    figures = {f"{name}_{k}": round(float(v), 3) for k, v in shares.items()}
    return {f"{name}_predictions": float(len(outcomes))} | figures
