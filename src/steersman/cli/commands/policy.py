"""`steersman policy`: show, prepare and fit policy files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.commands.fit_scheduler import fit_scheduler
from steersman.cli.commands.orders import fit_order, join_order
from steersman.cli.completing import packaged_policies
from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.common import (
    Format,
    FormatOption,
    MaxKindLoss,
    TableOrJson,
    TableOrJsonOption,
    path,
    path_option,
)
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Progress, Warnings, one_line, print_json, print_table, say, status_if_slow
from steersman.cli.reading import check_model_output, check_overwriting

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.files.policy_file import Arrays, Card
    from steersman.training.search.fit import Fit

app = typer.Typer(help="Show, prepare, fit and put back policy files.", no_args_is_help=True)

SHOWN_WEIGHTS = 12  # features shown for each kind of pod


@app.callback()
def policy() -> None:
    """Show, prepare, fit and put back policy files."""


@app.command()
def show(
    file: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            autocompletion=packaged_policies,
            help="A policy file (run/policy.safetensors), or steersman, rules or greedy-forecast, which are included.",
        ),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show a policy's model card: training data, objective, validation results and largest weights.

    **Example**: steersman policy show run/policy.safetensors
    """
    from steersman.policies.files.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(file) as policy_file:
        card, arrays = read_policy(policy_file)
    if output_format is Format.JSON:
        print_json(card)
    elif output_format is Format.CSV:
        _print_csv(card)
    else:
        _print_tables(card, arrays)


PolicyFile = Annotated[Path, path_option("Policy file to write, such as mine.safetensors.", "--output")]


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """The policy that is prepared, and the file that is written."""

    policy: Annotated[
        str,
        option(
            "A policy file (run/policy.safetensors), a formula (my-rule.txt), or steersman, rules or greedy-forecast, "
            "which are included.",
            metavar="POLICY",
            autocompletion=packaged_policies,
        ),
    ]
    output: PolicyFile


@app.command()
@with_options
def prepare(options: PrepareOptions, inputs: Inputs) -> None:
    """Embed a workload's profile in a policy file.

    A policy uses the profile of typical pods to plan for pods to come. By default it derives the profile from the
    workload that it runs on; a prepared policy file always uses the embedded one, as the plugin for kube-scheduler
    requires. Of a portfolio (steersman, rules) short simulations with these nodes and pods choose the member that is
    prepared; steersman is also fitted, as by policy fit.

    **Example**: steersman policy prepare --policy run/policy.safetensors --nodes nodes.csv --pods monday.csv
    --output monday.safetensors
    """
    inputs.check()
    _check_output(options.output)

    # The imports below load numba, which is slow, so the options are checked first.
    from steersman.policies.files.policy_file import write_policy
    from steersman.policies.registry import policy_path, resolve
    from steersman.simulation.preparation import prepare_chosen

    with policy_path(options.policy) as policy_file:
        policy = resolve(options.policy)  # an invalid file is reported before the workload is read
        (source,) = inputs.read(Warnings())
        with status_if_slow("computing the workload profile"):
            card, arrays, evidence = prepare_chosen(policy_file, policy, source)
    write_policy(options.output, card, arrays)
    chosen = f", its member {member}" if (member := "".join(card.members)) else ""
    count = card.profile.typical_pods if card.profile else 0
    say(f"{options.output}: {card.name}{chosen} with {count} typical pods of {source.name}")
    if evidence:
        say(evidence)


@dataclass(frozen=True, slots=True)
class FittingOptions:
    """The search, and the file that is written."""

    output: Annotated[
        Path, path_option("File to write: mine.safetensors for a policy file, my-rule.txt for a formula.", "--output")
    ]
    generations: Annotated[
        int | None, option("Generations of the search. [default: 10 to 100, fewer for large clusters]", min=1)
    ] = None
    seed: Annotated[int, option("Seed of the search.", min=0)] = 1
    max_kind_loss: MaxKindLoss = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@app.command()
@with_options
def fit(options: FittingOptions, inputs: Inputs, arrivals: ArrivalOptions) -> None:
    """Write what the policy steersman decides by on these nodes and pods.

    Short simulations choose a rule or a blend of rules and a forecast, and a search on random draws of the pods fits
    its weights, by kind of pod. Fitted weights are kept if a paired test on further draws shows that they are better.
    A policy file holds them with the profile of the pods, as the plugin for kube-scheduler needs it; a formula is their
    text, to be read and edited. --max-kind-loss bounds what any kind of pod may lose against kube-default.

    **Example**: steersman policy fit --nodes nodes.yaml --pods pods.yaml --output mine.safetensors
    """
    from steersman.policies.formula import FORMULA_SUFFIX, open_formula

    inputs.check()
    is_text = options.output.suffix == FORMULA_SUFFIX
    if is_text:
        check_overwriting(options.output, "a formula", lambda path: open_formula(str(path)))
    else:
        _check_output(options.output, f", that of a formula in {FORMULA_SUFFIX}")

    # The imports below load numba, which is slow, so the options are checked first.
    from steersman.cli.reading import compile_for
    from steersman.core.atomic_files import replacing
    from steersman.policies.files.policy_file import write_policy
    from steersman.policies.formula import formula_text
    from steersman.policies.kinds import as_linear
    from steersman.policies.kube_scheduler import KubeSchedulerPolicy
    from steersman.policies.portfolio_policy import KindLimit
    from steersman.policies.registry import PACKAGED_POLICY
    from steersman.simulation.selection.stock_search import SearchOptions
    from steersman.training.search import fit as fitting

    warn = Warnings()
    (source,) = inputs.read(warn)
    arrivals.warn_of(source, warn)
    percent = options.max_kind_loss
    limit = None if percent is None else KindLimit(percent, KubeSchedulerPolicy())
    search = SearchOptions(**arrivals.settings, limit=limit, seed=options.seed, generations=options.generations)
    compile_for([PACKAGED_POLICY], [source])
    with Progress("fitting, generations") as progress:
        fitted = fitting.fit(source, search, progress=progress.update)
    if is_text:
        policy = as_linear(fitted.policy)
        assert policy is not None
        comments = f"Fitted to {source.name}: {len(source.nodes)} nodes, {len(source.pods)} pods.", fitted.evidence
        with replacing(options.output) as part:
            part.write_text(formula_text(policy, tuple(map(one_line, comments))), encoding="utf-8")
    else:
        write_policy(options.output, fitted.card, fitted.arrays)
    if options.output_format is TableOrJson.JSON:
        print_json(_fit_record(fitted, source.name))
    else:
        print_table(_fit_table(fitted, source.name))
    say(fitted.evidence)
    say(f"wrote {options.output}")


app.command("fit-order")(fit_order)
app.command("order")(join_order)
app.command("fit-scheduler")(fit_scheduler)


def _fit_record(result: Fit, workload: str) -> dict[str, object]:
    unit = "mean_wait_seconds" if result.card.protocol == "timed" else "gpus_not_allocated_percent"
    return {
        "workload": workload,
        "protocol": result.card.protocol,
        "draws": len(result.costs[result.policy.name]),
        "kept": result.policy.name,
        "policies": [{"policy": name, unit: float(costs.mean())} for name, costs in result.costs.items()],
    }


def _fit_table(result: Fit, workload: str) -> Table:
    from rich.table import Table

    unit = "mean wait, s" if result.card.protocol == "timed" else "GPUs not allocated, %"
    draws = len(result.costs[result.policy.name])
    table = Table(title=f"{workload}: {draws} draws that the search did not use", title_justify="left")
    for column in ("policy", unit):
        table.add_column(column)
    for name, costs in result.costs.items():
        table.add_row(name, f"{costs.mean():.2f}")
    return table


def _check_output(output: Path, else_what: str = "") -> None:
    from steersman.policies.files.policy_file import read_policy

    check_model_output(output, "a policy file", read_policy, else_what)


@app.command()
def undo(
    folder: Annotated[
        Path, typer.Argument(parser=path, metavar="DIR", help="Folder of 'steersman serve --learn DIR'.")
    ],
) -> None:
    """Put the policy back that learning replaced last.

    A service that uses the folder reads the file within ten seconds and goes on learning from it. Several calls go back
    several policies; exchanges.csv in the folder records them.

    **Example**: steersman policy undo learned
    """
    from steersman.apps.learner.follower import undo as put_back

    say(f"{folder}: {put_back(folder)} is the policy in use again")


def _print_csv(card: Card) -> None:
    import sys

    import msgspec

    from steersman.workloads.formats.tables import write_rows

    facts = msgspec.to_builtins(card).items()
    cells = ((name, value if isinstance(value, str) else msgspec.json.encode(value).decode()) for name, value in facts)
    write_rows(sys.stdout, ("field", "value"), cells)


def _print_tables(card: Card, arrays: Arrays) -> None:
    from rich.table import Table

    facts = Table(title=f"Policy {card.name}", title_justify="left", show_header=False)
    rows = {
        "network": _network(card),
        "objective": card.objective,
        "trained by": ", ".join(filter(None, [card.algorithm, _steps(card), card.made_by])),
        "protocol": ", ".join(filter(None, [card.protocol, _amount("ratio", card.ratio), _amount("load", card.load)])),
        "training": ", ".join(card.training),
        "validation": ", ".join(card.validation) or ("the training workloads, other seeds" if card.training else ""),
        "kept for tests": ", ".join(card.test),
        "seeds": card.seeds,
        "settings": ", ".join(f"{name} {value}" for name, value in card.settings.items()),
        "members": ", ".join(card.members),
        "order": _order(card),
        "profile": _profile(card),
        "compared on": _compared_on(card),
        "size": _size(arrays),
    }
    for name, text in rows.items():
        if text:
            facts.add_row(name, text)
    print_table(facts)
    if card.scores:
        scores = Table(
            title=f"Results of the {'comparison' if card.compared_on else 'validation'}", title_justify="left"
        )
        for column in ("workload", "metric", "policy", "baseline", "mean of the baseline", "runs"):
            scores.add_column(column)
        for score in card.scores:
            means = f"{score.mean:.3f}", score.baseline, f"{score.baseline_mean:.3f}"
            scores.add_row(score.workload, score.metric, *means, str(score.runs))
        print_table(scores)
    if card.network != "portfolio" and ("weights" in arrays or card.network == "linear"):
        print_table(_largest_weights(card, arrays))


def _network(card: Card) -> str:
    layers = f" {'-'.join(map(str, card.hidden))}" if card.hidden else ""
    norm = f", {card.normalisation} normalisation" if card.normalisation != "none" else ""
    return f"{card.network}{layers}{norm} on the features {card.view!r}, version {card.view_version}"


def _steps(card: Card) -> str:
    return f"{card.steps} episodes or decisions" if card.steps else ""


def _order(card: Card) -> str:
    weights = f", {len(card.order_weights)} weights" if card.order_weights else ""
    return f"{card.order}{weights}"


def _profile(card: Card) -> str:
    if card.profile is None:
        return "that of the workload it runs on"
    models = f", GPU models {', '.join(card.profile.models)}" if card.profile.models else ""
    return f"embedded: {card.profile.typical_pods} typical pods of {card.profile.workload}{models}"


def _compared_on(card: Card) -> str:
    comparison = card.compared_on
    if comparison is None:
        return ""
    return f"{comparison.nodes} nodes (shapes {comparison.shapes}), {comparison.draws} draws of pods of the profile"


def _size(arrays: Arrays) -> str:
    from steersman.policies.embedded_profile import split

    weights, _ = split(arrays)
    return f"{sum(array.size for array in weights.values())} weights in {len(weights)} tensors"


def _amount(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:g}"


def _largest_weights(card: Card, arrays: Arrays) -> Table:
    """Return a table of the weights with the largest absolute values, in points per unit of the feature."""
    import numpy as np
    from rich.table import Table

    from steersman.policies.files.policy_file import view_of
    from steersman.policies.formula import KIND_NAMES
    from steersman.policies.node_scores.local_scores import NAMES

    view = view_of(card.name, card)
    features = view.node if "weights" in arrays else (*view.node, *view.pod, *view.context)
    names = [feature.name for feature in features]
    weights = arrays["weights"] if "weights" in arrays else arrays["head.weight"]
    if "rules" in arrays:
        names, weights = [*names, *NAMES], np.concatenate([weights, arrays["rules"]], axis=1)
    part = "" if card.network == "linear" else " of the linear part"
    table = Table(title=f"Largest weights{part} by kind of pod", title_justify="left")
    columns = []
    for kind, row in zip(KIND_NAMES, weights, strict=True):
        table.add_column(kind)
        order = np.argsort(-np.abs(row), kind="stable")[:SHOWN_WEIGHTS]
        columns.append([f"{row[i]:+.3g} {names[i]}" if row[i] else "" for i in order])
    for cells in zip(*columns, strict=True):
        if any(cells):
            table.add_row(*cells)
    return table
