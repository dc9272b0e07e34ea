"""Episodes of `steersman/Latency-v0` by rules and learned policies: the same clusters, pods and loads by seed.

A rule chooses among all nodes that a pod fits on: kube-scheduler knows no limits, and `latency-aware` weighs them
itself. A learned policy chooses among those that `policies.node_metrics.latency_filter.filter_environments` leaves. A
live scheduler filters for every policy, by `filter_live`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from steersman.core.errors import UsageError
from steersman.envs.latency.environment import LatencyCore, LatencyOptions
from steersman.envs.latency.episode_metrics import FIGURES
from steersman.envs.playing import Chooser, Figures, play
from steersman.objectives import summary
from steersman.objectives.fragmentation import CAUSES
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.base import Policy
from steersman.policies.features import TELEMETRY
from steersman.policies.kinds import metrics_rule, observing_policy
from steersman.policies.networks.policy import NetworkPolicy
from steersman.policies.observations.kernels import ObservationArrays
from steersman.policies.telemetry import RULE_OF_POLICY
from steersman.simulation.metrics import reward_metric
from steersman.simulation.result import Curve, FinalNodes, LatencyEpisode, Metric, RunResult

Floats = npt.NDArray[np.float64]


def play_all(
    policies: Mapping[str, str | Chooser], seeds: Sequence[int], options: LatencyOptions | None = None
) -> dict[str, Figures]:
    """Play one episode for every seed with every policy, all seeds together.

    Args:
        policies: by the name they are to have: a rule of `policies.node_metrics.rules`, or a function that chooses.
        seeds: S episodes; a seed decides the cluster, the workload, its load and the errors of measurement.
        options: what is played; the objective matters for `return`, and for whether functions are asked behind the
            filter of hard limits (`LatencyOptions.keep_hard_limits`).

    Returns:
        Policy -> figure -> [S] values in the order of the seeds: the figures of `envs.latency.episode_metrics`, and
        `return`.
    """
    if not len(seeds):
        raise UsageError("seeds: give one or more")
    chosen = options or LatencyOptions()
    rules = LatencyCore(len(seeds), replace(chosen, keep_hard_limits=False))
    learned = LatencyCore(len(seeds), chosen)
    starts = [{"seed": int(seed)} for seed in seeds]
    made = {}
    for name, policy in policies.items():
        core = rules if isinstance(policy, str) else learned
        made[name] = play(core, policy, starts, core.figures)
    return made


def _metrics_network(policy: Policy) -> NetworkPolicy | None:
    network = observing_policy(policy)
    return network if network is not None and network.view == TELEMETRY else None


def check_policy(policy: Policy) -> None:
    """Check that a policy can decide here. Raises UsageError: the message lists those that can."""
    if not metrics_rule(policy) and _metrics_network(policy) is None:
        raise UsageError(
            f"policy {policy.name!r} does not decide in --protocol latency; kube-default, {', '.join(RULE_OF_POLICY)} "
            "and policies of steersman train --protocol latency do"
        )


@dataclass(slots=True)
class _Recorder:
    """What is noted of each decision."""

    time: list[float] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    pods: list[npt.NDArray[np.int64]] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)


def play_run(
    policy: Policy, seed: int, options: LatencyOptions, objectives: Sequence[WeightedObjectives], workload: str
) -> RunResult:
    """Play the episode of a seed.

    Args:
        policy: decides.
        seed: of the cluster, the workload, its load and the errors of measurement.
        options: the cluster and its workload.
        objectives: those that have no metric of their own (weighted sums) are measured by their mean reward.
        workload: name in results.
    """
    check_policy(policy)
    # Objectives with a metric of their own need no episode for their reward.
    rewarded = [each for each in objectives if len(each.objectives) > 1]
    cores: dict[str, LatencyCore] = {}
    notes: dict[str, _Recorder] = {}
    for objective in (each.name for each in rewarded or objectives[:1]):
        # The objective changes no decision, and no random number: every episode of the seed is the same.
        keeps = not metrics_rule(policy)
        cores[objective] = LatencyCore(1, replace(options, objective=objective, keep_hard_limits=keeps))
        notes[objective] = _play(cores[objective], policy, seed)
    core, first = next(iter(cores.values())), next(iter(notes.values()))
    figures = {name: float(values[0]) for name, values in core.figures().items()}
    means = [Metric(reward_metric(each.name), "", float(np.mean(notes[each.name].rewards))) for each in rewarded]
    return RunResult(
        workload=workload,
        policy=policy.name,
        seed=seed,
        protocol="latency",
        curve=_curve(first, {name: np.array(note.rewards) for name, note in notes.items()}),
        metrics=(
            *(Metric(name, unit, figures[name]) for name, unit in FIGURES.items()),
            Metric("pods_bound", "pods", figures["placed_pods"]),
            Metric("pods_failed", "pods", figures["refused_pods"]),
            *means,
        ),
        final_nodes=_final_nodes(core),
        latency=LatencyEpisode(
            tuple(core.names(0)),
            np.array(first.pods),
            np.array(first.node, dtype=np.int64),
            np.array(first.latency),
            np.array(first.kept),
        ),
    )


def _play(core: LatencyCore, policy: Policy, seed: int) -> _Recorder:
    rule, network, notes = metrics_rule(policy), _metrics_network(policy), _Recorder()
    core.start(0, np.random.default_rng(0), {"seed": seed})
    nodes = len(core.names(0))
    while True:
        if rule:
            n = int(core.rule_actions(rule)[0])
        else:
            assert network is not None
            seen = core.observation
            # Without the padding of `max_nodes`, as a policy observes a cluster of this size.
            rows = seen.nodes[0, :nodes]
            n = network.choose(
                ObservationArrays(rows, rows.reshape(-1), seen.pod[0], seen.context[0], seen.mask[0, :nodes]),
                seen.groups[0, :nodes],
            )
        latency = core.latency_of_placement(0, n)
        notes.time.append(core.now(0))
        notes.pods.append(core.pods_on_nodes(0))
        notes.node.append(n)
        notes.latency.append(latency)
        core.step(np.array([n], dtype=np.int64))
        within = float(core.infos()["within_soft"][0])
        notes.kept.append(within if np.isfinite(latency) else np.nan)
        notes.rows.append(core.task.row[0].copy())
        notes.rewards.append(float(core.rewards[0]))
        if core.terminated[0] or core.truncated[0]:
            return notes


def _curve(notes: _Recorder, rewards: dict[str, Floats]) -> Curve:
    """Return the curve over time, a point for each decision; CPU is what is used."""
    rows = np.array(notes.rows)
    count = np.maximum(rows[:, summary.CPU_NODES], 1.0)
    mean = rows[:, summary.CPU_SHARE] / count
    nothing = np.full(len(rows), np.nan)
    return Curve(
        x=np.array(notes.time),
        gpu_allocation_percent=nothing,
        cpu_allocation_percent=100.0 * mean,
        memory_allocation_percent=nothing,
        gpu_fragmented_of_idle_percent=nothing,
        fragmentation_by_cause_percent=np.full((len(rows), len(CAUSES)), np.nan),
        gpu_balance_percent=nothing,
        cpu_balance_percent=100.0 * np.sqrt(np.maximum(rows[:, summary.CPU_SQUARE] / count - mean**2, 0.0)),
        nodes_used=rows[:, summary.NODES_USED].copy(),
        pods_waiting=nothing,
        rewards=rewards,
    )


def _final_nodes(core: LatencyCore) -> FinalNodes:
    names, loads = core.names(0), core.loads(0)
    return FinalNodes(
        names=tuple(names),
        gpu_model=("",) * len(names),
        gpu_count=np.zeros(len(names)),
        gpu_used_share=np.full(len(names), np.nan),
        cpu_used_share=loads[:, 0],
    )
