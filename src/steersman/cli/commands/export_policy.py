"""`steersman policy export`: a policy as a formula that a person can read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.completing import policies
from steersman.cli.options.common import POLICIES_HELP, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Progress, Warnings, one_line, print_json, print_table, say
from steersman.cli.reading import check_overwriting
from steersman.core.errors import UsageError
from steersman.core.redaction import redact

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.training.search.distil import Distillation

GENERATIONS = 400
MAX_RATIO = 10.0
SHOWN_LOSS = 0.3
"""Percentage points of GPUs; a larger loss is said to be one."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The search, and the file that is written."""

    output: Annotated[Path, path_option("File to write, such as my-rule.txt.", "--output")]
    generations: Annotated[int, option("Generations of the search for weights.", min=1)] = GENERATIONS
    ratio: Annotated[
        float, option("GPUs that arriving pods request, as a multiple of the cluster's.", min=0.1, max=MAX_RATIO)
    ] = 1.3
    seed: Annotated[int, option("Seed of the search.", min=0)] = 1
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def export(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            autocompletion=policies,
            help=f"What is exported: {POLICIES_HELP}",
        ),
    ],
    options: ExportOptions,
    inputs: Inputs,
) -> None:
    """Write a policy as a formula that a person can read: few terms by kind of pod, distilled for one cluster.

    The terms are those that explain the policy's decisions on these nodes and pods. Their weights are improved by
    simulation, and the formula is compared with the policy on random draws of the pods that the search did not use. The
    formula is a policy (--policy my-rule.txt).

    **Example**: steersman policy export steersman --nodes nodes.yaml --pods pods.yaml --output my-rule.txt
    """
    from steersman.cli.reading import compile_for
    from steersman.core.atomic_files import replacing
    from steersman.policies.formulas.formula import FORMULA_SUFFIX, read_formula
    from steersman.policies.registry import resolve
    from steersman.simulation.run import Simulator
    from steersman.training.search.distil import DistillationOptions, distil

    if options.output.suffix != FORMULA_SUFFIX:
        raise UsageError(f"--output {options.output}: expected a name that ends with {FORMULA_SUFFIX}")
    check_overwriting(options.output, "a formula", read_formula)
    inputs.check()
    source, exported = resolve(policy), redact(policy)
    (workload,) = inputs.read(Warnings())
    compile_for([policy], [workload])
    if source.members:
        choice = Simulator(workload).member(source, ratio=options.ratio)
        source = choice.policy
        exported += f", its member {source.name},"
        say(choice.evidence)
    settings = DistillationOptions(options.generations, options.ratio, options.seed)
    with Progress("searching, percent done") as progress:
        found = distil(workload, source, settings, on_generation=lambda share: progress.update(round(100 * share), 100))
    loss = _loss(found)
    comments = (
        f"Distilled from {exported} for {workload.name}: {len(workload.nodes)} nodes, {len(workload.pods)} pods.",
        f"{loss[0].upper()}{loss[1:]}.",
    )
    formula = replace(found.formula, comments=tuple(map(one_line, comments)))
    with replacing(options.output) as part:
        part.write_bytes(formula.text().encode())
    if options.output_format is TableOrJson.JSON:
        print_json(_record(found, workload.name, source.name))
    else:
        print_table(_table(found, workload.name, source.name))
    say(loss)
    if found.loss > SHOWN_LOSS:
        say(f"this is more than {SHOWN_LOSS} points; more --generations may find better weights")
    say(f"wrote {options.output}")


def _loss(found: Distillation) -> str:
    interval, draws = found.interval, len(found.costs)
    return (
        f"in {draws} held-out draws it allocates {-found.loss:+.2f} points of the GPUs against its source (95 % "
        f"interval {-interval.high:+.2f} to {-interval.low:+.2f})"
    )


def _record(found: Distillation, workload: str, source: str) -> dict[str, Any]:
    from steersman.policies.formulas.formula import KIND_NAMES

    return {
        "workload": workload,
        "source": source,
        "draws": len(found.costs),
        "gpus_not_allocated_percent": {
            "source": float(found.source_costs.mean()),
            "formula": float(found.costs.mean()),
        },
        "loss": {"mean": found.loss, "low": found.interval.low, "high": found.interval.high},
        "generations": found.generations,
        "terms": {
            kind: [{"weight": term.weight, "feature": term.name} for term in terms]
            for kind, terms in zip(KIND_NAMES, found.formula.terms, strict=True)
        },
    }


def _table(found: Distillation, workload: str, source: str) -> Table:
    from rich.table import Table

    from steersman.policies.formulas.formula import KIND_NAMES

    table = Table(
        "policy", title=f"{workload}: {len(found.costs)} draws that the search did not use", title_justify="left"
    )
    for column in ("GPUs not allocated, %", *(f"terms, {kind}" for kind in KIND_NAMES)):
        table.add_column(column, justify="right")
    table.add_row(source, f"{found.source_costs.mean():.2f}")
    terms = [str(len(each)) for each in found.formula.terms]
    table.add_row("formula", f"{found.costs.mean():.2f}", *terms)
    return table
