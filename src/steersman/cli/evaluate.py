"""`steersman evaluate`: schedulers side by side on the user's own nodes and pods."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from steersman.cli.display import Warnings, say
from steersman.cli.options import (
    NODES_HELP,
    POLICIES_HELP,
    Format,
    FormatOption,
    FromNow,
    Jobs,
    Load,
    Output,
    Pinned,
    Protocol,
    ProtocolOption,
    Ratio,
    check_load,
    check_ratio,
    default_jobs,
    parse_seeds,
    path,
    running_of,
)
from steersman.errors import UsageError


def evaluate(
    nodes: Annotated[Path, typer.Option(parser=path, metavar="FILE", help=NODES_HELP)],
    pods: Annotated[
        list[Path],
        typer.Option(
            parser=path,
            metavar="FILE",
            help="The workloads, one or several: openb pod lists (CSV), or files or folders of Kubernetes YAML.",
        ),
    ],
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="POLICY",
            help=f"The schedulers to try, one or several: {POLICIES_HELP}",
        ),
    ],
    output: Output,
    seeds: Annotated[str, typer.Option(metavar="SEEDS", help="Repetitions: 42, 42-51 or 1,2,5-7.")] = "42-51",
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="What the others are compared with. [default: the first --policy]"),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Also compute how much GPU any scheduler could allocate, and draw it: an upper bound by linear "
            "programming. inflation and arrivals only; needs steersman[report].",
        ),
    ] = False,
    pinned: Pinned = False,
    from_now: FromNow = False,
    jobs: Jobs = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Which scheduler should this cluster run, and what would it gain?

    Simulates every policy on every workload with every seed, compares them seed by seed with a baseline, prints a
    table and writes report.html (plots), results.csv (the course of every run), metrics.csv (every metric of every
    run) and summary.csv (means and differences with 95 % intervals). The same seeds give the same files.

    **Example**: steersman evaluate --nodes nodes.csv --pods monday.csv tuesday.csv --policy kube-default
    --policy fgd --output comparison
    """
    seed_list = parse_seeds(seeds)
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    if bound and protocol is Protocol.TIMED:
        raise UsageError("--bound belongs to --protocol inflation and arrivals, not to timed")

    if bound and from_now:
        raise UsageError("--bound does not know pods that stand where they are; leave out --from-now or --bound")
    running = running_of(pinned, from_now, protocol.value)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.cli.comparison import compare, show
    from steersman.cli.reading import read_workload
    from steersman.evaluation.bound import check_bound
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import EVALUATION_FILES

    check_output(output, EVALUATION_FILES)
    chosen = check_policies(policy, baseline)
    warn = Warnings()
    workloads = []
    for file in pods:
        workloads.append(read_workload(nodes, file, running, warn))
        if bound:
            check_bound(workloads[-1], protocol.value)
    experiment = Experiment(tuple(workloads), tuple(policy), seed_list, protocol.value, share, load)
    options = ["--nodes", nodes.name, "--pods", *(file.name for file in pods)]
    options += [part for name in policy for part in ("--policy", name)]
    options += ["--seeds", seeds, "--protocol", protocol.value, "--baseline", chosen]
    options += ["--ratio", f"{share:g}"] if protocol is Protocol.INFLATION else []
    options += ["--load", f"{load:g}"] if load is not None else []
    options += ["--bound"] if bound else []
    options += ["--pinned"] if pinned else []
    options += ["--from-now"] if from_now else []
    outcome = compare(
        experiment,
        baseline=chosen,
        output=output,
        jobs=jobs or default_jobs(),
        command=shlex.join(["steersman", "evaluate", *options, "--output", output.name]),
        warn=warn,
        bound=bound,
    )
    try:
        show(outcome, output_format)
    finally:  # also where nobody reads the table (`| head`)
        say(f"wrote report.html, results.csv, metrics.csv and summary.csv to {output}")


def check_policies(policies: Sequence[str], baseline: str | None) -> str:
    """The baseline's name, after all names were found to be policies.

    Raises:
        UsageError: a policy is unknown, or the baseline is none of them.
    """
    from steersman.evaluation.limits import BOUND
    from steersman.policies.own import blamed
    from steersman.policies.registry import resolve
    from steersman.simulation.run import AS_IT_IS

    specs: dict[str, str] = {}
    for spec in policies:
        with blamed(f"policy {spec!r}"):
            label = resolve(spec).name
        if label in (BOUND, AS_IT_IS):
            what = "the limit" if label == BOUND else "the recorded placement"
            raise UsageError(f"--policy {spec} is called {label}, as {what} is in results; give it another name")
        if label in specs:
            raise UsageError(
                f"--policy {spec} and {specs[label]} are both called {label}; results could not tell them apart"
            )
        specs[label] = spec
    if baseline is not None and baseline not in policies:
        raise UsageError(f"--baseline {baseline}: must be one of the policies that run: {', '.join(policies)}")
    return baseline if baseline is not None else policies[0]
