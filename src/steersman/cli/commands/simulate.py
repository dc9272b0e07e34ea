"""`steersman simulate`: one simulated run, with every placement in its result files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.options.arrivals import MAX_RATIO, ArrivalOptions, EvictionOptions, Protocol
from steersman.cli.options.common import (
    Format,
    FormatOption,
    KubernetesOption,
    Output,
    advanced_path,
    order_option,
    policy_option,
)
from steersman.cli.options.declaring import RequiresOption, RequiresProtocol, given_options, option, with_options
from steersman.cli.options.inputs import InputsWithRunningPods
from steersman.cli.options.policies import PolicyServer, check_pods_wait, with_minor
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, say
from steersman.core.config.fields import flag
from steersman.core.errors import InputError, UsageError
from steersman.core.extensions import attribute_errors
from steersman.core.folder_lock import using_folder
from steersman.workloads.workload import FIRST_SEED, RunningPods, Workload

if TYPE_CHECKING:
    from steersman.workloads.profile import TypicalPod


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    output: Output
    policy: str | None = policy_option("Policy that places the pods")
    kubernetes: KubernetesOption = None
    order: str | None = order_option(
        "Order of the pods that wait", " [default: that of the policy, else age]", RequiresProtocol("timed")
    )
    seed: int | None = option(
        f"Seed of the arrival order, of ties and of random choices. [default: {FIRST_SEED}]", min=0
    )
    output_format: FormatOption = Format.TABLE


@dataclass(frozen=True, slots=True)
class SimonOptions:
    cluster_config: Path | None = advanced_path(
        "Read nodes, pods, arrivals, ratio and seed from a simon/v1alpha1 Config instead of --nodes, --pods, "
        "--protocol and --ratio. Needs --scheduler-config or --policy."
    )
    scheduler_config: Path | None = advanced_path(
        "With --cluster-config: take the policy from this KubeSchedulerConfiguration.", RequiresOption("cluster_config")
    )


@with_options
def simulate(
    options: SimulationOptions,
    inputs: InputsWithRunningPods,
    arrivals: ArrivalOptions,
    evictions: EvictionOptions,
    configs: SimonOptions,
    server: PolicyServer,
) -> None:
    """Simulate one policy on one workload, and write where every pod was placed or why it did not fit.

    Prints the run's metrics and writes placements.csv (one line for each event: node, GPUs, reason of a failure),
    timeline.csv (allocation, fragmentation and balance after each event), metrics.csv and replay.json.gz (nodes, pods
    and options, for **dashboard**). The same seed gives the same files.

    **Example**: steersman simulate --nodes nodes.csv --pods monday.csv --policy fgd --output run
    """
    server.use()
    if configs.cluster_config is not None:
        for name in given_options(inputs, arrivals, evictions):
            raise UsageError(f"--cluster-config defines the workload and how its pods arrive; leave out {flag(name)}")
        if configs.scheduler_config is None and options.policy is None:
            raise UsageError("--cluster-config needs a policy; give --scheduler-config or --policy")
    else:
        inputs.check()
        if options.policy is None:
            raise UsageError("--policy is missing; give one, such as --policy steersman (see --help)")

    # The imports below are slow, so the options are checked first.
    from steersman.evaluation.results import RUN_FILES, check_output
    from steersman.policies.registry import check_policy_names

    check_output(options.output, RUN_FILES)
    if options.policy is not None:
        check_pods_wait([options.policy], arrivals.protocol or Protocol.INFLATION)
    warn = Warnings()
    if configs.cluster_config is not None:
        plan = read_plan(configs.cluster_config, configs.scheduler_config, options, warn)
    else:
        if options.order is not None:
            options = replace(options, policy=f"{options.policy}+{options.order}", order=None)
        live = inputs.live if inputs.cluster else None
        (policy,) = with_minor([str(options.policy)], options.kubernetes, live)
        check_policy_names([policy])
        (source,) = inputs.read(warn, RunningPods.REPLAYED if arrivals.protocol is Protocol.TIMED else None)
        source = evictions.applied(source)
        arrivals.warn_of(source, warn)
        seed = FIRST_SEED if options.seed is None else options.seed
        plan = SimulationPlan(source, policy, seed, arrivals)
    with using_folder(options.output):
        run_and_write(plan, options, warn)


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    workload: Workload
    policy: str
    seed: int
    arrivals: ArrivalOptions
    profile: tuple[TypicalPod, ...] | None = None  # workload profile; None: the typical pods of the workload
    shuffle: bool = True  # whether inflation draws the pods in random order


def read_plan(
    cluster_config: Path, scheduler_config: Path | None, options: SimulationOptions, warn: Warnings
) -> SimulationPlan:
    """Return the run that a `simon/v1alpha1 Config` and a KubeSchedulerConfiguration describe.

    A workload with a tuning ratio runs in the inflation protocol. One without arrives in its own order or, with
    `shufflePod`, in the random order that simon's seed gives.
    """
    from steersman.workloads.experiments import EXPERIMENT_FORMATS
    from steersman.workloads.generators.inflation import GoRand
    from steersman.workloads.profile import typical_pods

    cluster, scheduler = EXPERIMENT_FORMATS.find("simon").read(cluster_config, scheduler_config)
    if not 0 <= cluster.ratio <= MAX_RATIO:
        problem = f"{cluster.ratio:g} is out of range; must be above 0 and at most {MAX_RATIO:g}, or 0 for no tuning"
        raise InputError(cluster.file, "", "spec.customConfig.workloadTuningConfig.ratio", problem)
    warn((*cluster.warnings, *(scheduler.warnings if scheduler is not None else ())))
    chosen = str(options.policy) if scheduler is None else scheduler.policy(options.policy)
    (chosen,) = with_minor([chosen], options.kubernetes)
    workload = cluster.load()
    warn(workload.warnings)
    profile = typical_pods(
        workload.pods, popularity_percent=cluster.popularity_percent, cpu_pods=cluster.cpu_pods_typical
    )
    seed = cluster.seed if options.seed is None else options.seed
    if cluster.ratio:
        arrivals = ArrivalOptions(ratio=cluster.ratio)
        return SimulationPlan(workload, chosen, seed, arrivals, profile, cluster.shuffle_pods)
    if cluster.shuffle_pods:
        # As simon's SortClusterPods, so that the seed gives its order.
        pods = sorted(workload.pods, key=lambda pod: pod.name)
        random = GoRand(seed)
        random.skip(1)  # simon draws a number for its log
        random.shuffle(pods)
        workload = replace(workload, pods=tuple(pods))
    return SimulationPlan(workload, chosen, seed, ArrivalOptions(Protocol.ARRIVALS), profile)


def run_and_write(plan: SimulationPlan, options: SimulationOptions, warn: Warnings) -> None:
    from steersman.cli.output.tables import metric_records, run_table
    from steersman.evaluation.replay_file import RunOptions, replay_file
    from steersman.evaluation.results import RUN_FILES, metrics_csv, staged, write_run
    from steersman.policies.registry import resolve
    from steersman.simulation.run import Simulator

    with attribute_errors(f"policy {plan.policy!r}"):
        policy = resolve(plan.policy)
    warn(plan.workload.warnings)
    simulator = Simulator(plan.workload, plan.profile)
    with Progress("simulating") as progress:
        run = simulator.run(
            policy,
            seed=plan.seed,
            shuffle=plan.shuffle,
            record=True,
            progress=progress.update,
            **plan.arrivals.settings,
        )
    warn(run.warnings)
    replayed = RunOptions(plan.policy, *plan.arrivals.numbers, plan.shuffle, plan.profile)
    with staged(options.output, RUN_FILES) as stage:
        write_run(stage, run, replay_file(plan.workload, replayed, run.policy, run.protocol, run.seed))
    try:
        if options.output_format is Format.CSV:
            print(metrics_csv([run]), end="")
        elif options.output_format is Format.JSON:
            print_json(metric_records(run))
        else:
            print_table(run_table(run))
    finally:  # also if standard output was closed (`| head`)
        if run.choice:
            say(f"{run.policy}: {run.choice}")
        say(f"wrote placements.csv, timeline.csv, metrics.csv and replay.json.gz to {options.output}")
