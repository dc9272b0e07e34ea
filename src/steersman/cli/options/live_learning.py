"""Options of agents that learn on a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from steersman.agents.registry import find_algorithm
from steersman.cli.completing import algorithms, networks, objectives
from steersman.cli.options.common import OBJECTIVES_HELP, path
from steersman.cli.options.declaring import RequiresOption, option
from steersman.cli.options.training import list_networks, options_of
from steersman.cli.options.training_plan import FROM_FILE, read_options, settings_in, widths
from steersman.core.config.fields import check_effects
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.live.learner.plan import LivePlan

PANEL = "Learning on the cluster (--learn)"
_option = partial(option, rich_help_panel=PANEL)
OF_AGENTS = (
    "gamma",
    "learning_rate",
    "actor_learning_rate",
    "critic_learning_rate",
    "batch_size",
    "replay_size",
    "update_every",
    "target_update_every",
    "exploration",
    "initial_epsilon",
    "minimum_epsilon",
    "epsilon_decay",
    "exploration_decisions",
    "use_heuristic",
)
"""Options of the algorithms that are options of the command, too; --options has the others."""
LIVE_FROM_FILE = tuple(name for name in FROM_FILE if name != "reference")
"""What --options may say beside the options of the algorithm; the protocol is that of simulations."""


@dataclass(frozen=True, slots=True)
class LiveLearning:
    RULES: ClassVar = (RequiresOption("learn"),)

    learn: Path | None = option(
        "An agent in a process of its own decides, and learns from what its decisions bring; dqn learns from "
        "those of other schedulers, too. Where it does not answer in time the fallback decides: --policy, else the "
        "rule of the objective. DIR holds checkpoint, metrics, log and policy file; an existing run is continued. "
        "A policy file as --policy is what it starts from; else it starts from nothing.",
        parser=path,
        metavar="DIR",
    )
    algorithm: str | None = _option(
        "dqn, actor-critic or ppo. [default: that of the policy file, else dqn]",
        metavar="NAME",
        autocompletion=algorithms,
    )
    network: str | None = _option(
        f"{list_networks()}. [default: that of the policy file, else mlp]", metavar="NAME", autocompletion=networks
    )
    hidden: str | None = _option(
        "Widths of its hidden layers, such as 128,64. [default: those of the policy file, else 64,64]", metavar="WIDTHS"
    )
    objective: str | None = _option(
        f"What is rewarded: {OBJECTIVES_HELP}, or a weighted sum such as balance=1,most-allocated=0.5; with "
        "--telemetry by the use that was measured. [default: that of the policy file, else balance]",
        metavar="OBJECTIVE",
        autocompletion=objectives,
    )
    options: Path | None = _option(
        "Further options of algorithm and network by name as JSON, such as best.json of steersman tune; the "
        "command line overrides them, and 'steersman train --help-all' explains them.",
        parser=path,
        metavar="FILE",
    )
    seed: int | None = _option("Seed of first weights and exploration. [default: 1]", min=0)
    explore_anyway: bool = _option(
        "Explore on a cluster that steersman did not start: pods go to nodes that the agent does not believe "
        "to be the best.",
        default=False,
    )


def live_plan_of(
    learning: LiveLearning, declared: Mapping[str, Any], policy: str | None, scheduler: str, *, has_telemetry: bool
) -> LivePlan:
    """Return the plan of learning, and check that its folder can be written.

    Args:
        declared: options of agents that were given.
        policy: value of --policy; a policy file is what the agent starts from.
        has_telemetry: whether nodes' metrics are known.
    """
    assert learning.learn is not None
    check_writable("--learn", learning.learn, "log")

    from steersman.live.learner.plan import AgentOptions, file_to_start_from, live_plan

    common, stated = ({}, {}) if learning.options is None else read_options(learning.options, LIVE_FROM_FILE)
    hidden = learning.hidden or common.get("hidden")
    options = AgentOptions(
        learning.algorithm or common.get("algorithm"),
        learning.network or common.get("network"),
        None if hidden is None else widths(hidden),
        common.get("dropout", 0.0),
        common.get("normalisation"),
        learning.objective or common.get("objective"),
    )
    seed = 1 if learning.seed is None else learning.seed
    plan = live_plan(scheduler, file_to_start_from(policy), options, has_telemetry=has_telemetry, seed=seed)
    algorithm = find_algorithm(plan.algorithm)
    from_file = {} if learning.options is None else settings_in(learning.options, stated, algorithm)
    given = options_of(algorithm, declared)
    plan = plan.with_settings(from_file | given)
    check_effects(plan.config, given)
    return plan
