"""`steersman evaluate`: comparison of policies on the user's own nodes and pods."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.completing import policies
from steersman.cli.fitting import FitFirst, FitSeconds, describe_fit, fit_workload
from steersman.cli.generated_comparison import (
    check_generated_options,
    compare_generated,
    environment_of,
    to_arguments,
)
from steersman.cli.options.algorithms import settings_of, with_options
from steersman.cli.options.common import (
    POLICIES_HELP,
    AnyProtocol,
    Format,
    FormatOption,
    FromNow,
    Jobs,
    Load,
    MeanDuration,
    Nodes,
    ObjectiveOption,
    Output,
    Pinned,
    Protocol,
    ProtocolsOption,
    Ratio,
    Strict,
    check_load,
    check_mean_duration,
    check_ratio,
    parse_seeds,
    path,
    running_of,
)
from steersman.cli.options.generated import (
    GENERATED,
    OPTION_PROTOCOLS,
    GeneratedCluster,
    given_options,
)
from steersman.cli.options.inputs import (
    ClusterContext,
    ClusterKubeconfig,
    ClusterOfName,
    FromCluster,
    Inputs,
    LiveSource,
    WorkloadNames,
)
from steersman.cli.options.policies import check_policies
from steersman.cli.options.policy_server import PolicyServer
from steersman.cli.output.display import Warnings, say
from steersman.cli.output.logs import MessagesFileOption, check_log_file, log_messages
from steersman.core.config.fields import flag
from steersman.core.errors import UsageError
from steersman.core.processes import (
    default_jobs,
)
from steersman.core.redaction import redact_url

if TYPE_CHECKING:
    from steersman.evaluation.experiment import Experiment

DEFAULT_POLICIES = ("kube-default", "fgd", "steersman")
GENERATED_POLICIES = {"deployments": ("kube-default", "least-allocated"), "latency": ("kube-default", "la")}
"""The defaults on clusters that seeds generate, which have no GPUs."""
DEFAULT_OUTPUT = Path("comparison")


@with_options
def evaluate(
    generated: GeneratedCluster,
    server: PolicyServer,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=policies,
            help=f"Policies to compare, one or several: {POLICIES_HELP} [default: {' '.join(DEFAULT_POLICIES)}]",
        ),
    ] = None,
    output: Output = DEFAULT_OUTPUT,
    nodes: Nodes = None,
    pods: Annotated[
        list[Path] | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Pods of the workloads, one or several files: openb pod lists (CSV), or files or folders of "
            "Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadNames = None,
    cluster: FromCluster = False,
    seeds: Annotated[
        str,
        typer.Option(
            metavar="SEEDS",
            help="Number of seeds, or the seeds, such as 42-51 or 1,2,5-7; each policy runs once for each.",
        ),
    ] = "10",
    protocol: ProtocolsOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    objective: ObjectiveOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=policies,
            help="Policy that the others are compared with. [default: the first --policy]",
        ),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Also compute and plot an upper bound of the GPUs that any scheduler could allocate, by linear "
            "programming. For inflation and arrivals; needs the extra report.",
        ),
    ] = False,
    fit: FitFirst = False,
    fit_seconds: FitSeconds = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    strict: Strict = False,
    jobs: Jobs = None,
    output_format: FormatOption = Format.TABLE,
    log_file: MessagesFileOption = None,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
    name: ClusterOfName = None,
    **settings: Any,
) -> None:
    """Compare policies by simulation on your own nodes and pods: which one should this cluster run?

    Simulates every policy on every workload with every seed and compares them seed by seed with a baseline. Prints a
    table and writes report.html (plots), results.csv (allocation over each run), metrics.csv (all metrics of each run)
    and summary.csv (means and differences with 95 % intervals). The same seeds give the same files, except for a policy
    of --fit, whose search is limited by time.

    **Examples**:

    steersman evaluate --cluster --policy kube-default fgd steersman --output comparison

    steersman evaluate --nodes nodes.csv --pods monday.csv tuesday.csv --policy kube-default fgd --output comparison

    steersman evaluate --cluster --policy kube-default least-allocated --objective balance,most-allocated --output even

    steersman evaluate --protocol deployments --policy kube-default most-even run/policy.safetensors --output even
    """
    server.use()
    chosen = tuple(policy) if policy else GENERATED_POLICIES.get(protocol or "", DEFAULT_POLICIES)
    if protocol in GENERATED:
        given = {
            "--nodes": nodes,
            "--pods": pods,
            "--workload": workload,
            "--cluster": cluster,
            "--ratio": ratio,
            "--mean-duration": mean_duration,
            "--bound": bound,
            "--fit": fit,
            "--fit-seconds": fit_seconds,
            "--pinned": pinned,
            "--from-now": from_now,
            "--strict": strict,
            "--kubeconfig": kubeconfig,
            "--context": context,
            "--name": name,
        }
        check_generated_options(protocol, [name for name, value in given.items() if value], generated)
        of_cluster = given_options(generated) | ({} if load is None else {"load": load})
        environment = environment_of(protocol, of_cluster, settings_of(protocol, settings))
        compare_generated(
            environment,
            chosen,
            parse_seeds(seeds),
            objective=objective,
            baseline=baseline,
            output=output,
            jobs=jobs,
            output_format=output_format,
            arguments=[*to_arguments(of_cluster | settings), "--seeds", seeds],
        )
        return
    settings_of(protocol or "the protocols of workloads", settings)
    for option in given_options(generated):
        owners = OPTION_PROTOCOLS.get(option, ("deployments",))
        raise UsageError(f"{flag(option)} belongs to --protocol {' or '.join(owners)}")
    running = running_of(pinned, from_now, protocol)
    live = LiveSource(cluster, kubeconfig, context, name)
    inputs = Inputs(nodes, tuple(pods or ()), tuple(workload or ()), live, running, strict)
    seed_list = parse_seeds(seeds)
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    if bound and protocol == AnyProtocol.TIMED:
        raise UsageError("--bound belongs to --protocol inflation and arrivals, not to timed")
    if bound and (pinned or from_now):
        option = "--pinned" if pinned else "--from-now"
        raise UsageError(f"--bound does not support pods that stay on their nodes; leave out {option} or --bound")
    if fit_seconds is not None and not fit:
        raise UsageError("--fit-seconds belongs to --fit; give that too, or leave it out")
    if fit and inputs.count > 1:
        raise UsageError(f"--fit fits a policy to one workload, and {inputs.count} are given; give one")

    check_log_file(log_file)

    # The imports below load numba, which is slow, so the options are checked first.
    from steersman.cli.comparison import compare, show
    from steersman.evaluation.bound.gpu_bound import check_bound
    from steersman.evaluation.criteria import check_objectives, parse_objectives
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import EVALUATION_FILES, FITTED
    from steersman.simulation.protocols import ProtocolChoice, choose_protocols, duration_warnings

    objectives = parse_objectives(objective or ())
    check_output(output, EVALUATION_FILES)
    baseline = check_policies(chosen, baseline, fit=fit)
    log_messages(log_file)
    warn = Warnings()
    workloads = inputs.read(warn)
    protocols, reason = (
        choose_protocols(workloads, mean_duration=mean_duration)
        if protocol is None
        else ProtocolChoice((Protocol(protocol).value,), "")
    )
    for option, value, owner in (("ratio", ratio, "inflation"), ("mean-duration", mean_duration, "timed")):
        if value is not None and owner not in protocols:
            raise UsageError(f"--{option} belongs to {owner}, which is not a protocol of this comparison: {reason}")
    defined = check_objectives(objectives, workloads, protocols)
    if defined != protocols:
        protocols, reason = defined, f"{reason}; in others an objective is undefined"
    experiments = [
        Experiment(
            workloads,
            chosen,
            seed_list,
            name,
            share,
            load,
            mean_duration if name == "timed" else None,
            objectives,
        )
        for name in protocols
    ]
    if "timed" in protocols:
        warn([warning for source in workloads for warning in duration_warnings(source, load, mean_duration)])
    if bound:
        for source in workloads:
            check_bound(source, next((name for name in protocols if name != "timed"), "inflation"))
    options = inputs.to_arguments()
    options += [part for each in chosen for part in ("--policy", redact_url(each))]
    options += ["--seeds", seeds, "--baseline", redact_url(baseline)]
    options += [part for each in objectives for part in ("--objective", each.name)]
    options += ["--protocol", protocol.value] if protocol is not None else []
    options += ["--ratio", f"{share:g}"] if "inflation" in protocols else []
    options += ["--load", f"{load:g}"] if load is not None else []
    options += ["--mean-duration", f"{mean_duration:g}s"] if mean_duration is not None else []
    options += ["--bound"] if bound else []
    options += ["--fit"] if fit else []
    options += ["--fit-seconds", f"{fit_seconds:g}"] if fit_seconds is not None else []
    processes = jobs or default_jobs()
    with tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        fit_note, files = "", []
        if fit:
            experiments, fit_note = fit_to(experiments, Path(folder, FITTED), fit_seconds, processes)
            files = [Path(folder, FITTED)]
        outcomes = compare(
            experiments,
            baseline=baseline,
            output=output,
            jobs=processes,
            command=shlex.join(["steersman", "evaluate", *options, "--output", output.name]),
            warn=warn,
            bound=bound,
            reason=reason,
            fitted=fit_note,
            kept=files,
        )
    if reason:
        say(f"compared in {' and '.join(protocols)}: {reason} (--protocol selects one)")
    try:
        show(outcomes, output_format)
    finally:  # also if standard output was closed (`| head`)
        names = ["report.html", "results.csv", "metrics.csv", *([FITTED] if fit else []), "summary.csv"]
        for choice in [choice for each in outcomes for choice in each.choices]:
            say(choice)
        say(f"wrote {', '.join(names[:-1])} and {names[-1]} to {output}")


def fit_to(
    experiments: Sequence[Experiment], file: Path, seconds: float | None, jobs: int
) -> tuple[list[Experiment], str]:
    """Fit a policy to the workload of experiments, as `policy fit` does, and add it to them.

    Args:
        experiments: experiments on one workload that differ in their protocols alone.
        file: policy file to write; its name becomes the policy's name.
        seconds: duration of the search; None: by the number of nodes.
        jobs: number of processes.

    Returns:
        The experiments with the fitted policy, and a sentence on what was kept.

    Raises:
        UsageError: the workload has no GPUs.
    """
    from steersman.policies.files.policy_file import write_policy

    fitted_to = next((experiment for experiment in experiments if experiment.protocol == "timed"), experiments[0])
    if any(experiment.protocol != "timed" for experiment in experiments):
        fitted_to = replace(fitted_to, protocol="inflation", load=None, mean_duration=None)
    fitted = fit_workload(
        fitted_to.workloads[0],
        fitted_to.protocol,
        ratio=fitted_to.ratio,
        load=fitted_to.load,
        mean_duration=fitted_to.mean_duration,
        seconds=seconds,
        jobs=jobs,
    )
    write_policy(file, fitted.card, fitted.arrays)
    note = describe_fit(fitted)
    say(note)
    extended = [replace(experiment, policies=(*experiment.policies, str(file))) for experiment in experiments]
    return extended, note
