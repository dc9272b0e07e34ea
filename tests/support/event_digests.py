"""Digests of runs: what another implementation did, event for event and number for number.

`tests/data/event_digests.json` is of the event loop and the environments in Python (compiled by Numba) that the core in
Rust replaced. To take what the present one does: `python -m tests.support.event_digests [NAME ...]`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.telemetry_digests import RUNS as TELEMETRY_RUNS

from steersman.envs.workload import InflationEnv, TimedEnv
from steersman.policies.base import Policy
from steersman.policies.features import CLUSTER, GPU, POD_KINDS, View
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.learned_weights import WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.protocols import Protocol
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

FILE = Path(__file__).parents[1] / "data" / "event_digests.json"
PODS, CLUSTERS = 100, 12
SUM = "fgd=500,best-fit=500"
POLICIES = ("fgd", "best-fit", SUM, "random", "kube-default")
ORDERS = (
    *("", "smallest", "largest", "fair", "shortest", "area@history", "wfp3", "unicef", "f1@history"),
    *("easy", "wfp3:easy", "wfp3:easy@history", "area:easy@history", "shortest:easy", "fcfs", "f1:none", "fair:easy"),
    *("age:any@ageing:10m", "smallest@ageing:20m", "wfp3:easy@ageing:1h"),
)
OPENB_ORDERS = ("area@history", "wfp3:easy", "fair", "age:any@ageing:1h")
Arrays = Iterator[npt.NDArray[np.generic]]


def random_workload(seed: int, *, runs: bool) -> Workload:
    """Return a small cluster and pods with times, priorities, gangs and controllers of few pods at a time.

    `runs`: some run from the start, and stay.
    """
    draws = RandomDraws(seed)
    workload = FileCluster(sequence(draws, PODS)).workload
    priorities, has_gangs, has_controllers = draws.choice((1, 1, 3)), draws.chance(40), draws.chance(30)
    pods, now = [], 0.0
    for i, pod in enumerate(workload.pods):
        now += draws.choice((0, 0, 1, 30, 300))
        gang, size = i // 5, draws.choice((2, 4, 5))
        is_member = has_gangs and gang % 3 == 0
        pods.append(
            replace(
                pod,
                priority=gang % priorities if is_member else draws.number(0, priorities - 1),
                creation_time=now,
                deletion_time=None if draws.chance(5) else now + draws.choice((1, 60, 600, 600, 9000)),
                gang=f"gang-{gang}" if is_member else "",
                gang_minimum=size if is_member and draws.chance(40) else 0,
                at_once=2 if has_controllers and i % 4 == 0 and not is_member else None,
                owner=f"Deployment/{draws.choice(('a', 'b', 'c'))}",
            )
        )
    if runs:
        return replace(workload, pods=tuple(pods))
    coming = tuple(pod for pod in pods if pod.name.startswith("p"))
    return Workload("cluster", workload.nodes, coming, services=workload.services)


def learned_policy(kind: str, seed: int) -> LinearPolicy:
    """Return a policy with random weights: of features alone, also of rules, or with a network."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(POD_KINDS, WEIGHTS))
    if kind == "rules":
        return LinearPolicy(kind, weights, rules=rng.normal(size=(POD_KINDS, len(HEURISTIC_IDS))) / 10)
    sizes = (WEIGHTS + len(GPU.pod), 6, 5, 1) if kind == "network" else ()
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(sizes)]
    return LinearPolicy(kind, weights, network=tuple(layers))


class MadeUpNetwork:
    """Network with arbitrary scores, which depend on every number that it observes."""

    def scores(self, nodes: Any, pod: Any, context: Any, mask: Any, groups: Any) -> npt.NDArray[np.float32]:
        total = nodes.sum(axis=1) + pod.sum() + context.sum() + mask + groups.sum(axis=1)
        return np.sin(1e3 * total + np.arange(len(nodes))).astype(np.float32)


def events_of(workload: Workload, protocol: Protocol, policy: Policy, seed: int, load: float | None) -> Arrays:
    """Yield the times, numbers and sums of all events of a run."""
    plan = schedule(workload, protocol, seed=seed, ratio=1.3, load=load, mean_duration=None)
    execution = Execution(Simulator(workload), plan, policy, seed, record=False)
    execution.finish(None)
    record = execution.record()
    yield from (record.time, record.numbers, record.sums)


def on_random_clusters(policies: Callable[[int], Policy], first: int, has_order: bool) -> Arrays:
    for seed in range(first, first + CLUSTERS):
        protocol: Protocol = "timed" if has_order or seed % 2 else "arrivals"
        yield from events_of(random_workload(seed, runs=protocol == "arrivals"), protocol, policies(seed), seed, None)


def ordered(order: str, seed: int) -> Policy:
    name = POLICIES[seed % len(POLICIES)]
    return resolve(f"{name}+{order}" if order else name)


def made_up(view: View, _: int) -> Policy:
    return NetworkPolicy("made-up", view, MadeUpNetwork())  # type: ignore[arg-type]


def steps_of(kind: type[InflationEnv | TimedEnv], view: str, objective: str) -> Arrays:
    """Yield what two episodes of an environment show and reward, with some illegal actions."""
    small, draws = embedded("default-small"), np.random.default_rng(3)
    workload = replace(small, pods=tuple(replace(pod, owner=f"Job/{i % 9}") for i, pod in enumerate(small.pods)))
    env = kind(workload=workload, objective=objective, view=view, servers_per_rack=4, penalty=0.5)
    for episode in range(2):
        observation, _ = env.reset(seed=episode)
        is_over = False
        while not is_over:
            yield from observation.values()
            legal = np.flatnonzero(observation["mask"])
            action = draws.choice(legal) if draws.random() < 0.95 else draws.integers(len(workload.nodes))
            observation, reward, terminated, truncated, _ = env.step(action)
            yield np.array([reward, terminated, truncated])
            is_over = terminated or truncated
        yield from observation.values()


RUNS: dict[str, Callable[[], Arrays]] = {
    **{
        f"random, {order}": partial(on_random_clusters, partial(ordered, order), 2_000, bool(order)) for order in ORDERS
    },
    **{
        f"learned, {kind}": partial(on_random_clusters, partial(learned_policy, kind), 3_000, False)
        for kind in ("features", "rules", "network")
    },
    **{
        f"view {view.name}": partial(on_random_clusters, partial(made_up, view), 4_000, False)
        for view in (CLUSTER, GPU)
    },
    **{
        f"openb, {order}": lambda order=order: events_of(embedded("default"), "timed", resolve(f"fgd+{order}"), 42, 1.1)
        for order in OPENB_ORDERS
    },
    **{
        f"openb, {name}": lambda name=name: events_of(embedded("default"), "inflation", resolve(name), 42, None)
        for name in ("fgd", "random", "kube-default", "greedy-forecast")
    },
    "episodes, allocation": partial(steps_of, InflationEnv, "cluster", "allocation"),
    "episodes, fragmentation": partial(steps_of, InflationEnv, "gpu", "fragmentation=2,balance=0.5"),
    "episodes, waiting": partial(steps_of, TimedEnv, "cluster", "waiting-time"),
    "episodes, locality": partial(steps_of, TimedEnv, "cluster", "locality=2,most-allocated=1"),
    "episodes, least-allocated": partial(steps_of, TimedEnv, "gpu", "least-allocated"),
    **TELEMETRY_RUNS,
}


def digest(name: str) -> str:
    """Return the digest of all numbers of a run."""
    result = sha256()
    for array in RUNS[name]():
        # -0.0 and 0.0 are equal.
        result.update(np.ascontiguousarray(array + 0).tobytes())
    return result.hexdigest()


if __name__ == "__main__":
    known = json.loads(FILE.read_text())
    FILE.write_text(json.dumps(known | {name: digest(name) for name in sys.argv[1:] or RUNS}, indent=2) + "\n")
