"""`steersman simulate`: one simulated run, with every placement in its result files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.completing import policies
from steersman.cli.options.algorithms import with_options
from steersman.cli.options.common import (
    MAX_RATIO,
    POLICIES_HELP,
    RATIO,
    Format,
    FormatOption,
    FromNow,
    Load,
    MeanDuration,
    Nodes,
    Output,
    Pinned,
    Protocol,
    ProtocolOption,
    Ratio,
    Strict,
    check_load,
    check_mean_duration,
    check_ratio,
    path,
    running_of,
)
from steersman.cli.options.inputs import (
    ClusterContext,
    ClusterKubeconfig,
    ClusterOfName,
    FromCluster,
    Inputs,
    LiveSource,
    WorkloadName,
)
from steersman.cli.options.policy_server import PolicyServer
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, say
from steersman.core.errors import InputError, UsageError
from steersman.workloads.workload import FIRST_SEED

if TYPE_CHECKING:
    from steersman.simulation.result import RunResult
    from steersman.workloads.profile import TypicalPod
    from steersman.workloads.workload import Workload


@with_options
def simulate(
    server: PolicyServer,
    output: Output,
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Pods of the workload: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=policies,
            help=f"Policy that places the pods: {POLICIES_HELP}",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help=f"Seed of the arrival order, of ties and of random choices. [default: {FIRST_SEED}]"),
    ] = None,
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    cluster_config: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Read nodes, pods, arrivals, ratio and seed from a simon/v1alpha1 Config instead of --nodes, --pods, "
            "--protocol and --ratio. Needs --scheduler-config or --policy.",
        ),
    ] = None,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="With --cluster-config: take the policy from this KubeSchedulerConfiguration.",
        ),
    ] = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    strict: Strict = False,
    output_format: FormatOption = Format.TABLE,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
    name: ClusterOfName = None,
) -> None:
    """Simulate one policy on one workload, and write where every pod was placed or why it did not fit.

    Prints the run's metrics and writes placements.csv (one line for each event: node, GPUs, reason of a failure),
    timeline.csv (allocation, fragmentation and balance after each event), metrics.csv and replay.json.gz (nodes, pods
    and options, for **dashboard**). The same seed gives the same files.

    **Example**: steersman simulate --nodes nodes.csv --pods monday.csv --policy fgd --output run
    """
    server.use()
    configs = _pair(cluster_config, scheduler_config, policy)
    arrival_options = {"protocol": protocol, "ratio": ratio, "load": load, "mean-duration": mean_duration}
    for option, value in arrival_options.items():
        if configs and value is not None:
            raise UsageError(f"--cluster-config defines how pods arrive; leave out --{option}")
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    running = running_of(pinned, from_now, protocol)
    live = LiveSource(cluster, kubeconfig, context, name)
    if configs and (pinned or from_now):
        raise UsageError("--cluster-config defines where pods may run; leave out --pinned and --from-now")
    if configs and (nodes or pods or workload or cluster):
        raise UsageError(
            "--cluster-config defines the nodes and pods; leave out --nodes, --pods, --workload and --cluster"
        )
    files = (pods,) if pods else ()
    inputs = None if configs else Inputs(nodes, files, (workload,) if workload else (), live, running, strict)
    if not configs and policy is None:
        raise UsageError("--policy is missing; give one, such as --policy steersman (see --help)")

    # The imports below load numba, which is slow, so the options are checked first.
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import RUN_FILES
    from steersman.policies.registry import check_policy_names
    from steersman.simulation.protocols import duration_warnings

    check_output(output, RUN_FILES)
    warn = Warnings()
    if configs:
        plan = read_plan(*configs, policy, seed, warn)
    else:
        assert inputs is not None
        check_policy_names([str(policy)])
        (source,) = inputs.read(warn)
        if protocol is Protocol.TIMED:
            warn(duration_warnings(source, load, mean_duration))
        plan = SimulationPlan(
            source, str(policy), protocol, FIRST_SEED if seed is None else seed, share, load, mean_duration
        )
    run_and_write(plan, output, output_format, warn)


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """Plan of one run.

    Attributes:
        workload: nodes and pods.
        policy: name or file of the policy.
        protocol: arrival protocol.
        seed: seed of the run.
        ratio: requested GPUs as a share of all GPUs, for inflation.
        load: requested share of the cluster, for timed; None: the times in the data.
        mean_duration: mean duration in seconds of pods without an end, for timed.
        profile: workload profile; None: the typical pods of the workload.
        shuffle: whether inflation draws the pods in random order.
    """

    workload: Workload
    policy: str
    protocol: Protocol
    seed: int
    ratio: float = RATIO
    load: float | None = None
    mean_duration: float | None = None
    profile: tuple[TypicalPod, ...] | None = None
    shuffle: bool = True


def _pair(
    cluster_config: Path | None, scheduler_config: Path | None, policy: str | None
) -> tuple[Path, Path | None] | None:
    """Return the files of an experiment. Raises UsageError: one is missing."""
    if cluster_config is None and scheduler_config is None:
        return None
    if cluster_config is None:
        raise UsageError("--scheduler-config goes with --cluster-config; give both")
    if scheduler_config is None and policy is None:
        raise UsageError("--cluster-config needs a policy; give --scheduler-config or --policy")
    return cluster_config, scheduler_config


def read_plan(
    cluster_config: Path, scheduler_config: Path | None, policy: str | None, seed: int | None, warn: Warnings
) -> SimulationPlan:
    """Return the run that a `simon/v1alpha1 Config` and a KubeSchedulerConfiguration describe.

    A workload with a tuning ratio runs in the inflation protocol. One without arrives in its own order or, with
    `shufflePod`, in the random order that simon's seed gives.

    Raises:
        InputError: a file is invalid, or its ratio is out of range.
    """
    from steersman.workloads.experiments import EXPERIMENT_FORMATS
    from steersman.workloads.generators.go_random import GoRand
    from steersman.workloads.profile import typical_pods

    cluster, scheduler = EXPERIMENT_FORMATS.find("simon").read(cluster_config, scheduler_config)
    if not 0 <= cluster.ratio <= MAX_RATIO:
        problem = f"{cluster.ratio:g} is out of range; must be above 0 and at most {MAX_RATIO:g}, or 0 for no tuning"
        raise InputError(cluster.file, "", "spec.customConfig.workloadTuningConfig.ratio", problem)
    warn((*cluster.warnings, *(scheduler.warnings if scheduler is not None else ())))
    chosen = str(policy) if scheduler is None else scheduler.policy(policy)
    workload = cluster.load()
    warn(workload.warnings)
    profile = typical_pods(
        workload.pods, popularity_percent=cluster.popularity_percent, cpu_pods=cluster.cpu_pods_typical
    )
    seed = cluster.seed if seed is None else seed
    if cluster.ratio:
        return SimulationPlan(
            workload, chosen, Protocol.INFLATION, seed, cluster.ratio, profile=profile, shuffle=cluster.shuffle_pods
        )
    if cluster.shuffle_pods:
        pods = sorted(workload.pods, key=lambda pod: pod.name)
        random = GoRand(seed)
        random.int63()
        random.shuffle(pods)
        workload = replace(workload, pods=tuple(pods))
    return SimulationPlan(workload, chosen, Protocol.ARRIVALS, seed, profile=profile)


def run_and_write(plan: SimulationPlan, output: Path, output_format: Format, warn: Warnings) -> None:
    """Run a simulation, write its files and print its metrics."""
    from steersman.cli.compiling import compile_for
    from steersman.core.extensions import attribute_errors
    from steersman.evaluation.output import staged
    from steersman.evaluation.replay_file import RunOptions, replay_file
    from steersman.evaluation.results import RUN_FILES, write_run
    from steersman.policies.registry import resolve
    from steersman.simulation.run import Simulator

    with attribute_errors(f"policy {plan.policy!r}"):
        policy = resolve(plan.policy)
    warn(plan.workload.warnings)
    compile_for([plan.policy], [plan.workload])
    simulator = Simulator(plan.workload, plan.profile)
    with Progress("simulating") as progress:
        run = simulator.run(
            policy,
            protocol=plan.protocol.value,
            seed=plan.seed,
            ratio=plan.ratio,
            load=plan.load,
            mean_duration=plan.mean_duration,
            shuffle=plan.shuffle,
            record=True,
            progress=progress.update,
        )
    warn(run.warnings)
    options = RunOptions(plan.policy, plan.ratio, plan.load, plan.mean_duration, plan.shuffle, plan.profile)
    with staged(output, RUN_FILES) as stage:
        write_run(stage, run, replay_file(plan.workload, options, run.policy, run.protocol, run.seed))
    try:
        show(run, output_format)
    finally:  # also if standard output was closed (`| head`)
        if run.choice:
            say(f"{run.policy}: {run.choice}")
        say(f"wrote placements.csv, timeline.csv, metrics.csv and replay.json.gz to {output}")


def show(run: RunResult, output_format: Format) -> None:
    """Print the metrics of a run."""
    from steersman.cli.output.tables import metric_records, run_table
    from steersman.evaluation.results import metrics_csv

    if output_format is Format.CSV:
        print(metrics_csv([run]), end="")
    elif output_format is Format.JSON:
        print_json(metric_records(run))
    else:
        print_table(run_table(run))
