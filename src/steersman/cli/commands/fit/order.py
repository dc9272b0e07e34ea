"""`steersman fit order`: find who goes next among waiting pods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.common import EngineOption, Jobs, TableOrJson, TableOrJsonOption, path_option, policy_option
from steersman.cli.options.declaring import advanced, option, with_options
from steersman.cli.options.inputs import ClusterOfNow, check_model_output, read_now
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, say
from steersman.core.engines import Engine, use_engine
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.training.search.orders import OrderFit

GENERATIONS = 40


@dataclass(frozen=True, slots=True)
class OrderFittingOptions:
    output: Annotated[Path, path_option("Order file to write, such as order.safetensors.", "--output")]
    policy: Annotated[str, policy_option("Policy that places the pods")] = "fgd"
    load: Annotated[
        str, advanced("Least and largest load that windows of the history are scaled to.", metavar="LOW-HIGH")
    ] = "0.8-1.1"
    generations: Annotated[int, option("Generations of the search.", min=1)] = GENERATIONS
    seed: Annotated[int, advanced("Seed of the search.", min=0)] = 1
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def order(options: OrderFittingOptions, inputs: ClusterOfNow, cluster: ClusterOptions) -> None:
    """Find the order of waiting pods for a history: compare rules, and an order that is learned from it.

    The history is a trace (--nodes, --pods: a table of jobs, a log in the Standard Workload Format, ...), objects of
    Kubernetes with the times of pods that have ended, or what a live cluster still lists of them. A search learns from
    windows of its earlier part; all orders are compared on consecutive windows of the later part. wfp3:easy is
    recommended unless a paired test shows that the best rule of the earlier part, or the learned order, is better. A
    file is written for the learned order alone.

    **Example**: steersman fit order --nodes nodes.yaml --pods jobs.csv --output order.safetensors
    """
    loads = _parse_loads(options.load)
    from steersman.orders.registry import open_order, write_order

    check_model_output(options.output, "an order file", open_order)

    # The imports below are slow, so the options are checked first.
    from steersman.policies.registry import resolve
    from steersman.training.search import orders as fitting

    try:
        fit_options = fitting.OrderFitOptions(options.generations, loads, options.seed)
    except UsageError as error:
        raise UsageError(f"--load: {error}") from None
    policy, warn = resolve(options.policy), Warnings()
    source, _ = read_now(inputs, cluster, warn)
    with use_engine(options.engine, options.jobs) as jobs, Progress("fitting, percent done") as progress:
        result = fitting.search_order(
            source, policy, fit_options, jobs=jobs, on_generation=lambda share: progress.update(round(100 * share), 100)
        )
    warn(result.warnings)
    if result.chosen == fitting.FITTED:
        write_order(options.output, result.card, result.order.weights)
    if options.output_format is TableOrJson.JSON:
        print_json(_order_record(result, source.name))
    else:
        print_table(_order_table(result, source.name))
    say(_about_load(result))
    if result.nobody_waits:
        said = f"expected a longer history, or more than --load {options.load}"
        say(f"no pod waits in these windows, so that orders do not differ; {said}")
    elif result.chosen == fitting.FITTED:
        say(f"the learned order has {_ratio_text(result, fitting.FITTED, result.rival)}: wrote {options.output}")
    else:
        say(f"{_why_not_learned(result)}: use --order {result.chosen}; no file is written")


def _ratio_text(result: OrderFit, name: str, other: str) -> str:
    ratio, (low, high) = result.ratio(name, other)
    interval = f" (95 % interval {low:.2f} to {high:.2f})" if low == low else ""  # NaN: there is one window
    return f"{ratio:.2f} times the waits of {other}{interval}"


def _why_not_learned(result: OrderFit) -> str:
    from steersman.training.search.orders import DEFAULT, FITTED

    learned = f"the learned order is not shown to be better, with {_ratio_text(result, FITTED, result.rival)}"
    if result.rival != DEFAULT:
        return f"{result.rival} has {_ratio_text(result, result.rival, DEFAULT)}, and {learned}"
    windows = f"in {len(result.waits[DEFAULT])} windows no order is told apart from {DEFAULT}"
    if result.best_rule == DEFAULT:
        return f"{windows}; {learned}"
    return f"{windows}: {result.best_rule} has {_ratio_text(result, result.best_rule, DEFAULT)}, and {learned}"


def _about_load(result: OrderFit) -> str:
    load, about = f"{result.history_load:.2g}", f"this is about loads of {result.loads[0]:g} to {result.loads[1]:g}"
    if result.hardly_waits:
        nothing = f"hardly a pod waits in the history as it is, with a load of {load}, so another order would change"
        return f"{nothing} nothing there; {about}"
    waiting = f"{100 * result.history_waiting:.0f} % of its pods wait for more than a minute in the order of age"
    return f"the history has a load of {load}, and {waiting}; {about}"


def _parse_loads(text: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise UsageError(f"--load {text}: expected one or two numbers such as 0.8-1.1") from None


def _order_record(result: OrderFit, history: str) -> dict[str, object]:
    from steersman.training.search.orders import DEFAULT, FITTED, WAITS

    return {
        "history": history,
        "history_load": result.history_load,
        "history_waiting_share": result.history_waiting,
        "loads": list(result.loads),
        "windows": len(result.waits[result.rival]),
        "recommended": result.chosen,
        "over_default": {
            "default": DEFAULT,
            **{
                name: {"ratio": ratio, "low": interval.low, "high": interval.high}
                for name in dict.fromkeys((result.best_rule, FITTED))
                for ratio, interval in [result.ratio(name, DEFAULT)]
            },
        },
        "orders": [
            {
                "order": name,
                "relative_to_age": {
                    what: {"ratio": ratio, "low": interval.low, "high": interval.high}
                    for what, (ratio, interval) in zip(WAITS, result.relative(name), strict=True)
                },
            }
            for name in result.ranking()
        ],
    }


def _order_table(result: OrderFit, history: str) -> Table:
    from rich.table import Table

    from steersman.training.search.orders import WAITS

    windows = len(result.waits[result.rival])
    loads = f"{windows} windows with loads of {result.loads[0]:g} to {result.loads[1]:g} that the search did not use"
    title = f"{history}: waits over those in the order of age, {loads}"
    table = Table("order", title=title, title_justify="left")
    for column in WAITS:
        table.add_column(column, justify="right")
    for name in result.ranking():
        cells = [f"{ratio:.2f} ({low:.2f}-{high:.2f})" for ratio, (low, high) in result.relative(name)]
        table.add_row(f"{name} (recommended)" if name == result.chosen else name, *cells)
    return table
