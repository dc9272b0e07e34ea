"""`steersman policy`: what is in a policy file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import print_table
from steersman.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.policy_file import Arrays, Card

app = typer.Typer(help="Look into policy files.", no_args_is_help=True)

KINDS = ("no GPU", "a share of one GPU", "one GPU", "several GPUs")
HEAVIEST = 8
"""Features shown for each kind of pod."""


@app.callback()
def policy() -> None:
    """What a learned policy is, where it came from and what it looks at."""


@app.command()
def show(
    file: Annotated[
        str, typer.Argument(metavar="POLICY", help="A policy file (run/policy.safetensors), or the name steersman.")
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
        "network": f"{card.network} on the features {card.view!r}, version {card.view_version}",
        "objective": card.objective,
        "trained by": f"{card.algorithm}, {card.steps} episodes or decisions, {card.made_by}",
        "in": ", ".join(filter(None, [card.protocol, _amount("ratio", card.ratio), _amount("load", card.load)])),
        "training": ", ".join(card.training),
        "validation": ", ".join(card.validation) or "the training workloads, other seeds",
        "kept for tests": ", ".join(card.test),
        "seeds": card.seeds,
        "settings": ", ".join(f"{name} {value}" for name, value in card.settings.items()),
    }
    for name, text in told.items():
        if text:
            facts.add_row(name, text)
    print_table(facts)
    if card.scores:
        scores = Table(title="How it did on validation", title_justify="left")
        for column in ("workload", "metric", "policy", "baseline", "mean of the baseline", "runs"):
            scores.add_column(column)
        for s in card.scores:
            scores.add_row(s.workload, s.metric, f"{s.mean:.3f}", s.baseline, f"{s.baseline_mean:.3f}", str(s.runs))
        print_table(scores)
    if card.network == "linear" and "weights" in arrays:
        print_table(_heaviest(card, arrays))


def _amount(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:g}"


def _heaviest(card: Card, arrays: Arrays) -> Table:
    """The weights that move scores most, in points for a feature's unit."""
    import numpy as np
    from rich.table import Table

    from steersman.features import view

    names = [feature.name for feature in view(card.view).node]
    table = Table(title="Heaviest weights by kind of pod", title_justify="left")
    for kind in KINDS:
        table.add_column(kind)
    columns = []
    for weights in arrays["weights"]:
        order = np.argsort(-np.abs(weights), kind="stable")[:HEAVIEST]
        columns.append([f"{weights[i]:+.3g} {names[i]}" for i in order])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table
