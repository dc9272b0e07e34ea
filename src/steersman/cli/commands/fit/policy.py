"""`steersman fit policy`: write a policy file or a formula for a cluster and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.completing import rules_and_files
from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.common import MaxKindLoss, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import advanced, every_option, given_options, option, with_options
from steersman.cli.options.inputs import Inputs, check_model_output, check_overwriting
from steersman.cli.options.policies import stored_order_warnings
from steersman.cli.output.display import Progress, Warnings, one_line, print_json, print_table, say, status_if_slow
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.policies.portfolio_policy import PortfolioPolicy
    from steersman.training.search.policies import Fit
    from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class WrittenPolicy:
    """The policy, and the file that is written."""

    output: Annotated[
        Path, path_option("File to write: mine.safetensors for a policy file, my-rule.txt for a formula.", "--output")
    ]
    policy: Annotated[
        str,
        option(
            "steersman or rules, which are chosen and fitted, or a rule such as fgd, a policy file or a formula. The "
            "latter stay as they are and get the profile of the pods. POLICY+ORDER: the file also says who goes next.",
            metavar="POLICY",
            autocompletion=rules_and_files,
        ),
    ] = "steersman"


@dataclass(frozen=True, slots=True)
class FittingOptions:
    """The search, and how its result is shown."""

    generations: Annotated[
        int | None, advanced("Generations of the search. [default: 10 to 100, fewer for large clusters]", min=1)
    ] = None
    seed: Annotated[int, advanced("Seed of the search.", min=0)] = 1
    max_kind_loss: MaxKindLoss = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def policy(options: WrittenPolicy, fitting: FittingOptions, inputs: Inputs, arrivals: ArrivalOptions) -> None:
    """Write a policy for these nodes and pods: as a policy file, or as a formula to read and edit.

    Of steersman and rules short simulations choose a member. The weights of steersman are also fitted by a search, and
    kept if a paired test on further draws of the pods shows that they are better. A policy file holds the profile of
    the pods, as the plugin for kube-scheduler needs it. An order alone joins a policy without --nodes and --pods.

    **Example**: steersman fit policy --nodes nodes.yaml --pods pods.yaml --output mine.safetensors

    **An order for a file**: steersman fit policy --policy mine.safetensors+wfp3:easy --output ordered.safetensors
    """
    from steersman.policies.files.policy_file import read_policy
    from steersman.policies.formula import FORMULA_SUFFIX, formula_text, open_formula

    if given_options(inputs) or "+" not in options.policy:
        inputs.check()
    output = options.output
    is_text = output.suffix == FORMULA_SUFFIX
    if is_text:
        check_overwriting(output, "a formula", lambda path: open_formula(str(path)))
    else:
        check_model_output(output, "a policy file", read_policy, f", that of a formula in {FORMULA_SUFFIX}")

    # The imports below are slow, so the options are checked first.
    from steersman.core.atomic_files import replacing
    from steersman.orders.order import AGE
    from steersman.policies.files.policy_file import SUFFIX, prepare_policy, with_stored_order, write_policy
    from steersman.policies.kinds import as_linear, portfolio
    from steersman.policies.registry import policy_path, resolve, split_order

    name, order = split_order(options.policy)
    decides, warn = resolve(options.policy), Warnings()
    choice = portfolio(decides)
    if is_text and decides.order != AGE:
        raise UsageError(f"--output {output}: a formula has no order; expected a name in {SUFFIX}, or {name}+age")
    if choice or not order:
        inputs.check()
    if choice is None:
        for each in every_option(fitting, arrivals).values():
            if each.is_given:
                raise UsageError(f"{each.flag} belongs to --policy steersman and rules, which are chosen; leave it out")
    comments: tuple[str, ...] = ()
    with policy_path(name) as file:
        (source,) = inputs.read(warn) if given_options(inputs) else (None,)
        if choice:
            assert source is not None
            result = _fit(choice, source, fitting, arrivals, warn)
            decides, card, arrays = result.policy, result.card, result.arrays
            comments = f"Fitted to {source.name}: {len(source.nodes)} nodes, {len(source.pods)} pods.", result.evidence
        elif source is None:
            card, arrays = read_policy(file)
        else:
            with status_if_slow("computing the workload profile"):
                card, arrays = prepare_policy(file, source)
    if not is_text:
        if order:
            card = with_stored_order(card, decides.order)
            warn(stored_order_warnings(decides.order))
        write_policy(output, card, arrays)
    elif (linear := as_linear(decides)) is None:
        raise UsageError(f"--output {output}: {name} cannot be a formula; expected a name in {SUFFIX}")
    else:
        with replacing(output) as part:
            part.write_text(formula_text(linear, tuple(map(one_line, comments))), encoding="utf-8")
    say(f"wrote {output}")


def _fit(
    portfolio: PortfolioPolicy, source: Workload, options: FittingOptions, arrivals: ArrivalOptions, warn: Warnings
) -> Fit:
    """Choose a member and fit it; print the comparison."""
    from steersman.policies.kube_scheduler import KubeSchedulerPolicy
    from steersman.policies.portfolio_policy import KindLimit
    from steersman.simulation.selection.stock_search import SearchOptions
    from steersman.training.search import policies as searching

    arrivals.warn_of(source, warn)
    limit = portfolio.limit
    if options.max_kind_loss is not None:
        if limit:
            raise UsageError(f"--policy {portfolio.name} has a limit; leave it or --max-kind-loss out")
        limit = KindLimit(options.max_kind_loss, KubeSchedulerPolicy())
    search = SearchOptions(**arrivals.settings, limit=limit, seed=options.seed, generations=options.generations)
    with Progress("fitting, generations") as progress:
        result = searching.fit(source, search, portfolio, progress=progress.update)
    if options.output_format is TableOrJson.JSON:
        print_json(_record(result, source.name))
    else:
        print_table(_table(result, source.name))
    say(result.evidence)
    return result


def _record(result: Fit, workload: str) -> dict[str, object]:
    unit = "mean_wait_seconds" if result.card.protocol == "timed" else "gpus_not_allocated_percent"
    return {
        "workload": workload,
        "protocol": result.card.protocol,
        "draws": len(result.costs[result.policy.name]),
        "kept": result.policy.name,
        "policies": [{"policy": name, unit: float(costs.mean())} for name, costs in result.costs.items()],
    }


def _table(result: Fit, workload: str) -> Table:
    from rich.table import Table

    unit = "mean wait, s" if result.card.protocol == "timed" else "GPUs not allocated, %"
    draws = len(result.costs[result.policy.name])
    table = Table(title=f"{workload}: {draws} draws that the search did not use", title_justify="left")
    for column in ("policy", unit):
        table.add_column(column)
    for name, costs in result.costs.items():
        table.add_row(name, f"{costs.mean():.2f}")
    return table
