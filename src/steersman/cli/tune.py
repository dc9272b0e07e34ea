"""`steersman tune`: which options of training are good for these workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.algorithm_options import with_options
from steersman.cli.display import Progress, Warnings, print_text
from steersman.cli.options import Jobs, default_jobs, path
from steersman.cli.options_file import merge_options
from steersman.cli.training_options import LearningOptions, NetworkOptions, Scenario, Task, given
from steersman.cli.training_plan import TrainOptions, compile_for, pace, plan_of
from steersman.workloads.files import check_writable

TRIALS = 20
SHARE_OF_A_RUN = 0.4
"""How many of the usual iterations a trial has, and between two of its validations."""


@with_options
def tune(
    task: Task,
    output: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="The study; one that is there goes on.")],
    scenario: Scenario,
    network_options: NetworkOptions,
    learning: LearningOptions,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Trials to add to the study. [default: 20; with --minutes as many as there is time for]"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes at most; the trials under way then end with what they have. [default: no limit]"),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations of a trial. [default: 40 % of those of train]")
    ] = None,
    validate_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Iterations between validations, after each of which a trial may be pruned. "
            "[default: 40 % of those of train]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the trials and of the training in them.")] = 1,
    jobs: Jobs = None,
    **declared: Any,
) -> None:
    """Find good options of **train** for your workloads (Optuna).

    Each trial is a short training run; hopeless ones are pruned. Options that you give stay as they are, the others of
    the algorithm are searched. The study is kept in study.db, the best options in best.json, which train takes as
    --options, plots in tuning.html. Needs the extra train.

    **Example**: steersman tune --algorithm ppo --protocol deployments --trials 20 --output study
    """
    options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
    check_writable("--output", output, "log")
    plan = plan_of(options, name=output.name, seed=seed, warn=Warnings())
    usual = (max(1, round(SHARE_OF_A_RUN * number)) for number in pace(options, None, None))
    rounds, between = (said or number for said, number in zip((iterations, validate_every), usual, strict=True))

    from steersman.training import tune as tuning
    from steersman.training.plans import gain
    from steersman.training.run import Limits

    most = trials or (None if minutes else TRIALS)
    tuning.check_minutes(minutes)
    compile_for(plan)
    with Progress("tuning") as progress:
        outcome = tuning.tune(
            plan,
            output,
            Limits(rounds, validate_every=between),
            fixed={*options.declared, *given(options.network)},
            trials=most,
            minutes=minutes,
            workers=jobs or default_jobs(),
            on_trial=lambda done, _: progress.update(min(done, most or done), most or done + 1),
        )
    chosen = ", ".join(f"{name} {_shown(value)}" for name, value in outcome.best_options.items())
    print_text(
        f"Best of {outcome.finished} finished and {outcome.pruned} pruned trials: "
        f"{gain(plan, outcome.best_value)}, by trial-{outcome.best_trial:03d}, with {chosen}.\n"
        f"See {output / tuning.PLOTS}; options are in {output / tuning.BEST}, for steersman train --options."
    )


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
