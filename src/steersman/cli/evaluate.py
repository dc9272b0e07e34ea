"""`steersman evaluate`: schedulers side by side on the user's own nodes and pods."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import Warnings, say
from steersman.cli.fitting import FitFirst, FitSeconds, fit_workload, kept
from steersman.cli.inputs import ClusterContext, ClusterKubeconfig, FromCluster, Inputs, LiveSource, WorkloadNames
from steersman.cli.options import (
    POLICIES_HELP,
    Format,
    FormatOption,
    FromNow,
    Jobs,
    Load,
    MeanDuration,
    Nodes,
    Output,
    Pinned,
    Protocol,
    ProtocolsOption,
    Ratio,
    check_load,
    check_mean_duration,
    check_ratio,
    default_jobs,
    parse_seeds,
    path,
    running_of,
)
from steersman.errors import UsageError

if TYPE_CHECKING:
    from steersman.evaluation.experiment import Experiment


def evaluate(
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="POLICY",
            help=f"The schedulers to try, one or several: {POLICIES_HELP}",
        ),
    ],
    output: Output,
    nodes: Nodes = None,
    pods: Annotated[
        list[Path] | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="The workloads, one or several: openb pod lists (CSV), or files or folders of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadNames = None,
    cluster: FromCluster = False,
    seeds: Annotated[str, typer.Option(metavar="SEEDS", help="Repetitions: 42, 42-51 or 1,2,5-7.")] = "42-51",
    protocol: ProtocolsOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="What the others are compared with. [default: the first --policy]"),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Also compute how much GPU any scheduler could allocate, and draw it: an upper bound by linear "
            "programming. inflation and arrivals only; needs the extra report.",
        ),
    ] = False,
    fit: FitFirst = False,
    fit_seconds: FitSeconds = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    jobs: Jobs = None,
    output_format: FormatOption = Format.TABLE,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
) -> None:
    """Which scheduler should this cluster run, and what would it gain?

    Simulates every policy on every workload with every seed, compares them seed by seed with a baseline, prints a
    table and writes report.html (plots), results.csv (the course of every run), metrics.csv (every metric of every
    run) and summary.csv (means and differences with 95 % intervals). The same seeds give the same files (but for a
    policy of --fit, whose search ends by the clock).

    **Examples**:

    steersman evaluate --cluster --policy kube-default fgd steersman --output comparison

    steersman evaluate --nodes nodes.csv --pods monday.csv tuesday.csv --policy kube-default fgd --output comparison
    """
    running = running_of(pinned, from_now, protocol)
    live = LiveSource(cluster, kubeconfig, context)
    inputs = Inputs(nodes, tuple(pods or ()), tuple(workload or ()), live, running)
    seed_list = parse_seeds(seeds)
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    if bound and protocol is Protocol.TIMED:
        raise UsageError("--bound belongs to --protocol inflation and arrivals, not to timed")
    if bound and from_now:
        raise UsageError("--bound does not know pods that stand where they are; leave out --from-now or --bound")
    if fit_seconds is not None and not fit:
        raise UsageError("--fit-seconds belongs to --fit; give that too, or leave it out")
    if fit and inputs.count > 1:
        raise UsageError(f"--fit fits a policy to one workload, and these are {inputs.count}; give one of them")

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.cli.comparison import compare, show
    from steersman.evaluation.bound import check_bound
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import EVALUATION_FILES, FITTED
    from steersman.simulation.protocols import Choice, choose_protocols, duration_warnings

    check_output(output, EVALUATION_FILES)
    chosen = check_policies(policy, baseline, fit=fit)
    warn = Warnings()
    workloads = inputs.read(warn)
    protocols, reason = (
        choose_protocols(workloads, mean_duration=mean_duration) if protocol is None else Choice((protocol.value,), "")
    )
    for name, value, only in (("ratio", ratio, "inflation"), ("mean-duration", mean_duration, "timed")):
        if value is not None and only not in protocols:
            raise UsageError(f"--{name} belongs to {only}, which this comparison is not in: {reason}")
    experiments = [
        Experiment(workloads, tuple(policy), seed_list, each, share, load, mean_duration if each == "timed" else None)
        for each in protocols
    ]
    if "timed" in protocols:
        warn([said for each in workloads for said in duration_warnings(each, load, mean_duration)])
    if bound:
        for each in workloads:
            check_bound(each, next((name for name in protocols if name != "timed"), "inflation"))
    options = inputs.words()
    options += [part for name in policy for part in ("--policy", name)]
    options += ["--seeds", seeds, "--baseline", chosen]
    options += ["--protocol", protocol.value] if protocol is not None else []
    options += ["--ratio", f"{share:g}"] if "inflation" in protocols else []
    options += ["--load", f"{load:g}"] if load is not None else []
    options += ["--mean-duration", f"{mean_duration:g}s"] if mean_duration is not None else []
    options += ["--bound"] if bound else []
    options += ["--fit"] if fit else []
    options += ["--fit-seconds", f"{fit_seconds:g}"] if fit_seconds is not None else []
    processes = jobs or default_jobs()
    with tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        said, files = "", []
        if fit:
            experiments, said = fit_to(experiments, Path(folder, FITTED), fit_seconds, processes)
            files = [Path(folder, FITTED)]
        outcomes = compare(
            experiments,
            baseline=chosen,
            output=output,
            jobs=processes,
            command=shlex.join(["steersman", "evaluate", *options, "--output", output.name]),
            warn=warn,
            bound=bound,
            reason=reason,
            fitted=said,
            kept=files,
        )
    if reason:
        say(f"compared in {' and '.join(protocols)}: {reason} (--protocol chooses one)")
    try:
        show(outcomes, output_format)
    finally:  # also where nobody reads the table (`| head`)
        names = ["report.html", "results.csv", "metrics.csv", *([FITTED] if fit else []), "summary.csv"]
        say(f"wrote {', '.join(names[:-1])} and {names[-1]} to {output}")


def fit_to(
    experiments: Sequence[Experiment], file: Path, seconds: float | None, jobs: int
) -> tuple[list[Experiment], str]:
    """Fit a policy to the workload of experiments, as `policy fit` does, and say what was kept.

    Args:
        experiments: of one workload, the same but for their protocols.
        file: where the policy goes; its name is the policy's.
        seconds: of the search, None: by the number of nodes.
        jobs: processes.

    Returns:
        The experiments with the policy, and what was kept.

    Raises:
        UsageError: the workload has no GPUs.
    """
    from steersman.policies.policy_file import write_policy

    played = next((each for each in experiments if each.protocol == "timed"), experiments[0])
    if any(each.protocol != "timed" for each in experiments):
        played = replace(played, protocol="inflation", load=None, mean_duration=None)
    found = fit_workload(
        played.workloads[0],
        played.protocol,
        ratio=played.ratio,
        load=played.load,
        mean_duration=played.mean_duration,
        seconds=seconds,
        jobs=jobs,
    )
    write_policy(file, found.card, found.arrays)
    said = kept(found)
    say(said)
    return [replace(each, policies=(*each.policies, str(file))) for each in experiments], said


def check_policies(policies: Sequence[str], baseline: str | None, *, fit: bool = False) -> str:
    """Return the baseline's name, after all names were found to be policies.

    Args:
        policies: as they were given.
        baseline: one of them, None: the first.
        fit: whether one is fitted besides.

    Raises:
        UsageError: a policy is unknown or has a name that means something else, or the baseline is none of them.
    """
    from steersman.evaluation.limits import BOUND
    from steersman.extensions import attribute_errors
    from steersman.policies.registry import resolve
    from steersman.simulation.run import AS_IT_IS
    from steersman.training.fit import FITTED

    taken = {BOUND: "the limit", AS_IT_IS: "the recorded placement"}
    taken |= {FITTED: "the policy of --fit"} if fit else {}
    specs: dict[str, str] = {}
    for spec in policies:
        with attribute_errors(f"policy {spec!r}"):
            label = resolve(spec).name
        if label in taken:
            raise UsageError(
                f"--policy {spec} is called {label}, as {taken[label]} is in results; give it another name"
            )
        if label in specs:
            raise UsageError(
                f"--policy {spec} and {specs[label]} are both called {label}; results could not tell them apart"
            )
        specs[label] = spec
    if baseline is not None and baseline not in policies:
        raise UsageError(f"--baseline {baseline}: must be one of the policies that run: {', '.join(policies)}")
    return baseline if baseline is not None else policies[0]
