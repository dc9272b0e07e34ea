"""`steersman train`: a policy from experience."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.algorithm_options import list_defaults, with_options
from steersman.cli.display import Scroll, TrainingProgress, Warnings, print_text
from steersman.cli.options import Jobs, default_jobs, path
from steersman.cli.options_file import merge_options
from steersman.cli.training_options import LearningOptions, NetworkOptions, Scenario, Task
from steersman.cli.training_plan import TrainOptions, compile_for, pace, plan_of
from steersman.workloads.files import check_writable


@with_options
def train(
    task: Task,
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="The run: policy, log, metrics, checkpoint.")
    ],
    scenario: Scenario,
    network_options: NetworkOptions,
    learning: LearningOptions,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Iterations at most: generations of evolution, else rounds of playing and learning. "
            f"[default: {list_defaults(lambda spec: spec.iterations)}]",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes at most. A run that is cut by the clock is not repeatable to the digit. [default: no limit]"
        ),
    ] = None,
    patience: Annotated[
        int, typer.Option(min=0, help="End after so many validations without a better one, 0: do not.")
    ] = 0,
    validate_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Iterations between validations. [default: {list_defaults(lambda spec: spec.validate_every)}]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn: candidates, arrivals, weights, moves.")] = 1,
    name: Annotated[str | None, typer.Option(help="The policy's name. [default: that of --output]")] = None,
    jobs: Jobs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output from its checkpoint.")] = False,
    progress: Annotated[
        Scroll,
        typer.Option(metavar="HOW", help="line: one that renews itself; scroll: one an iteration; or none."),
    ] = Scroll.LINE,
    **declared: Any,
) -> None:
    """Train a policy by evolution, or by reinforcement learning.

    The best policy by validation is policy.safetensors in the run's folder, with a model card; **simulate** and
    **evaluate** take it as --policy. A run that was stopped or killed goes on with --resume to the same result.
    TensorBoard shows the folder: **tensorboard --logdir FOLDER**.

    **Examples**:

    steersman train --workload default --workload gpushare40 --iterations 100 --output my-policy

    steersman train --algorithm dqn --protocol deployments --node-count 10 --output balanced
    """
    options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
    check_writable("--output", output, "log")
    plan = plan_of(options, name=name or output.name, seed=seed, warn=Warnings())
    rounds, between = pace(options, iterations, validate_every)

    from steersman.training.plans import gain
    from steersman.training.plans import train as start
    from steersman.training.run import POLICY, Limits

    limits = Limits(rounds, minutes, between, patience)
    compile_for(plan)
    with TrainingProgress(rounds, minutes, progress) as shown:
        standing = start(plan, output, limits, jobs=jobs or default_jobs(), resume=resume, on_iteration=shown.update)
    print_text(
        f"{output / POLICY}: {gain(plan, standing.best)} in validation "
        f"(iteration {standing.best_iteration} of {standing.iteration})."
    )
