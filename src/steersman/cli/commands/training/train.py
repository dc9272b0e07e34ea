"""`steersman train`: training of a policy by evolution or reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.options.common import EngineOption, Jobs, path_option
from steersman.cli.options.declaring import advanced, option, with_options
from steersman.cli.options.results import BEGUN, naming_continuation
from steersman.cli.options.training import (
    LearningOptions,
    NetworkOptions,
    Scenario,
    TrainingTask,
    list_defaults,
    training_parameters,
)
from steersman.cli.options.training_plan import TrainOptions, check_scene, merge_options, plan_of
from steersman.cli.output.display import Scroll, TrainingProgressBar, Warnings, print_text
from steersman.cli.output.logs import MessagesFileOption, check_log_file, log_messages
from steersman.core.engines import Engine, use_engine
from steersman.core.stored_command import COMMAND
from steersman.workloads.files import check_writable


@dataclass(frozen=True, slots=True)
class TrainingRunOptions:
    """The run: its folder, its length, and what follows it."""

    output: Annotated[Path, path_option("Folder of the run: policy file, log, metrics, checkpoint.", metavar="FOLDER")]
    iterations: Annotated[
        int | None,
        option(
            "Maximum number of iterations: generations of evolution, else rounds of rollout and update. "
            f"[default: {list_defaults(lambda spec: spec.iterations)}]",
            min=1,
        ),
    ] = None
    minutes: Annotated[
        float | None,
        option("Maximum duration in minutes. A run that ends by time is not exactly reproducible. [default: no limit]"),
    ] = None
    patience: Annotated[
        int, advanced("Stop after this many validations without improvement; 0: never stop early.", min=0)
    ] = 0
    validate_every: Annotated[
        int | None,
        advanced(
            f"Iterations between validations. [default: {list_defaults(lambda spec: spec.validate_every)}]", min=1
        ),
    ] = None
    seed: Annotated[int, option("Seed of all random numbers: candidates, arrivals, weights, exploration.", min=0)] = 1
    name: Annotated[str | None, advanced("Name of the policy. [default: the last part of --output]")] = None
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    resume: Annotated[bool, option("Continue the run in --output from its checkpoint.", "--resume")] = False
    progress: Annotated[
        Scroll,
        advanced("line: one line that is updated in place; scroll: one line for each iteration; none.", metavar="HOW"),
    ] = Scroll.LINE
    log_file: MessagesFileOption = None


@partial(with_options, declared=training_parameters, is_checked=False)
def train(
    task: TrainingTask,
    run: TrainingRunOptions,
    scenario: Scenario,
    network_options: NetworkOptions,
    learning: LearningOptions,
    invocation: typer.Context,
    **declared: Any,
) -> None:
    """Train a policy by evolution or reinforcement learning.

    The policy with the best validation is written to policy.safetensors in the run's folder, with a model card; pass
    it to **simulate**, **evaluate** or **schedule** as --policy. --resume with --output alone continues an interrupted
    run, to the same result as without the interruption. **tensorboard --logdir FOLDER** plots the metrics.

    **Example**: steersman train --workload default --workload gpushare40 --iterations 100 --output my-policy

    steersman train --algorithm dqn --protocol deployments --node-count 10 --output balanced
    """
    options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
    output = run.output
    check_writable("--output", output, "log")
    check_log_file(run.log_file)
    log_messages(run.log_file)
    plan = plan_of(options, name=run.name or output.name, seed=run.seed, warn=Warnings())
    check_scene(plan)

    from steersman.training.plans import train as run_training
    from steersman.training.result import TrainingResult
    from steersman.training.run import CHECKPOINT, TrainingLimits

    iterations = run.iterations or options.algorithm.iterations
    interval = run.validate_every or options.algorithm.validate_every
    limits = TrainingLimits(iterations, run.minutes, interval, run.patience)
    # A run that was killed before its first checkpoint begins again.
    resume = run.resume and ((output / CHECKPOINT).exists() or not (output / COMMAND).exists())
    with (
        use_engine(run.engine, run.jobs) as jobs,
        TrainingProgressBar(iterations, run.minutes, run.progress) as bar,
        naming_continuation(invocation.meta[BEGUN], output, CHECKPOINT),
    ):
        state = run_training(
            plan, output, limits, jobs=jobs, resume=resume, on_iteration=bar.update, command=invocation.meta[BEGUN]
        )
    trained = TrainingResult(plan, output, state)
    print_text(f"{trained.file}: {trained.summary}.")
