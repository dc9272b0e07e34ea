"""What the environments Deployments and Latency, and decisions by metrics of nodes, did before the core computed them.

See `tests.support.event_digests`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.support.servers.fake_prometheus import Told

from steersman.cluster.model import LatencyLimits, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.envs.base import EnvCore
from steersman.envs.deployments import MIXED_SHAPES, DeploymentsEnv, DeploymentsVectorEnv
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.envs.latency import LatencyCore, LatencyEnv, LatencyVectorEnv, LiveModel
from steersman.objectives.registry import resolve as resolve_objective
from steersman.policies.base import Candidates
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.live_observations import TelemetryObservations
from steersman.policies.node_metrics import METRIC_RULES, NodeMetricsView
from steersman.prometheus.configuration import FEATURES
from steersman.workloads.generators.deployments import DeploymentSettings
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.topology import ZONE

Arrays = Iterator[npt.NDArray[np.generic]]
LEGAL = 0.95  # share of actions that are drawn from those of the mask


def _numbers(infos: dict[str, Any]) -> Arrays:
    for name in sorted(infos):
        if name not in ("final_obs", "final_info"):
            yield np.asarray(infos[name], dtype=np.float64)
    for final in infos.get("final_obs", ()):
        if final is not None:
            yield from final.values()
    if "final_info" in infos:
        yield from _numbers(infos["final_info"])


def _shown(core: EnvCore, rules: tuple[str, ...]) -> Arrays:
    """Yield what rules would do, and what is known of nodes."""
    yield from (core.rule_actions(rule) for rule in rules)
    for e in range(core.count):
        loads = core.loads(e)
        yield loads
        if isinstance(core, LatencyCore):
            truth = core.truth(e)
            yield truth.pods
            yield np.array([truth.time, *truth.latency])


def _actions(mask: npt.NDArray[np.int8], draws: np.random.Generator) -> npt.NDArray[np.int64]:
    legal = [np.flatnonzero(row) if draws.random() < LEGAL else np.arange(len(row)) for row in mask]
    return np.array([draws.choice(row) if len(row) else 0 for row in legal], dtype=np.int64)


def single(kind: Callable[..., SchedulingEnv], rules: tuple[str, ...], options: dict[str, Any]) -> Arrays:
    """Yield what three episodes show and reward, one of them by its options."""
    env, draws = kind(**options), np.random.default_rng(3)
    for episode in range(3):
        observation, _ = env.reset(seed=episode, options={"seed": 77, "nodes": 3} if episode == 1 else {})
        is_over = False
        while not is_over:
            yield from observation.values()
            yield from _shown(env.core, rules)
            action = _actions(observation["mask"][None], draws)[0]
            observation, reward, terminated, truncated, infos = env.step(action)
            yield np.array([reward, terminated, truncated])
            yield from _numbers(infos)
            is_over = terminated or truncated
        yield from observation.values()


def vector(kind: Callable[..., SteersmanVectorEnv], rules: tuple[str, ...], steps: int, options: Any) -> Arrays:
    """Yield what steps of several environments show and reward."""
    env, draws = kind(5, **options), np.random.default_rng(4)
    observations, _ = env.reset(seed=11)
    for step in range(steps):
        yield from observations.values()
        if step % 7 == 0:
            yield from _shown(env.core, rules)
        rule = rules[step % len(rules)]
        actions = env.heuristic(rule) if step % 3 else _actions(observations["mask"], draws)
        observations, *results, infos = env.step(np.maximum(actions, 0))
        yield from results
        yield from _numbers(infos)


def live_model(settings: LatencySettings, seed: int) -> Arrays:
    """Yield what exporters of a cluster show while nodes and pods come and go."""
    draws, model, time = np.random.default_rng(seed), LiveModel(settings, seed), 0.0
    bound: list[str] = []
    for i in range(600):
        time += float(draws.exponential(4.0))
        name, deed = f"n{draws.integers(6)}", draws.random()
        if deed < 0.08:
            labels = {ZONE: f"z{draws.integers(4)}"} if draws.random() < 0.7 else {}
            cpu = int(draws.choice([4000, 8000, 32000]))
            model.put_node(Node(name, cpu, cpu << 22, 110, labels=labels), time)
        elif deed < 0.1:
            model.remove_node(name, time)
        elif deed < 0.5:
            limits = LatencyLimits(20.0, 60.0) if draws.random() < 0.7 else LatencyLimits()
            requests = Requests(int(draws.choice([250, 1000, 2000])), int(draws.choice([256, 4096])) << 20)
            bound.append(f"p{i}")
            pod = Pod("p", PodClass(requests), latency=limits)
            model.bind(bound[-1], pod, f"d{draws.integers(5)}", name, time)
        elif deed < 0.7 and bound:
            model.unbind(bound.pop(int(draws.integers(len(bound)))), time)
        elif deed < 0.95:
            sample = model.scrape(name, time)
            yield np.array([time] if sample is None else sample)
        else:
            yield np.array(model.truth(time))
    yield np.array(model.truth(time + 1.0))


def _told(draws: np.random.Generator, names: list[str]) -> Told:
    told = Told()
    for feature in FEATURES:
        if draws.random() < 0.1:
            continue
        scale = {"cpu_used_percent": 100.0, "tcp_connections": 2000.0, "latency_milliseconds": 120.0}.get(feature, 1e8)
        for user in ("rome", "oslo") if feature == FEATURES[-1] else ("",):
            for name in names:
                if draws.random() < 0.9:
                    told.tell(feature, {name: float(draws.random() * scale)}, age=float(draws.random() * 90), user=user)
    return told


def live_decisions(seeds: range) -> Arrays:
    """Yield what metrics of a live cluster make of pods: scores, limits, observations, outcomes."""
    objectives = [
        resolve_objective(spec)
        for spec in ("latency-aware", "least-connections=2,balance=1", "most-allocated", "least-allocated")
    ]
    for seed in seeds:
        draws = np.random.default_rng(seed)
        count = int(draws.integers(2, 12))
        names = [f"n{i}" for i in range(count)]
        nodes = [
            Node(
                name,
                int(draws.choice([0, 4000, 16000, 32000], p=[0.05, 0.4, 0.35, 0.2])),
                int(draws.choice([8, 32])) << 30,
                pods=int(draws.choice([20, 110])),
                labels={ZONE: f"z{draws.integers(3)}"} if draws.random() < 0.6 else {},
            )
            for name in names
        ]
        state, told = ClusterState(nodes), None if seed % 5 == 4 else _told(draws, names)
        metrics = NodeMetricsView(state, told)
        observations = TelemetryObservations(metrics)
        classes = [
            PodClass(Requests(int(draws.choice([100, 250, 1000])), int(draws.choice([1, 8])) << 28)) for _ in "abc"
        ]
        for i in range(30):
            if told is not None:
                told.now += float(draws.exponential(5.0))
            c = state.class_id(classes[int(draws.integers(3))])
            limits = (
                LatencyLimits(float(draws.random() * 60), float(draws.choice([40.0, 90.0, math.inf])))
                if draws.random() < 0.7
                else LatencyLimits()
            )
            if draws.random() < 0.4 and limits.limited:
                limits = LatencyLimits(limits.soft, limits.hard, str(draws.choice(["rome", "oslo", "nobody"])))
            siblings = {int(n): int(draws.integers(1, 4)) for n in draws.choice(count, min(3, count), replace=False)}
            query = PodQuery(c, owner_pods=OwnerPods(siblings, int(draws.integers(1, 4))), limits=limits)
            eligible = np.array([node.cpu_milli > 0 for node in nodes]) & (draws.random(count) < 0.95)
            feasible = eligible & (draws.random(count) < 0.8)
            for rule in range(1, len(METRIC_RULES)):
                yield metrics.scores(rule, query, feasible)
            left, outcome = metrics.filter_by_hard_limit(query, feasible)
            yield left
            yield np.frombuffer(outcome.encode(), dtype=np.uint8)
            candidates = Candidates(feasible, eligible)
            arrays, groups = observations.observe(query, candidates)
            yield from (arrays.nodes, arrays.pod, arrays.context, arrays.mask, groups)
            slots = np.flatnonzero(feasible)
            if len(slots) < 2:
                continue
            chosen = int(draws.choice(slots))
            for objective in objectives:
                row, reward = observations.outcome(query, candidates, chosen, objective)
                yield np.array([*row, reward])
            for rule in range(1, len(METRIC_RULES)):
                parts = metrics.contributions(rule, query, feasible, (chosen, int(slots[0])))
                yield np.array([part[1:] for part in parts])
            if seed % 3 and i % 2:
                state.place(f"pod-{i}", c, chosen, force=True)
                metrics.changed(chosen)


RULES, METRICS = tuple(HEURISTIC_IDS), tuple(METRIC_RULES)
_LOW = DeploymentSettings(cpu_load=0.4, memory_load=0.5, resets=2)
_FULL = DeploymentSettings(cpu_load=1.5, memory_load=1.5, pod_load=1.5, resets=3, min_replicas=1, max_replicas=12)
_SMALL = {"node_cpu": "8", "node_memory": "32Gi", "node_pods": 40}
_MIXED = {"nodes": (3, 8), "shapes": MIXED_SHAPES, "equal_share": 0.5, "max_nodes": 9, "settings": _LOW}
_BY_RACK = {**_SMALL, "nodes": 6, "settings": _FULL, "objective": "balance=1,locality=2", "servers_per_rack": 2}
_BRIEF = {
    **_SMALL,
    "nodes": (2, 6),
    "objective": "most-allocated=1,least-allocated=0.5",
    "settings": _FULL,
    "step_limit": 30,
}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "default": {"nodes": 5, "settings": _LOW},
    "mixed": _MIXED,
    "racks": _BY_RACK,
    "brief": {**_BRIEF, "servers_per_rack": 0, "penalty": 0.25},
}
LATENCY: dict[str, dict[str, Any]] = {
    "default": {"pods": 120, "warmup": 300.0},
    "copies": {"pods": 150, "copies": 6, "replicas": 3, "warmup": 60.0, "objective": "least-connections"},
    "missed": {
        "pods": 80,
        "missed": 0.3,
        "noise": 0.3,
        "zones": 1,
        "objective": "balance=1,latency-aware=2",
        "warmup": 0.0,
    },
    "large": {"pods": 160, "nodes": 20, "max_nodes": 24, "zones": 8, "load": 1.4, "keep_hard_limits": False},
    "used": {"pods": 90, "objective": "most-allocated=1,least-allocated=2", "keep_hard_limits": True, "step_limit": 50},
    "slow": {"pods": 90, "scrape_interval": 100.0, "lifetime": 120.0, "service": 40.0, "distance": 10.0, "nodes": 4},
}
RUNS: dict[str, Callable[[], Arrays]] = {
    **{
        f"deployments, {name}": partial(single, DeploymentsEnv, RULES, options) for name, options in DEPLOYMENTS.items()
    },
    **{
        f"5 deployments, {name}": partial(vector, DeploymentsVectorEnv, RULES, 400, options)
        for name, options in DEPLOYMENTS.items()
    },
    **{f"latency, {name}": partial(single, LatencyEnv, METRICS, options) for name, options in LATENCY.items()},
    **{
        f"5 latencies, {name}": partial(vector, LatencyVectorEnv, METRICS, 300, options)
        for name, options in LATENCY.items()
    },
    "live model, default": partial(live_model, LatencySettings(), 5),
    "live model, missed": partial(live_model, LatencySettings(missed=0.3, noise=0.2, zones=2), 6),
    **{f"live decisions, {first}": partial(live_decisions, range(first, first + 20)) for first in (0, 20, 40)},
}
