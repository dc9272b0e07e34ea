"""`steersman policy`: what is in a policy file, and a file that carries the mix it is used on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.deployment_options import parse_range
from steersman.cli.display import Warnings, print_table, said_if_slow, say
from steersman.cli.fitting import DURATION_HELP, fit_workload, kept
from steersman.cli.inputs import ClusterContext, ClusterKubeconfig, FromCluster, Inputs, LiveSource, WorkloadName
from steersman.cli.options import (
    Format,
    FormatOption,
    Jobs,
    Load,
    ManyValues,
    MeanDuration,
    Nodes,
    Pinned,
    Protocol,
    ProtocolOption,
    Ratio,
    check_load,
    check_mean_duration,
    check_ratio,
    default_jobs,
    path,
    running_of,
)
from steersman.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.policy_file import Arrays, Card
    from steersman.training.fit import Fit

app = typer.Typer(help="Look into policy files, and prepare them for use.", no_args_is_help=True)

KINDS = ("no GPU", "a share of one GPU", "one GPU", "several GPUs")
HEAVIEST = 8
"""Features shown for each kind of pod."""


@app.callback()
def policy() -> None:
    """What a learned policy is, where it came from and what it looks at."""


@app.command()
def show(
    file: Annotated[
        str,
        typer.Argument(
            metavar="POLICY", help="A policy file (run/policy.safetensors), or steersman or greedy-forecast."
        ),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show a policy's model card: what it was trained on and for, how it did, and its heaviest weights."""
    from steersman.policies.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(file) as found:
        card, arrays = read_policy(found)
    if output_format is Format.JSON:
        _print_json(card)
    elif output_format is Format.CSV:
        _print_csv(card)
    else:
        _print_tables(card, arrays)


@app.command()
def prepare(
    policy: Annotated[
        str,
        typer.Option(metavar="POLICY", help="A policy file (run/policy.safetensors), or steersman or greedy-forecast."),
    ],
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FILE", help="The prepared policy file, such as mine.safetensors.")
    ],
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="What is typical: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    pinned: Pinned = False,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
) -> None:
    """Bake what is typical of a workload into a policy file, so that it serves by itself.

    Without that, a policy derives from the workload that it is run on which pods are typical, and plans with them. A
    prepared policy brings this along, wherever it is used. Of the policy steersman, which is several, the member that
    does best on these nodes and pods in short simulations is prepared.

    **Example**: steersman policy prepare --policy run/policy.safetensors --nodes nodes.csv --pods monday.csv
    --output monday.safetensors
    """
    live = LiveSource(cluster, kubeconfig, context)
    running = running_of(pinned, False, None)
    inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), live, running)
    _check_output(output)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.policies.policy_file import prepare_policy, read_policy, write_policy
    from steersman.policies.registry import policy_path
    from steersman.simulation.comparison import choose_member

    with policy_path(policy) as found:
        read_policy(found)  # what is wrong with it is told before anything is said of the pods
        (typical,) = inputs.read(Warnings())
        with said_if_slow("planning"):
            card, arrays = prepare_policy(found, typical, choose_member)
    write_policy(output, card, arrays)
    chosen = f", its member {member}" if (member := "".join(card.members)) else ""
    many = card.mix.typical_pods if card.mix else 0
    say(f"{output}: {card.name}{chosen} with {many} typical pods of {typical.name}")


@app.command()
def fit(
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FILE", help="The fitted policy file, such as mine.safetensors.")
    ],
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Pods like those to come: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    pinned: Pinned = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help=f"How long the search takes. {DURATION_HELP}"),
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(min=1, help="Search for so many generations instead, which gives the same file again."),
    ] = None,
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 1,
    jobs: Jobs = None,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
) -> None:
    """Fit the shipped policy to one cluster, and keep what does best there.

    Searches from the best of the weights that come with steersman, compares the result with every rule on draws of the
    same pods that the search never saw, and keeps it where it is better by a paired test. Else the file holds the best
    rule. It says what it was fitted to, and how all of them did.

    **Example**: steersman policy fit --nodes nodes.yaml --pods pods.yaml --output mine.safetensors
    """
    live = LiveSource(cluster, kubeconfig, context)
    running = running_of(pinned, False, None)
    inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), live, running)
    _check_output(output)
    chosen = protocol or Protocol.INFLATION
    share = check_ratio(ratio, chosen)
    check_load(load, chosen)
    check_mean_duration(mean_duration, chosen)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.policies.policy_file import write_policy
    from steersman.simulation.protocols import duration_warnings

    warn = Warnings()
    (on,) = inputs.read(warn)
    if chosen is Protocol.TIMED:
        warn(duration_warnings(on, load, mean_duration))
    found = fit_workload(
        on,
        chosen.value,
        ratio=share,
        load=load,
        mean_duration=mean_duration,
        seconds=seconds,
        generations=generations,
        seed=seed,
        jobs=jobs or default_jobs(),
    )
    write_policy(output, found.card, found.arrays)
    _print_fit(found, on.name)
    say(f"wrote {output}")


@app.command(cls=ManyValues)
def build(
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FILE", help="The policy file, such as mine.safetensors.")
    ],
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Embedded openb workloads for weights of their own. [default: none]"),
    ] = None,
    clusters: Annotated[int, typer.Option(min=8, help="Random clusters to train on.")] = 400,
    node_range: Annotated[
        str, typer.Option("--nodes", metavar="LOW-HIGH", help="The smallest and the largest number of their nodes.")
    ] = "5-160",
    generations: Annotated[
        int, typer.Option(min=1, help="Of the search on all of them; other searches have a share of it.")
    ] = 1_500,
    rounds: Annotated[int, typer.Option(min=0, help="Of searches for clusters that have something in common.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of all searches.")] = 1,
    jobs: Jobs = None,
) -> None:
    """Train a portfolio, such as the policy that ships: weights for clusters of many shapes.

    Where it is used, a short simulation of the cluster at hand takes its best member, rules included.

    **Example**: steersman policy build --clusters 50 --generations 200 --output mine.safetensors
    """
    _check_output(output)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.training.portfolio import Plan, train_portfolio
    from steersman.workloads.openb import embedded

    openb = tuple(embedded(name) for name in workload or ())
    plan = Plan(clusters, parse_range("--nodes", node_range), generations, rounds, openb, seed, jobs or default_jobs())
    train_portfolio(plan, output, say)
    say(f"wrote {output}")


def _print_fit(found: Fit, workload: str) -> None:
    """Show the comparison, and say what was kept and why."""
    from rich.table import Table

    unit = "mean wait, s" if found.card.protocol == "timed" else "GPUs not allocated, %"
    draws = len(found.compared[0].costs)
    table = Table(title=f"{workload}: {draws} draws that the search did not see", title_justify="left")
    for column in ("policy", unit):
        table.add_column(column)
    for each in found.compared:
        table.add_row(f"{each.name} (kept)" if each.name == found.chosen else each.name, f"{each.mean:.2f}")
    print_table(table)
    say(kept(found))


def _check_output(output: Path) -> None:
    """Make sure that nothing but a policy file is written over, under a name that says what it is."""
    from steersman.policies.policy_file import SUFFIX, read_policy
    from steersman.workloads.files import check_writable

    if output.suffix != SUFFIX:
        raise UsageError(f"--output {output}: the name of a policy file ends in {SUFFIX}")
    if output.exists():
        try:
            read_policy(output)
        except SteersmanError:
            raise UsageError(f"--output {output}: is there and no policy file; name another") from None
    check_writable("--output", output)


def _print_json(card: Card) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(card), indent=2).decode())


def _print_csv(card: Card) -> None:
    import csv
    import sys

    import msgspec

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("field", "value"))
    for name, value in msgspec.to_builtins(card).items():
        writer.writerow((name, value if isinstance(value, str) else msgspec.json.encode(value).decode()))


def _print_tables(card: Card, arrays: Arrays) -> None:
    from rich.table import Table

    facts = Table(title=f"Policy {card.name}", title_justify="left", show_header=False)
    told = {
        "network": _network(card),
        "objective": card.objective,
        "trained by": f"{card.algorithm}, {card.steps} episodes or decisions, {card.made_by}",
        "in": ", ".join(filter(None, [card.protocol, _amount("ratio", card.ratio), _amount("load", card.load)])),
        "training": ", ".join(card.training),
        "validation": ", ".join(card.validation) or "the training workloads, other seeds",
        "kept for tests": ", ".join(card.test),
        "seeds": card.seeds,
        "settings": ", ".join(f"{name} {value}" for name, value in card.settings.items()),
        "members": ", ".join(card.members),
        "mix": _mix(card),
        "compared on": _compared_on(card),
        "size": _size(arrays),
    }
    for name, text in told.items():
        if text:
            facts.add_row(name, text)
    print_table(facts)
    if card.scores:
        where = "where it was compared" if card.compared_on else "on validation"
        scores = Table(title=f"How it did {where}", title_justify="left")
        for column in ("workload", "metric", "policy", "baseline", "mean of the baseline", "runs"):
            scores.add_column(column)
        for s in card.scores:
            scores.add_row(s.workload, s.metric, f"{s.mean:.3f}", s.baseline, f"{s.baseline_mean:.3f}", str(s.runs))
        print_table(scores)
    if card.network != "portfolio" and ("weights" in arrays or card.network == "linear"):
        print_table(_heaviest(card, arrays))


def _network(card: Card) -> str:
    layers = f" {'-'.join(map(str, card.hidden))}" if card.hidden else ""
    norm = f", {card.normalisation} normalisation" if card.normalisation != "none" else ""
    return f"{card.network}{layers}{norm} on the features {card.view!r}, version {card.view_version}"


def _mix(card: Card) -> str:
    if card.mix is None:
        return "of the workload that it is run on"
    models = f", GPU models {', '.join(card.mix.models)}" if card.mix.models else ""
    return f"its own: {card.mix.typical_pods} typical pods of {card.mix.workload}{models}"


def _compared_on(card: Card) -> str:
    made = card.compared_on
    if made is None:
        return ""
    return f"{made.nodes} nodes (shapes {made.shapes}), {made.draws} draws of pods of the mix"


def _size(arrays: Arrays) -> str:
    from steersman.policies.prepared import split

    weights, _ = split(arrays)
    return f"{sum(array.size for array in weights.values())} weights in {len(weights)} tensors"


def _amount(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:g}"


def _heaviest(card: Card, arrays: Arrays) -> Table:
    """The weights that move scores most, in points for a feature's unit."""
    import numpy as np
    from rich.table import Table

    from steersman.policies.policy_file import view_of

    view = view_of(card.name, card)
    features = view.node if "weights" in arrays else (*view.node, *view.pod, *view.context)
    names = [feature.name for feature in features]
    of = "" if card.network == "linear" else " of the linear part"
    table = Table(title=f"Heaviest weights{of} by kind of pod", title_justify="left")
    for kind in KINDS:
        table.add_column(kind)
    columns = []
    for weights in arrays["weights"] if "weights" in arrays else arrays["head.weight"]:
        order = np.argsort(-np.abs(weights), kind="stable")[:HEAVIEST]
        columns.append([f"{weights[i]:+.3g} {names[i]}" if weights[i] else "" for i in order])
    for row in zip(*columns, strict=True):
        if any(row):
            table.add_row(*row)
    return table
