"""`steersman train`: training of a policy by evolution or reinforcement learning."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.options.algorithms import list_defaults, with_options
from steersman.cli.options.common import (
    Jobs,
    path,
)
from steersman.cli.options.file import merge_options
from steersman.cli.options.training import LearningOptions, NetworkOptions, Scenario, TrainingTask
from steersman.cli.options.training_plan import TrainOptions, compile_plan, iteration_counts, plan_of
from steersman.cli.output.display import Scroll, TrainingProgressBar, Warnings, print_text
from steersman.cli.output.logs import MessagesFileOption, check_log_file, log_messages
from steersman.core.processes import (
    default_jobs,
)
from steersman.workloads.files import check_writable


class Track(enum.StrEnum):
    """Where the metrics of a run go."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    TRACKIO = "trackio"


@with_options
def train(
    task: TrainingTask,
    output: Annotated[
        Path,
        typer.Option(parser=path, metavar="FOLDER", help="Folder of the run: policy file, log, metrics, checkpoint."),
    ],
    scenario: Scenario,
    network_options: NetworkOptions,
    learning: LearningOptions,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of iterations: generations of evolution, else rounds of rollout and update. "
            f"[default: {list_defaults(lambda spec: spec.iterations)}]",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Maximum duration in minutes. A run that ends by time is not exactly reproducible. [default: no limit]"
        ),
    ] = None,
    patience: Annotated[
        int, typer.Option(min=0, help="Stop after this many validations without improvement; 0: never stop early.")
    ] = 0,
    validate_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Iterations between validations. [default: {list_defaults(lambda spec: spec.validate_every)}]",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of all random numbers: candidates, arrivals, weights, exploration.")
    ] = 1,
    name: Annotated[str | None, typer.Option(help="Name of the policy. [default: the last part of --output]")] = None,
    jobs: Jobs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output from its checkpoint.")] = False,
    progress: Annotated[
        Scroll,
        typer.Option(
            metavar="HOW", help="line: one line that is updated in place; scroll: one line for each iteration; none."
        ),
    ] = Scroll.LINE,
    track: Annotated[
        Track,
        typer.Option(
            help="Where metrics, options and the policy file go beside --output: to TensorBoard's files there "
            "(metrics alone), or to MLflow (at $MLFLOW_TRACKING_URI) or Trackio, which must be installed."
        ),
    ] = Track.TENSORBOARD,
    log_file: MessagesFileOption = None,
    **declared: Any,
) -> None:
    """Train a policy by evolution or reinforcement learning.

    The policy with the best validation is written to policy.safetensors in the run's folder, with a model card; pass
    it to **simulate**, **evaluate** or **schedule** as --policy. --resume continues an interrupted run to the same
    result as without the interruption. **tensorboard --logdir FOLDER** plots the metrics.

    **Examples**:

    steersman train --workload default --workload gpushare40 --iterations 100 --output my-policy

    steersman train --algorithm dqn --protocol deployments --node-count 10 --output balanced
    """
    options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
    check_writable("--output", output, "log")
    check_log_file(log_file)
    log_messages(log_file)
    if track is not Track.TENSORBOARD:
        from steersman.training.trackers import check_tracker

        check_tracker(track.value)
    plan = plan_of(options, name=name or output.name, seed=seed, warn=Warnings())
    max_iterations, interval = iteration_counts(options, iterations, validate_every)

    from steersman.training.plans import train as run_training
    from steersman.training.result import TrainingResult
    from steersman.training.run import TrainingLimits

    limits = TrainingLimits(max_iterations, minutes, interval, patience)
    compile_plan(plan)
    with TrainingProgressBar(max_iterations, minutes, progress) as bar:
        state = run_training(
            plan,
            output,
            limits,
            jobs=jobs or default_jobs(),
            resume=resume,
            on_iteration=bar.update,
            tracker=track.value,
        )
    trained = TrainingResult(plan, output, state)
    print_text(f"{trained.file}: {trained.summary}.")
