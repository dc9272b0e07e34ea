"""`steersman tune`: search for good options of training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.options.algorithms import training_parameters
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import advanced, given_options, option, with_options
from steersman.cli.options.file import merge_options
from steersman.cli.options.results import BEGUN, naming_continuation
from steersman.cli.options.training import LearningOptions, NetworkOptions, Scenario, TrainingTask
from steersman.cli.options.training_plan import TrainOptions, compile_plan, plan_of
from steersman.cli.output.display import Progress, Warnings, print_text
from steersman.core.errors import UsageError
from steersman.core.processes import default_jobs
from steersman.workloads.files import check_writable


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The study: its folder and its length."""

    output: Annotated[Path, path_option("Folder of the study; an existing study is continued.", metavar="FOLDER")]
    trials: Annotated[
        int | None,
        option(
            "Number of trials to add to the study, with --resume of all its trials in --output. "
            "[default: 20; with --minutes as many as time allows]",
            min=1,
        ),
    ] = None
    minutes: Annotated[
        float | None, option("Maximum duration in minutes; running trials then end early. [default: no limit]")
    ] = None
    iterations: Annotated[int | None, advanced("Iterations of a trial. [default: 40 % of those of train]", min=1)] = (
        None
    )
    validate_every: Annotated[
        int | None,
        advanced(
            "Iterations between validations; a trial can be pruned after each. [default: 40 % of those of train]", min=1
        ),
    ] = None
    storage: Annotated[
        str | None,
        advanced(
            "Storage of a study that several commands, maybe on several machines, add trials to at the same time: "
            "journal:///FILE, grpc://HOST:PORT (Optuna's proxy), or a database such as postgresql://HOST/NAME. "
            "[default: study.db in --output]",
            metavar="URL",
        ),
    ] = None
    seed: Annotated[int, option("Seed of the search and of each trial's training.", min=0)] = 1
    jobs: Annotated[
        int | None,
        option(
            "Number of processes. With one, the same options give the same trials; with several, what the next "
            "trial draws depends on which ended first. [default: all cores]",
            min=1,
        ),
    ] = None
    resume: Annotated[bool, option("Continue the interrupted study in --output by its own options.", "--resume")] = (
        False
    )


@partial(with_options, declared=training_parameters, is_checked=False)
def tune(
    task: TrainingTask,
    study: StudyOptions,
    scenario: Scenario,
    network_options: NetworkOptions,
    learning: LearningOptions,
    invocation: typer.Context,
    **declared: Any,
) -> None:
    """Search for good options of **train** on your workloads, with Optuna.

    Each trial is a short training run; unpromising ones are pruned. Options that you give are fixed; the algorithm's
    other options are searched. Writes study.db (the study), best.json (the best options, for **train** --options) and
    tuning.html (plots). --resume with --output alone continues an interrupted study. Needs the extra train.

    **Example**: steersman tune --algorithm ppo --protocol deployments --trials 20 --output study
    """
    options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
    output = study.output
    check_writable("--output", output, "log")
    if study.resume and not output.is_dir():
        raise UsageError(f"--resume: there is no study in {output} to continue; leave out --resume to start")
    plan = plan_of(options, name=output.name, seed=study.seed, warn=Warnings())

    from steersman.training.plans import gain_text
    from steersman.training.tuning import study as tuning

    budget = tuning.StudyBudget(study.trials, study.minutes, study.jobs or default_jobs())
    compile_plan(plan)
    with Progress("tuning") as progress, naming_continuation(invocation.meta[BEGUN], output):
        outcome = tuning.tune(
            plan,
            output,
            tuning.trial_limits(options.algorithm, study.iterations, study.validate_every),
            budget,
            fixed={*options.declared, *given_options(options.network)},
            storage=study.storage or "",
            on_trial=lambda done, _: progress.update(min(done, budget.most or done), budget.most or done + 1),
            resume=study.resume,
            command=invocation.meta[BEGUN],
        )
    best_options = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in outcome.best_options.items()
    )
    print_text(
        f"Best of {outcome.finished} finished and {outcome.pruned} pruned trials: "
        f"{gain_text(plan, outcome.best_value)}, by trial-{outcome.best_trial:03d}, with {best_options}.\n"
        f"Plots are in {output / tuning.PLOTS}; the best options, for steersman train --options, are in "
        f"{output / tuning.BEST}."
    )
