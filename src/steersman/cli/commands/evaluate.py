"""`steersman evaluate`: comparison of policies on the user's own nodes and pods, or on generated clusters."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from steersman.cli.completing import policies
from steersman.cli.options.arrivals import (
    GENERATED,
    RATIO,
    AnyProtocol,
    ComparedArrivalOptions,
    EvictionOptions,
    GeneratedCluster,
    Protocol,
    deployments_options,
    latency_options,
)
from steersman.cli.options.common import KubernetesOption, ObjectiveOption, order_option, parse_seeds, policy_option
from steersman.cli.options.declaring import (
    Excludes,
    RequiresProtocol,
    advanced,
    given_options,
    option,
    spelled,
    to_arguments,
    with_options,
)
from steersman.cli.options.inputs import InputsWithRunningPods
from steersman.cli.options.policies import (
    KUBE_DEFAULT,
    PolicyServer,
    check_pods_wait,
    check_policies,
    chosen_minor,
    cluster_baseline,
    is_to_be_found,
)
from steersman.cli.options.results import BEGUN, Results, naming_continuation
from steersman.cli.options.training import setting_parameters, settings_of
from steersman.cli.output.display import Warnings, say
from steersman.cli.output.logs import check_log_file, log_messages
from steersman.core.config.fields import flag
from steersman.core.engines import use_engine
from steersman.core.errors import UsageError
from steersman.core.folder_lock import using_folder
from steersman.workloads.workload import RunningPods, Workload

if TYPE_CHECKING:
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.generated import GeneratedOptions
    from steersman.objectives.registry import WeightedObjectives

DEFAULT_POLICIES = (KUBE_DEFAULT, "fgd", "steersman")
GENERATED_POLICIES = {"deployments": (KUBE_DEFAULT, "least-allocated"), "latency": (KUBE_DEFAULT, "la")}
"""The defaults on clusters that seeds generate, which have no GPUs."""


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    policy: list[str] | None = policy_option(
        "Policies to compare, one or several", f" [default: {' '.join(DEFAULT_POLICIES)}]"
    )
    order: list[str] | None = order_option(
        "Orders of waiting pods, with each of which policies are compared",
        " [default: that of the policy, else age]",
        RequiresProtocol("timed", is_stated=True),
    )
    baseline: str | None = option(
        "Policy that the others are compared with. [default: the first --policy]",
        metavar="POLICY",
        autocompletion=policies,
    )
    kubernetes: KubernetesOption = None
    objective: ObjectiveOption = None
    seeds: str = option(
        "Number of seeds, or the seeds, such as 42-51 or 1,2,5-7; each policy runs once for each.",
        default="10",
        metavar="SEEDS",
    )
    bound: bool = advanced(
        "Also compute and plot an upper bound of the GPUs that any scheduler could allocate, by linear "
        "programming. For inflation and arrivals; needs the extra report.",
        RequiresProtocol("inflation", "arrivals"),
        Excludes("pinned"),
        Excludes("from_now"),
        default=False,
    )


@partial(with_options, declared=setting_parameters)
def evaluate(
    options: ComparisonOptions,
    results: Results,
    inputs: InputsWithRunningPods,
    arrivals: ComparedArrivalOptions,
    evictions: EvictionOptions,
    generated: GeneratedCluster,
    server: PolicyServer,
    invocation: typer.Context,
    **settings: Any,
) -> None:
    """Compare policies by simulation on your own nodes and pods: which one should this cluster run?

    Simulates every policy on every workload with every seed and compares them seed by seed with a baseline. Prints a
    table and writes report.html (plots), results.csv (allocation over each run), metrics.csv (all metrics of each run)
    and summary.csv (means and differences with 95 % intervals). The same seeds give the same files. --resume with
    --output alone continues an interrupted comparison to the same files.

    **Example**: steersman evaluate --cluster --policy kube-default fgd steersman --output comparison

    steersman evaluate --nodes nodes.csv --pods monday.csv tuesday.csv --policy kube-default fgd --output comparison

    steersman evaluate --cluster --policy kube-default least-allocated --objective balance,most-allocated --output even

    steersman evaluate --protocol deployments --policy kube-default most-even run/policy.safetensors --output even
    """
    server.use()
    seeds = parse_seeds(options.seeds)
    latency = settings_of(arrivals.protocol or "the protocols of workloads", settings)
    environment: GeneratedOptions | None = None
    if arrivals.protocol in GENERATED:
        if len(arrivals.load or ()) > 1:
            raise UsageError(f"--load: --protocol {arrivals.protocol} takes one; {len(arrivals.load or ())} are given")
        of_cluster = given_options(generated) | ({} if arrivals.load is None else {"load": arrivals.load[0]})
        is_latency = arrivals.protocol == AnyProtocol.LATENCY
        environment = latency_options(of_cluster, latency, {}) if is_latency else deployments_options(of_cluster, {})
    else:
        inputs.check(several=True)
    check_log_file(results.log_file)

    # The imports below are slow, so the options are checked first.
    from steersman.cli.comparison import ReportNotes, compare, show
    from steersman.evaluation.criteria import parse_objectives
    from steersman.evaluation.experiment import generated_experiment
    from steersman.evaluation.finished_runs import read_made
    from steersman.evaluation.results import CLUSTER_SCHEDULER, EVALUATION_FILES, FINISHED, check_output
    from steersman.policies.registry import in_order_by_name, of_minor

    objectives = parse_objectives(options.objective or ())
    check_output(results.output, EVALUATION_FILES)
    made = read_made(results.output) if results.resume else {}
    chosen = options.policy or list(GENERATED_POLICIES.get(arrivals.protocol or "", DEFAULT_POLICIES))
    check_pods_wait([*chosen, *([options.baseline] if options.baseline else [])], arrivals.protocol)
    if options.order:
        chosen = [in_order_by_name(each, order) for order in options.order for each in chosen]
    compared = [*chosen, *([options.baseline] if options.baseline else [])]
    minor = chosen_minor(compared, options.kubernetes, inputs.live if inputs.cluster else None)
    stated = None if options.baseline is None else of_minor(options.baseline, minor)
    finds_baseline = inputs.cluster and is_to_be_found(chosen, options.baseline)
    chosen = [of_minor(each, minor) for each in chosen]
    baseline = check_policies(chosen, stated)
    options = replace(options, policy=chosen, baseline=baseline, order=None, kubernetes=None)
    log_messages(results.log_file)
    warn = Warnings()
    if environment is not None:
        experiments, reason = [generated_experiment(environment, tuple(chosen), seeds, objectives)], ""
    else:
        is_replayed = arrivals.protocol == AnyProtocol.TIMED
        read = inputs.read(warn, RunningPods.REPLAYED if is_replayed else None)
        workloads = tuple(map(evictions.applied, read))
        experiments, reason = experiments_on(workloads, tuple(chosen), seeds, arrivals, objectives)
        warn_and_check(experiments, options, warn)
    # Not `results` and `server`: they change no result.
    drawn = [part for name, value in settings.items() for part in spelled(flag(name), value)]
    recorded = [*to_arguments(options, inputs, arrivals, evictions, generated), *drawn]
    command = shlex.join(["steersman", "evaluate", *recorded, "--output", results.output.name])
    with (
        using_folder(results.output),
        tempfile.TemporaryDirectory(prefix="steersman-") as folder,
        use_engine(results.engine, results.jobs) as jobs,
        naming_continuation(invocation.meta[BEGUN], results.output, FINISHED),
    ):
        for name, (content, _) in made.items():
            Path(folder, name).write_bytes(content)
        scheduler = Path(folder, CLUSTER_SCHEDULER)
        if finds_baseline and not results.resume:
            found = cluster_baseline(inputs.live, workloads[0], scheduler, minor)
            if found is not None:
                made[scheduler.name] = scheduler.read_bytes(), found.removeprefix(str(scheduler))
        if scheduler.name in made:
            baseline = f"{scheduler}{made[scheduler.name][1]}"
            experiments = [replace(each, policies=(baseline, *each.policies)) for each in experiments]
        notes = ReportNotes(command, reason, kept=tuple(Path(folder, name) for name in made))
        outcomes = compare(
            experiments,
            results,
            notes,
            jobs=jobs,
            baseline=baseline,
            warn=warn,
            bound=options.bound,
            command=invocation.meta[BEGUN],
            made=made,
        )
    if reason:
        say(f"compared in {' and '.join(each.protocol for each in experiments)}: {reason} (--protocol selects one)")
    try:
        show(outcomes, results.output_format)
    finally:  # also if standard output was closed (`| head`)
        for choice in [choice for each in outcomes for choice in each.choices]:
            say(choice)
        names = ["report.html", "results.csv", "metrics.csv", *(each.name for each in notes.kept)]
        say(f"wrote {', '.join(names)} and summary.csv to {results.output}")


def experiments_on(
    workloads: tuple[Workload, ...],
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    arrivals: ComparedArrivalOptions,
    objectives: tuple[WeightedObjectives, ...],
) -> tuple[list[Experiment], str]:
    """Return a comparison on workloads for each protocol, and why these, if the data chose them."""
    from steersman.evaluation.criteria import check_objectives
    from steersman.evaluation.experiment import Experiment
    from steersman.simulation.protocols import ProtocolChoice, choose_protocols

    if arrivals.protocol is None:
        protocols, reason = choose_protocols(workloads, mean_duration=arrivals.mean_duration)
    else:
        protocols, reason = ProtocolChoice((Protocol(arrivals.protocol).value,), "")
    for name, owner in (("ratio", "inflation"), ("mean_duration", "timed")):
        if name in given_options(arrivals) and owner not in protocols:
            raise UsageError(f"{flag(name)} belongs to {owner}, which is not a protocol of this comparison: {reason}")
    defined = check_objectives(objectives, workloads, protocols)
    if defined != protocols:
        protocols, reason = defined, f"{reason}; in others an objective is undefined"
    loads = arrivals.load or []
    several = tuple(loads) if len(loads) > 1 else ()
    if several:
        workloads = tuple(replace(each, name=f"{each.name}@{load:g}") for load in several for each in workloads)
    experiment = Experiment(
        workloads,
        policies,
        seeds,
        ratio=RATIO if arrivals.ratio is None else arrivals.ratio,
        load=loads[0] if len(loads) == 1 else None,
        loads=tuple(load for load in several for _ in range(len(workloads) // len(several))),
        objectives=objectives,
    )
    durations = {"timed": arrivals.mean_duration}
    return [replace(experiment, protocol=name, mean_duration=durations.get(name)) for name in protocols], reason


def warn_and_check(experiments: Sequence[Experiment], options: ComparisonOptions, warn: Warnings) -> None:
    """Print what is assumed of durations. Raises UsageError: there is no bound on a workload."""
    from steersman.evaluation.bound.gpu_bound import check_bound
    from steersman.simulation.protocols import duration_warnings

    protocols = [each.protocol for each in experiments if each.protocol != "timed"]
    for source in experiments[0].workloads:
        for timed in experiments:
            if timed.protocol == "timed":
                load = timed.loads[0] if timed.loads else timed.load
                warn(duration_warnings(source, load, timed.mean_duration))
        if options.bound:
            check_bound(source, next(iter(protocols), "inflation"))
