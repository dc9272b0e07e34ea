"""`steersman train` and `steersman tune`: training by evolution or reinforcement learning, and its best options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.options.arrivals import deployments_options
from steersman.cli.options.cluster import ClusterName, find_cluster
from steersman.cli.options.common import EngineOption, Jobs, path_option
from steersman.cli.options.declaring import (
    Excludes,
    RequiresOption,
    advanced,
    check_options,
    given_options,
    option,
    with_options,
)
from steersman.cli.options.live_learning import LIVE_FROM_FILE, LiveLearning, live_plan_of
from steersman.cli.options.results import BEGUN, naming_continuation
from steersman.cli.options.training import (
    LearningOptions,
    NetworkOptions,
    Scenario,
    TrainingTask,
    list_defaults,
    training_parameters,
)
from steersman.cli.options.training_plan import TrainOptions, check_scene, merge_options, plan_of, read_options
from steersman.cli.output.display import Progress, Scroll, TrainingProgressBar, Warnings, print_text
from steersman.cli.output.logs import MessagesFileOption, check_log_file, log_messages, say_warnings
from steersman.core.config.fields import flag
from steersman.core.engines import Engine, use_engine
from steersman.core.errors import UsageError
from steersman.core.processes import default_jobs
from steersman.core.stored_command import COMMAND
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.live.learner.plan import LivePlan
    from steersman.training.run import TrainingLimits
    from steersman.training.tuning.study import TunedPlan


@dataclass(frozen=True, slots=True)
class TrainingRunOptions:
    output: Path = path_option(
        "Folder of the run: policy file, log, metrics, checkpoint.", default=..., metavar="FOLDER"
    )
    iterations: int | None = option(
        "Maximum number of iterations: generations of evolution, else rounds of rollout and update. "
        f"[default: {list_defaults(lambda spec: spec.iterations)}]",
        min=1,
    )
    minutes: float | None = option(
        "Maximum duration in minutes. A run that ends by time is not exactly reproducible. [default: no limit]"
    )
    patience: int = advanced(
        "Stop after this many validations without improvement; 0: never stop early.", default=0, min=0
    )
    validate_every: int | None = advanced(
        f"Iterations between validations. [default: {list_defaults(lambda spec: spec.validate_every)}]", min=1
    )
    seed: int = option("Seed of all random numbers: candidates, arrivals, weights, exploration.", default=1, min=0)
    name: str | None = advanced("Name of the policy. [default: the last part of --output]")
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    resume: bool = option("Continue the run in --output from its checkpoint.", default=False)
    progress: Scroll = advanced(
        "line: one line that is updated in place; scroll: one line for each iteration; none.",
        default=Scroll.LINE,
        metavar="HOW",
    )
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

    from steersman.training.plans import TrainingResult
    from steersman.training.plans import train as run_training
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


LIVE_PODS, LIVE_LOOKS = 500, 5
OF_LIVE = {
    *("algorithm", "network", "objective", "options", "kubeconfig", "context", "hidden", "start"),
    *("cpu_load", "memory_load", "pod_load", "replicas"),
}
"""Options of the task, the network and the load that --live takes."""


@dataclass(frozen=True, slots=True)
class StudyOptions:
    output: Path = path_option("Folder of the study; an existing study is continued.", default=..., metavar="FOLDER")
    trials: int | None = option(
        "Number of trials to add to the study, with --resume of all its trials in --output. "
        "[default: 20; with --minutes as many as time allows]",
        min=1,
    )
    minutes: float | None = option("Maximum duration in minutes; running trials then end early. [default: no limit]")
    iterations: int | None = advanced(
        f"Iterations of a trial; with --live its pods. [default: 40 % of those of train; with --live {LIVE_PODS}]",
        min=1,
    )
    validate_every: int | None = advanced(
        "Iterations between validations, with --live pods between looks at the reward; a trial can be pruned after "
        f"each. [default: 40 % of those of train; with --live {LIVE_PODS // LIVE_LOOKS}]",
        min=1,
    )
    storage: str | None = advanced(
        "Storage of a study that several commands, maybe on several machines, add trials to at the same time: "
        "journal:///FILE, grpc://HOST:PORT (Optuna's proxy), or a database such as postgresql://HOST/NAME. "
        "[default: study.db in --output]",
        metavar="URL",
    )
    seed: int = option("Seed of the search and of each trial's training.", default=1, min=0)
    jobs: int | None = option(
        "Number of processes. With one, the same options give the same trials; with several, what the next "
        "trial draws depends on which ended first. [default: all cores]",
        min=1,
    )
    resume: bool = option("Continue the interrupted study in --output by its own options.", default=False)
    live: bool = option(
        "Trials are agents (dqn, actor-critic, ppo) that learn on a live cluster, one after the other, without "
        "telemetry. Each gets the same random Deployments (--replicas, --cpu-load, ...); its value is the mean "
        "reward of the later half. Deletes what 'steersman workload' made there.",
        Excludes("cluster"),
        default=False,
    )
    name: Annotated[ClusterName, RequiresOption("live")] = None
    yes: bool = advanced(
        "With --live: allow it in a cluster that steersman did not start.", RequiresOption("live"), default=False
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

    **On a cluster of 'steersman cluster up'**: steersman tune --live --algorithm dqn --trials 10 --output study
    """
    check_options(study, task)
    output = study.output
    check_writable("--output", output, "log")
    if study.resume and not output.is_dir():
        raise UsageError(f"--resume: there is no study in {output} to continue; leave out --resume to start")
    plan: TunedPlan
    chosen: dict[str, Any]
    if study.live:
        plan, limits, chosen = _live(task, study, scenario, network_options, learning, declared)
        words = "mean reward {:.4f}".format
        reader = "schedule --learn"
    else:
        options = merge_options(TrainOptions(task, scenario, network_options, learning, declared))
        trained = plan_of(options, name=output.name, seed=study.seed, warn=Warnings())
        check_scene(trained)

        from steersman.training.plans import gain_text
        from steersman.training.tuning.study import trial_limits

        chosen = {"fixed": {*options.declared, *given_options(options.network)}}
        plan, words, reader = trained, partial(gain_text, trained), "train"
        limits = trial_limits(options.algorithm, study.iterations, study.validate_every)

    from steersman.training.tuning import study as tuning

    budget = tuning.StudyBudget(study.trials, study.minutes, 1 if study.live else study.jobs or default_jobs())
    with Progress("tuning") as progress, naming_continuation(invocation.meta[BEGUN], output):
        outcome = tuning.tune(
            plan,
            output,
            limits,
            budget,
            storage=study.storage or "",
            on_trial=lambda done, _: progress.update(min(done, budget.most or done), budget.most or done + 1),
            resume=study.resume,
            command=invocation.meta[BEGUN],
            **chosen,
        )
    best_options = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in outcome.best_options.items()
    )
    print_text(
        f"Best of {outcome.finished} finished and {outcome.pruned} pruned trials: "
        f"{words(outcome.best_value)}, by trial-{outcome.best_trial:03d}, with {best_options}.\n"
        f"Plots are in {output / tuning.PLOTS}; the best options, for steersman {reader} --options, are in "
        f"{output / tuning.BEST}."
    )


def _live(
    task: TrainingTask,
    study: StudyOptions,
    scenario: Scenario,
    network: NetworkOptions,
    learning: LearningOptions,
    declared: dict[str, Any],
) -> tuple[LivePlan, TrainingLimits, dict[str, Any]]:
    """Return the plan and limits of trials on a live cluster, and what `tune` gets in addition."""
    filling = given_options(scenario)
    for name in sorted({*given_options(task), *given_options(network), *given_options(learning), *filling} - OF_LIVE):
        raise UsageError(f"{flag(name)} does not apply to --live")
    if (study.jobs or 1) > 1:
        raise UsageError(f"--jobs {study.jobs}: with --live trials run one after the other; leave it out")
    learned = LiveLearning(study.output, task.algorithm, task.network, network.hidden, task.objective, task.options)
    start = None if network.start is None else str(network.start)
    plan = live_plan_of(replace(learned, seed=study.seed), declared, start, "steersman", has_telemetry=False)
    target = find_cluster(task.live.kubeconfig, task.live.context, study.name)
    target.require_consent("bind pods by untrained agents, and create and delete Deployments", yes=study.yes)
    say_warnings()

    from steersman.live.learner.live_trial import LiveTrials
    from steersman.training.run import TrainingLimits

    pods = study.iterations or LIVE_PODS
    limits = TrainingLimits(pods, validate_every=study.validate_every or max(1, pods // LIVE_LOOKS))
    trials = LiveTrials(target, deployments_options(filling, {}).settings)
    fixed = {*declared, *given_options(network)}
    if task.options is not None:
        fixed.update(*read_options(task.options, LIVE_FROM_FILE))
    return plan, limits, {"fixed": fixed, "run_trial": trials.run, "task": trials.task(limits)}
