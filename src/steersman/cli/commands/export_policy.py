"""`steersman policy export`: a policy as a formula that a person can read, as text, in Python or in Go."""

from __future__ import annotations

import enum
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
from steersman.core.errors import InputError, UsageError
from steersman.core.redaction import redact

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.formulas.formula import Formula
    from steersman.training.search.distil import Distillation

GENERATIONS = 400
MAX_RATIO = 10.0
SHOWN_LOSS = 0.3
"""Percentage points of GPUs; a larger loss is said to be one."""


class FormulaForm(enum.StrEnum):
    """Forms of a formula."""

    TEXT = "text"
    PYTHON = "python"
    GO = "go"


SUFFIXES = {FormulaForm.TEXT: ".txt", FormulaForm.PYTHON: ".py", FormulaForm.GO: ".go"}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The form, the search, and the file that is written."""

    form: Annotated[
        FormulaForm,
        option("text, which is a policy itself; python, a module with a policy (module:Policy); or go.", "--as"),
    ]
    output: Annotated[Path, path_option("File to write: my-rule.txt, my_rule.py or rule.go, by the form.", "--output")]
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
            help=f"What is exported: {POLICIES_HELP} A formula (my-rule.txt) is written in another form, without a "
            "workload.",
        ),
    ],
    options: ExportOptions,
    inputs: Inputs,
) -> None:
    """Write a policy as a formula that a person can read: few terms by kind of pod, distilled for one cluster.

    The terms are those that explain the policy's decisions on these nodes and pods. Their weights are improved by
    simulation, and the formula is compared with the policy on random draws of the pods that the search did not use. The
    formula's text is a policy (--policy my-rule.txt), and so is the Python module (--policy my_rule:Policy). The Go
    file has a function that scores a node. All forms compute the same scores.

    **Example**: steersman policy export steersman --nodes nodes.yaml --pods pods.yaml --as text --output my-rule.txt

    **Another form of it**: steersman policy export my-rule.txt --as go --output rule.go
    """
    from steersman.policies.formulas.formula import is_formula, read_formula

    _check_output(options)
    if not is_formula(policy):
        inputs.check()
        _distil(policy, options, inputs)
        return
    if inputs.is_given:
        raise UsageError(
            f"{policy} is a formula, which needs no workload; leave out --nodes, --pods, --workload and --cluster"
        )
    formula = read_formula(Path(policy))
    _write(options, formula)
    if options.output_format is TableOrJson.JSON:
        print_json(_terms_record(formula))
    say(f"wrote {options.output}")


def _check_output(options: ExportOptions) -> None:
    """Raise UsageError if the form cannot be written to --output: by its name, or it is a file of another kind."""
    output, suffix = options.output, SUFFIXES[options.form]
    if output.suffix != suffix:
        raise UsageError(f"--output {output}: expected a name that ends with {suffix} for --as {options.form}")
    if options.form is FormulaForm.PYTHON and not output.stem.isidentifier():
        raise UsageError(f"--output {output}: expected the name of a module of Python, such as my_rule.py")
    check_overwriting(output, f"a formula as {options.form}", _read_export)


def _read_export(path: Path) -> None:
    from steersman.policies.formulas.formula import read_formula
    from steersman.policies.formulas.go_form import GO_HEADER
    from steersman.policies.formulas.python_form import PYTHON_HEADER

    if path.suffix == SUFFIXES[FormulaForm.TEXT]:
        read_formula(path)
        return
    first = (PYTHON_HEADER if path.suffix == SUFFIXES[FormulaForm.PYTHON] else GO_HEADER).encode()
    try:
        with path.open("rb") as file:
            is_ours = file.read(len(first)) == first
    except OSError:
        is_ours = False
    if not is_ours:
        raise InputError(path, "line 1", "", f"expected {first.decode()!r}")


def _distil(spec: str, options: ExportOptions, inputs: Inputs) -> None:
    from steersman.cli.compiling import compile_for
    from steersman.policies.registry import resolve
    from steersman.simulation.run import Simulator
    from steersman.training.search.distil import DistillationOptions, distil

    policy = resolve(spec)
    (source,) = inputs.read(Warnings())
    compile_for([spec], [source])
    exported = redact(spec)
    if policy.members:
        choice = Simulator(source).member(policy, ratio=options.ratio)
        policy = choice.policy
        exported += f", its member {policy.name},"
        say(choice.evidence)
    settings = DistillationOptions(options.generations, options.ratio, options.seed)
    with Progress("searching, percent done") as progress:
        found = distil(source, policy, settings, on_generation=lambda share: progress.update(round(100 * share), 100))
    loss = _loss(found)
    comments = (
        f"Distilled from {exported} for {source.name}: {len(source.nodes)} nodes, {len(source.pods)} pods.",
        f"{loss[0].upper()}{loss[1:]}.",
    )
    formula = replace(found.formula, comments=tuple(map(one_line, comments)))
    _write(options, formula)
    if options.output_format is TableOrJson.JSON:
        print_json(_record(found, source.name, policy.name))
    else:
        print_table(_table(found, source.name, policy.name))
    say(loss)
    if found.loss > SHOWN_LOSS:
        say(f"this is more than {SHOWN_LOSS} points; more --generations may find better weights")
    say(f"wrote {options.output}")


def _write(options: ExportOptions, formula: Formula) -> None:
    from steersman.core.atomic_files import replacing
    from steersman.policies.formulas.go_form import go_file
    from steersman.policies.formulas.python_form import python_module

    match options.form:
        case FormulaForm.TEXT:
            text = formula.text()
        case FormulaForm.PYTHON:
            text = python_module(formula, options.output.stem)
        case FormulaForm.GO:
            text = go_file(formula)
    with replacing(options.output) as part:
        part.write_bytes(text.encode())


def _loss(found: Distillation) -> str:
    interval, draws = found.interval, len(found.costs)
    return (
        f"in {draws} held-out draws it allocates {-found.loss:+.2f} points of the GPUs against its source (95 % "
        f"interval {-interval.high:+.2f} to {-interval.low:+.2f})"
    )


def _terms_record(formula: Formula) -> dict[str, Any]:
    from steersman.policies.formulas.formula import KIND_NAMES

    return {
        "terms": {
            kind: [{"weight": term.weight, "feature": term.name} for term in terms]
            for kind, terms in zip(KIND_NAMES, formula.terms, strict=True)
        }
    }


def _record(found: Distillation, workload: str, source: str) -> dict[str, Any]:
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
        **_terms_record(found.formula),
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
