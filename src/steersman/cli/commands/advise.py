"""`steersman advise` and `steersman demo`: what to change in a cluster, and a tour on the embedded data."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.agents.configs import EvolutionConfig
from steersman.cli.completing import workloads
from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.common import Jobs, path_option
from steersman.cli.options.declaring import RequiresOption, option, to_arguments, with_options
from steersman.cli.options.inputs import Inputs
from steersman.cli.options.policies import KUBE_DEFAULT, cluster_baseline, with_minor
from steersman.cli.options.results import Results
from steersman.cli.output.display import (
    TEXT_WIDTH,
    Progress,
    TrainingProgressBar,
    Warnings,
    print_text,
    say,
    say_text,
    width,
)
from steersman.core.engines import Engine, use_engine
from steersman.core.errors import UsageError
from steersman.core.folder_lock import using_folder
from steersman.core.processes import default_jobs
from steersman.workloads.workload import RunningPods, Workload

if TYPE_CHECKING:
    from steersman.evaluation.report.curves import LearningCurve
    from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """Eight options, which fit one screen."""

    cluster: bool = option("Read the live cluster once; nothing is written to it.", default=False)
    kubeconfig: Path | None = path_option("Of the live cluster. [default: as kubectl]", RequiresOption("cluster"))
    nodes: Path | None = path_option("Instead: nodes, as kubectl get writes them, or CSV.")
    pods: Path | None = path_option("Pods and their controllers, or CSV.")
    workload: str | None = option("Instead: packaged, e.g. default-small.", metavar="NAME", autocompletion=workloads)
    scheduler_config: Path | None = path_option("kube-scheduler's configuration today. [default: its own]")
    output: Path = path_option("Folder of the advice.", default=Path("advice"), metavar="FOLDER")
    jobs: Jobs = None


@with_options
def advise(options: AdviceOptions) -> None:
    """Say what to change in a cluster so that more of its GPUs are allocated, if anything.

    Compares kube-scheduler as it is configured today with its best configuration, with orders of the queue where pods
    have times, and with steersman's policies: on the cluster as it is now, and on the empty one. The cheapest way wins
    that no dearer one clearly beats. FOLDER gets a report, the files to install, and a README.md with the commands.

    **Example**: steersman advise --nodes nodes.json --pods pods.json --output advice
    """
    inputs = Inputs(
        nodes=options.nodes,
        pods=None if options.pods is None else [options.pods],
        workload=None if options.workload is None else [options.workload],
        cluster=options.cluster,
        live=ClusterOptions(options.kubeconfig),
    )

    # The imports below are slow.
    from steersman.evaluation.results import ADVICE_FILES, CLUSTER_SCHEDULER, check_output

    check_output(options.output, ADVICE_FILES)
    inputs.check()
    stated = options.scheduler_config
    if stated is not None:
        _configuration(str(stated))
    from steersman.evaluation.advising import check_gpus
    from steersman.policies.kube_scheduler.configuration import split_minor

    live = inputs.live if options.cluster else None
    (spec,) = with_minor([KUBE_DEFAULT if stated is None else str(stated)], None, live)
    made = datetime.now().astimezone()
    (source,) = inputs.read(warn := Warnings(), RunningPods.FROM_NOW, lives=True)
    check_gpus(source)
    command = shlex.join(["steersman", "advise", *to_arguments(replace(options, jobs=None))])
    with (
        using_folder(options.output),
        tempfile.TemporaryDirectory(prefix="steersman-") as folder,
        use_engine(Engine.LOCAL, options.jobs) as jobs,
    ):
        if live is not None and stated is None:
            minor = split_minor(spec)[1] or None
            spec = cluster_baseline(live, source, Path(folder, CLUSTER_SCHEDULER), minor, "--scheduler-config") or spec
        today = _configuration(spec)
        text = give_advice(source, today, options.output, command, made, jobs, warn)
    print(text)


def give_advice(
    source: Workload, today: KubeSchedulerPolicy, folder: Path, command: str, made: datetime, jobs: int, warn: Warnings
) -> str:
    """Compare the ways to run a cluster, write the folder of an advice, and return it in words."""
    from steersman.evaluation.advising import compare_ways
    from steersman.evaluation.written_advice import advice_of, write_advice

    with Progress("comparing, percent done", estimate=False) as progress:
        ways = compare_ways(source, today, jobs=jobs, progress=progress.update)
    warn(tuple(warning for each in ways.comparisons for run in each.runs for warning in run.warnings))
    advice = advice_of(ways, folder)
    files = write_advice(folder, ways, advice, command, made)
    say(f"wrote {', '.join(files)} to {folder}")
    return advice.text(min(width(), TEXT_WIDTH))


def _configuration(spec: str) -> KubeSchedulerPolicy:
    """Return a configuration of kube-scheduler. Raises SteersmanError: it is none, or cannot be computed."""
    from steersman.evaluation.advising import WAYS
    from steersman.policies.kinds import kube_scheduler
    from steersman.policies.kube_scheduler.configuration import is_configuration
    from steersman.policies.registry import resolve

    if not (spec.startswith(KUBE_DEFAULT) or is_configuration(spec)):
        raise UsageError(f"--scheduler-config {spec}: expected a KubeSchedulerConfiguration, such as my-scheduler.yaml")
    policy = kube_scheduler(resolve(spec))
    assert policy is not None
    if policy.name in WAYS:
        raise UsageError(f"--scheduler-config {spec}: {policy.name} is a way that it is compared with; rename the file")
    return policy


WORKLOAD = "default"
BASELINE = "kube-default"
SEEDS = range(42, 52)
TRAINING = ("cpu100", "gpushare40", "gpuspec10", "multigpu20")
GENERATIONS = 12  # of the training: a fixed amount of work of about 110 s of CPU time, a minute on two cores
VALIDATE_EVERY = 4

TRAINING_TEXT = (
    "First, a policy is trained for about a minute by evolution: candidates place the pods of four other workloads, "
    "and each generation moves towards those that leave fewer GPUs unallocated than the best published heuristic (fgd)."
)
COMPARISON_TEXT = (
    "Now all policies are compared on a production GPU cluster of 1,213 nodes and 6,212 GPUs (openb, USENIX ATC 2023). "
    "Pods drawn from its trace arrive until they request 130 % of the GPUs; each policy places the same pods, in 10 "
    "random orders."
)
ADVICE_TEXT = (
    "Last, the question of a platform engineer: what should I change in my cluster? It is answered here for 64 of "
    "these nodes, and by steersman advise for yours."
)
NEXT_TEXT = """
{report} has the comparison, {advice} the commands to install the advice. For your own cluster:
  steersman advise --cluster                                    only reads the cluster that kubectl talks to
  steersman advise --nodes nodes.json --pods pods.json          from what kubectl get nodes, pods -A -o json prints
  steersman train --nodes nodes.json --workload pods.json --output my-policy                trains on your own pods"""


@with_options
def demo(
    output: Path = path_option("Folder of the results.", default=Path("steersman-demo"), metavar="FOLDER"),
    jobs: Jobs = None,
) -> None:
    """Train a policy for a minute, compare it with all built-in ones, and advise a cluster, on embedded data.

    Prints the advice, and writes report.html (plots), CSV files and the advice to the folder. Needs no cluster.
    """
    from steersman.cli.comparison import ReportNotes, compare
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.results import ADVICE_FILES, DEMO_FILES, check_output
    from steersman.policies.kube_scheduler.policy import STOCK_TUNED, KubeSchedulerPolicy
    from steersman.policies.registry import BUILT_IN
    from steersman.workloads.formats.openb import SMALL, embedded

    advice, warn = output / "advice", Warnings()
    check_output(output, DEMO_FILES)
    check_output(advice, ADVICE_FILES)
    processes = jobs or default_jobs()
    say_text(TRAINING_TEXT)
    with using_folder(output), tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        trained, learning = _train(Path(folder), processes)
        say_text(COMPARISON_TEXT)
        # A search for kube-scheduler's configuration would take longer than all of the rest.
        others = [name for name in BUILT_IN if name not in (BASELINE, STOCK_TUNED)]
        compare(
            [Experiment((embedded(WORKLOAD),), (BASELINE, *others, str(trained)), tuple(SEEDS))],
            Results(output),
            ReportNotes("steersman demo", learning=learning, kept=(trained,)),
            jobs=processes,
            baseline=BASELINE,
            warn=warn,
        )
        say_text(ADVICE_TEXT)
        made = datetime.now().astimezone()
        text = give_advice(embedded(SMALL), KubeSchedulerPolicy(), advice, "steersman demo", made, processes, warn)
    print(text)
    print_text(NEXT_TEXT.format(report=output / "report.html", advice=advice / "README.md"))


def _train(folder: Path, jobs: int) -> tuple[Path, LearningCurve]:
    from steersman.evaluation.report.curves import read_learning
    from steersman.evaluation.results import TRAINED
    from steersman.training.run import POLICY, TrainingLimits
    from steersman.training.search.evolve import EvolutionPlan, evolve
    from steersman.workloads.formats.openb import embedded

    config = EvolutionConfig()
    plan = EvolutionPlan("trained", tuple(embedded(name) for name in TRAINING), config=config, validation_seeds=(5001,))
    limits = TrainingLimits(iterations=GENERATIONS, validate_every=VALIDATE_EVERY)
    with TrainingProgressBar(GENERATIONS, None) as progress:
        # The mean gain of the candidates is not shown: at first most of them are far worse than the starting point.
        evolve(plan, folder / "run", limits, jobs=jobs, on_iteration=lambda state, _: progress.update(state, {}))
    trained = folder / TRAINED
    shutil.copyfile(folder / "run" / POLICY, trained)
    return trained, read_learning(folder / "run", "trained", config.reference, TRAINING)
