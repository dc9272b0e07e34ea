"""`steersman policy`: what policies there are, and policy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.completing import ORDERS, POLICIES, TELEMETRY_POLICIES, rules_and_files
from steersman.cli.options.common import CommandGroup, Format, FormatOption, path
from steersman.cli.options.declaring import with_options
from steersman.cli.output.display import print_json, print_table, say

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.policy_file import Arrays, Card

app = CommandGroup(help="List policies and orders, show a file, and put back what learning replaced.")

SHOWN_WEIGHTS = 12  # features shown for each kind of pod


@app.command("list")
def list_names() -> None:
    """List the names of policies and of orders of waiting pods.

    **Example**: steersman policy list
    """
    from rich.table import Table

    for title, names in (("policy", POLICIES | TELEMETRY_POLICIES), ("order, --protocol timed", ORDERS)):
        table = Table(title, "what decides")
        for each in names.items():
            table.add_row(*each)
        print_table(table)


@app.command()
@with_options
def show(
    file: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            autocompletion=rules_and_files,
            help="A policy file (run/policy.safetensors), a formula, or a built-in rule or policy.",
        ),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show a policy's model card: training data, objective, validation results and largest weights.

    **Example**: steersman policy show run/policy.safetensors
    """
    from steersman.policies.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(file) as policy_file:
        card, arrays = read_policy(policy_file)
    if output_format is Format.JSON:
        print_json(card)
    elif output_format is Format.CSV:
        _print_csv(card)
    else:
        _print_tables(card, arrays)


@app.command()
@with_options
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
    from steersman.live.learner.follower import undo as put_back

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
    for name, text in _facts(card, arrays).items():
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


def _facts(card: Card, arrays: Arrays) -> dict[str, str]:
    from steersman.policies.embedded_profile import split

    layers = f" {'-'.join(map(str, card.hidden))}" if card.hidden else ""
    norm = f", {card.normalisation} normalisation" if card.normalisation != "none" else ""
    steps = f"{card.steps} episodes or decisions" if card.steps else ""
    amounts = [f"{name} {value:g}" for name in ("ratio", "load") if (value := getattr(card, name)) is not None]
    profile, comparison = card.profile, card.compared_on
    embedded = draws = ""
    if profile:
        models = f", GPU models {', '.join(profile.models)}" if profile.models else ""
        embedded = f"embedded: {profile.typical_pods} typical pods of {profile.workload}{models}"
    if comparison:
        nodes = f"{comparison.nodes} nodes (shapes {comparison.shapes})"
        draws = f"{nodes}, {comparison.draws} draws of pods of the profile"
    weights, _ = split(arrays)
    return {
        "network": f"{card.network}{layers}{norm} on the features {card.view!r}, version {card.view_version}",
        "objective": card.objective,
        "trained by": ", ".join(filter(None, [card.algorithm, steps, card.made_by])),
        "protocol": ", ".join(filter(None, [card.protocol, *amounts])),
        "training": ", ".join(card.training),
        "validation": ", ".join(card.validation) or ("the training workloads, other seeds" if card.training else ""),
        "kept for tests": ", ".join(card.test),
        "seeds": card.seeds,
        "settings": ", ".join(f"{name} {value}" for name, value in card.settings.items()),
        "members": ", ".join(card.members),
        "order": card.order + (f", {len(card.order_weights)} weights" if card.order_weights else ""),
        "profile": embedded or "that of the workload it runs on",
        "compared on": draws,
        "size": f"{sum(array.size for array in weights.values())} weights in {len(weights)} tensors",
    }


def _largest_weights(card: Card, arrays: Arrays) -> Table:
    """Return a table of the weights with the largest absolute values, in points per unit of the feature."""
    import numpy as np
    from rich.table import Table

    from steersman.policies.formula import KIND_NAMES
    from steersman.policies.learned_weights import NAMES
    from steersman.policies.policy_file import view_of

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
