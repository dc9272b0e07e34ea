"""`steersman simulate`: one run, with every placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import Progress, Warnings, print_table, say
from steersman.cli.inputs import ClusterContext, ClusterKubeconfig, FromCluster, Inputs, LiveSource, WorkloadName
from steersman.cli.options import (
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
    check_load,
    check_mean_duration,
    check_ratio,
    path,
    running_of,
)
from steersman.errors import InputError, UsageError

if TYPE_CHECKING:
    from steersman.simulation.result import RunResult
    from steersman.workloads.mix import TypicalPod
    from steersman.workloads.workload import Workload

SEED = 42


def simulate(
    output: Output,
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="The workload: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help=f"The scheduler: {POLICIES_HELP}",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help=f"Which of the possible arrival orders, ties and random choices. [default: {SEED}]"),
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
            help="Instead of --nodes and --pods: a simon/v1alpha1 Config, which also says what --protocol, --ratio and "
            "--seed say.",
        ),
    ] = None,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="With --cluster-config: a KubeSchedulerConfiguration, which stands for --policy.",
        ),
    ] = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    output_format: FormatOption = Format.TABLE,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
) -> None:
    """Where does every pod go, and why does one not fit?

    Runs one scheduler on one workload, prints its metrics and writes placements.csv (every event, with the node, the
    GPUs and the reason of a failure), timeline.csv (allocation, fragmentation and balance after every event) and
    metrics.csv. The same seed gives the same files.

    **Example**: steersman simulate --nodes nodes.csv --pods monday.csv --policy fgd --output run
    """
    configs = _pair(cluster_config, scheduler_config)
    ways = {"protocol": protocol, "ratio": ratio, "load": load, "mean-duration": mean_duration}
    for name, value in ways.items():
        if configs and value is not None:
            raise UsageError(f"--cluster-config says how pods arrive already; leave out --{name}")
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    running = running_of(pinned, from_now, protocol)
    live = LiveSource(cluster, kubeconfig, context)
    if configs and (pinned or from_now):
        raise UsageError("--cluster-config says where pods may go already; leave out --pinned and --from-now")
    if configs and (nodes or pods or workload or cluster):
        raise UsageError(
            "--cluster-config names the nodes and pods already; leave out --nodes, --pods, --workload and --cluster"
        )
    files = (pods,) if pods else ()
    inputs = None if configs else Inputs(nodes, files, (workload,) if workload else (), live, running)
    if not configs and policy is None:
        raise UsageError("there is no --policy; give one, such as --policy steersman (see --help)")

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import RUN_FILES
    from steersman.policies.registry import check_known
    from steersman.simulation.protocols import duration_warnings

    check_output(output, RUN_FILES)
    warn = Warnings()
    if configs:
        plan = read_plan(*configs, policy, seed, warn)
    else:
        assert inputs is not None
        check_known([str(policy)])
        (found,) = inputs.read(warn)
        if protocol is Protocol.TIMED:
            warn(duration_warnings(found, load, mean_duration))
        plan = Plan(found, str(policy), protocol, SEED if seed is None else seed, share, load, mean_duration)
    run_and_write(plan, output, output_format, warn)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `mix` None: the typical pods of the workload. `shuffle` False: inflation keeps the pods' order."""

    workload: Workload
    policy: str
    protocol: Protocol
    seed: int
    ratio: float = RATIO
    load: float | None = None
    mean_duration: float | None = None
    mix: tuple[TypicalPod, ...] | None = None
    shuffle: bool = True


def _pair(cluster_config: Path | None, scheduler_config: Path | None) -> tuple[Path, Path] | None:
    if cluster_config is None and scheduler_config is None:
        return None
    if cluster_config is None or scheduler_config is None:
        raise UsageError("--cluster-config and --scheduler-config go together; give both")
    return cluster_config, scheduler_config


def read_plan(
    cluster_config: Path, scheduler_config: Path, policy: str | None, seed: int | None, warn: Warnings
) -> Plan:
    """The run that a `simon/v1alpha1 Config` and a KubeSchedulerConfiguration describe.

    A workload that is tuned to a ratio is the inflation protocol; one that is not arrives in its own order, or, with
    `shufflePod`, in the random order that simon's seed gives.
    """
    from steersman.workloads.gorand import GoRand
    from steersman.workloads.mix import typical_pods
    from steersman.workloads.simon import read_pair

    cluster, scheduler = read_pair(cluster_config, scheduler_config)
    if not 0 <= cluster.ratio <= MAX_RATIO:
        problem = f"{cluster.ratio:g} is no ratio; it must be above 0 and at most {MAX_RATIO:g}, or 0 for none"
        raise InputError(cluster.file, "", "spec.customConfig.workloadTuningConfig.ratio", problem)
    warn((*cluster.warnings, *scheduler.warnings))
    chosen = scheduler.policy(policy)
    workload = cluster.load()
    mix = typical_pods(workload.pods, popularity_percent=cluster.popularity_percent, cpu_pods=cluster.cpu_pods_typical)
    seed = cluster.seed if seed is None else seed
    if cluster.ratio:
        return Plan(workload, chosen, Protocol.INFLATION, seed, cluster.ratio, mix=mix, shuffle=cluster.shuffle_pods)
    if cluster.shuffle_pods:
        pods = sorted(workload.pods, key=lambda pod: pod.name)
        random = GoRand(seed)
        random.int63()
        random.shuffle(pods)
        workload = replace(workload, pods=tuple(pods))
    return Plan(workload, chosen, Protocol.ARRIVALS, seed, mix=mix)


def run_and_write(plan: Plan, output: Path, output_format: Format, warn: Warnings) -> None:
    """One run, its files and its summary."""
    from steersman.cli.compiling import compile_kernels
    from steersman.evaluation.output import staged
    from steersman.evaluation.results import RUN_FILES, write_run
    from steersman.extensions import attribute_errors
    from steersman.policies.registry import resolve
    from steersman.simulation.run import Simulator

    with attribute_errors(f"policy {plan.policy!r}"):
        policy = resolve(plan.policy)
    warn(plan.workload.warnings)
    compile_kernels([plan.policy], [plan.workload])
    simulator = Simulator(plan.workload, plan.mix)
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
    with staged(output, RUN_FILES) as stage:
        write_run(stage, run)
    try:
        show(run, output_format)
    finally:  # also where nobody reads the table (`| head`)
        say(f"wrote placements.csv, timeline.csv and metrics.csv to {output}")


def show(run: RunResult, output_format: Format) -> None:
    """Print the metrics of a run."""
    from steersman.cli.tables import metric_records, run_table, to_json
    from steersman.evaluation.results import metrics_csv

    if output_format is Format.CSV:
        print(metrics_csv([run]), end="")
    elif output_format is Format.JSON:
        print(to_json(metric_records(run)))
    else:
        print_table(run_table(run))
