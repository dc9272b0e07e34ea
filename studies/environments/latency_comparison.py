"""Rules and learned policies side by side on `steersman/Latency-v0`: the same clusters, workloads and loads by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from steersman.core.errors import UsageError
from steersman.envs.latency.environment import LatencyCore, LatencyOptions
from steersman.envs.playing import Chooser, Figures, play

BASELINE = "kube-default"


class Aim(NamedTuple):
    """What a task wants of a figure: `sign` 1, more of it than the baseline; -1, less; 0, none at all."""

    figure: str
    sign: int


TASKS = {
    "most-allocated": (Aim("empty_nodes", 1),),
    "least-allocated": (Aim("cpu_use_deviation_percent", -1),),
    "least-connections": (Aim("connections_peak", -1), Aim("connections_maximum_mean", -1)),
    "latency-aware": (
        Aim("hard_limits_broken_avoidable", 0),
        Aim("soft_limits_kept_percent", 1),
        Aim("used_nodes", -1),
    ),
}
"""Tasks of Matranga's thesis, by the objective that rewards them."""


def compare(
    policies: Mapping[str, str | Chooser], seeds: Sequence[int], options: LatencyOptions | None = None
) -> dict[str, Figures]:
    """Play one episode for every seed with every policy.

    Args:
        policies: by the name they are to have: a rule of `policies.telemetry.rules`, or a function that chooses.
        seeds: S episodes; a seed decides the cluster, the workload, its load and the errors of measurement.
        options: what is played; the objective only matters for `return`.

    Returns:
        Policy -> figure -> [S] values in the order of the seeds: the figures of `envs.latency.episode_metrics`, and
        `return`.

    Raises:
        UsageError: there is no seed, no such rule, or an option is wrong.
    """
    if not len(seeds):
        raise UsageError("seeds: give one or more")
    chosen = options or LatencyOptions()
    # Rules decide for themselves what limits are worth, and kube-scheduler knows of none: no filter comes before them.
    rules = LatencyCore(len(seeds), replace(chosen, keep_hard_limits=False))
    learned = LatencyCore(len(seeds), chosen)
    starts = [{"seed": int(seed)} for seed in seeds]
    made = {}
    for name, policy in policies.items():
        core = rules if isinstance(policy, str) else learned
        made[name] = play(core, policy, starts, core.figures)
    return made
