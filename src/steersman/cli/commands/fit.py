"""`steersman fit`: a policy, an order of waiting pods, or kube-scheduler's configuration for nodes and pods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.cli.completing import policies, rules_and_files
from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.common import (
    CommandGroup,
    EngineOption,
    Jobs,
    KubernetesOption,
    MaxKindLoss,
    TableOrJson,
    TableOrJsonOption,
    path_option,
    policy_option,
)
from steersman.cli.options.declaring import advanced, every_option, given_options, option, with_options
from steersman.cli.options.inputs import FileInputs, Inputs, check_model_output, check_overwriting, read_now
from steersman.cli.options.policies import stored_order_warnings, with_minor
from steersman.cli.output.display import Progress, Warnings, one_line, print_json, print_table, say, status_if_slow
from steersman.cluster.model import SHARED_GPUS
from steersman.core.engines import Engine, use_engine
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.core.statistics import Interval
    from steersman.policies.portfolio_policy import PortfolioPolicy
    from steersman.training.search.orders import OrderFit
    from steersman.training.search.policies import Fit, SchedulerFit
    from steersman.workloads.workload import Workload

app = CommandGroup(help="Fit a policy, an order of waiting pods, or kube-scheduler's configuration to nodes and pods.")


@dataclass(frozen=True, slots=True)
class WrittenPolicy:
    output: Path = path_option(
        "File to write: mine.safetensors for a policy file, my-rule.txt for a formula.", default=...
    )
    policy: str = option(
        "steersman or rules, which are chosen and fitted, or a rule such as fgd, a policy file or a formula. The "
        "latter stay as they are and get the profile of the pods. POLICY+ORDER: the file also says who goes next.",
        default="steersman",
        metavar="POLICY",
        autocompletion=rules_and_files,
    )


@dataclass(frozen=True, slots=True)
class FittingOptions:
    generations: int | None = advanced(
        "Generations of the search. [default: 10 to 100, fewer for large clusters]", min=1
    )
    seed: int = advanced("Seed of the search.", default=1, min=0)
    max_kind_loss: MaxKindLoss = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@app.command("policy")
@with_options
def fit_policy(options: WrittenPolicy, fitting: FittingOptions, inputs: Inputs, arrivals: ArrivalOptions) -> None:
    """Write a policy for these nodes and pods: as a policy file, or as a formula to read and edit.

    Of steersman and rules short simulations choose a member. The weights of steersman are also fitted by a search, and
    kept if a paired test on further draws of the pods shows that they are better. A policy file holds the profile of
    the pods, as the plugin for kube-scheduler needs it. An order alone joins a policy without --nodes and --pods.

    **Example**: steersman fit policy --nodes nodes.yaml --pods pods.yaml --output mine.safetensors

    **An order for a file**: steersman fit policy --policy mine.safetensors+wfp3:easy --output ordered.safetensors
    """
    from steersman.policies.formula import FORMULA_SUFFIX, formula_text, open_formula
    from steersman.policies.policy_file import read_policy

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
    from steersman.policies.kinds import as_linear, as_portfolio
    from steersman.policies.policy_file import SUFFIX, prepare_policy, with_stored_order, write_policy
    from steersman.policies.registry import policy_path, resolve, split_order

    name, order = split_order(options.policy)
    decides, warn = resolve(options.policy), Warnings()
    choice = as_portfolio(decides)
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
    from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
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
        print_json(_policy_record(result, source.name))
    else:
        print_table(_policy_table(result, source.name))
    say(result.evidence)
    return result


def _policy_record(result: Fit, workload: str) -> dict[str, object]:
    unit = "mean_wait_seconds" if result.card.protocol == "timed" else "gpus_not_allocated_percent"
    return {
        "workload": workload,
        "protocol": result.card.protocol,
        "draws": len(result.costs[result.policy.name]),
        "kept": result.policy.name,
        "policies": [{"policy": name, unit: float(costs.mean())} for name, costs in result.costs.items()],
    }


def _policy_table(result: Fit, workload: str) -> Table:
    from rich.table import Table

    unit = "mean wait, s" if result.card.protocol == "timed" else "GPUs not allocated, %"
    draws = len(result.costs[result.policy.name])
    table = Table("policy", unit, title=f"{workload}: {draws} draws that the search did not use", title_justify="left")
    for name, costs in result.costs.items():
        table.add_row(name, f"{costs.mean():.2f}")
    return table


GENERATIONS = 40


@dataclass(frozen=True, slots=True)
class OrderFittingOptions:
    output: Path = path_option("Order file to write, such as order.safetensors.", default=...)
    policy: str = policy_option("Policy that places the pods", default="fgd")
    load: str = advanced(
        "Least and largest load that windows of the history are scaled to.", default="0.8-1.1", metavar="LOW-HIGH"
    )
    generations: int = option("Generations of the search.", default=GENERATIONS, min=1)
    seed: int = advanced("Seed of the search.", default=1, min=0)
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    output_format: TableOrJsonOption = TableOrJson.TABLE


@app.command("order")
@with_options
def fit_order(options: OrderFittingOptions, inputs: FileInputs, cluster: ClusterOptions) -> None:
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
                name: _with_interval(*result.ratio(name, DEFAULT)) for name in dict.fromkeys((result.best_rule, FITTED))
            },
        },
        "orders": [
            {
                "order": name,
                "relative_to_age": {
                    what: _with_interval(*each) for what, each in zip(WAITS, result.relative(name), strict=True)
                },
            }
            for name in result.ranking()
        ],
    }


def _with_interval(ratio: float, interval: Interval) -> dict[str, float]:
    return {"ratio": ratio, "low": interval.low, "high": interval.high}


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


LEARNED = "steersman"  # the policy that the found configuration is also compared with
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SchedulerFittingOptions:
    output: Path = path_option("KubeSchedulerConfiguration to write, such as scheduler.yaml.", default=...)
    baseline: str = option(
        "The configuration that runs today, from which the found one differs as little as it can: kube-default, "
        "FILE or FILE:PROFILE.",
        default="kube-default",
        metavar="POLICY",
        autocompletion=policies,
    )
    kubernetes: KubernetesOption = None
    simple: bool = option("Search only scoring strategies and weights of resources, all that EKS takes.", default=False)
    max_kind_loss: MaxKindLoss = None
    seed: int = advanced("Seed of the search.", default=1, min=0)
    output_format: TableOrJsonOption = TableOrJson.TABLE


@app.command("scheduler")
@with_options
def fit_scheduler(options: SchedulerFittingOptions, inputs: Inputs, arrivals: ArrivalOptions) -> None:
    """Find the configuration of kube-scheduler, with its own plugins alone, that suits a cluster best.

    Searches scoring strategies over CPU, memory and GPUs and the weights and resources of the two plugins of resources
    by simulation on these nodes and pods: for the GPUs allocated, with --protocol timed for the shortest waits. The
    best one is compared with the configuration that runs today, and with the policy steersman, on random draws of the
    pods that the search did not use. It is written if a paired test shows that it is better: as a
    KubeSchedulerConfiguration, in the form of AKS (.aks.yaml) and, if it can be expressed there, in that of EKS
    (.eks.json). Otherwise no file is written.

    **Example**: steersman fit scheduler --nodes nodes.yaml --pods pods.yaml --output scheduler.yaml
    """
    inputs.check()
    if options.output.suffix not in SUFFIXES:
        raise UsageError(f"--output {options.output}: expected a name that ends with {' or '.join(SUFFIXES)}")
    from steersman.policies.kube_scheduler.configuration import check_is_configuration
    from steersman.policies.kube_scheduler.written import configuration_files, write_configurations

    for file in configuration_files(options.output):
        check_overwriting(file, "a configuration of kube-scheduler", check_is_configuration)
    from steersman.policies.kube_scheduler.policy import STOCK_TUNED
    from steersman.policies.portfolio_policy import KindLimit
    from steersman.policies.registry import resolve
    from steersman.simulation.selection.choice import gain_text
    from steersman.simulation.selection.stock_search import StockSearchOptions, gpu_name
    from steersman.training.search.policies import search_scheduler

    (baseline,) = with_minor([options.baseline], options.kubernetes, inputs.live if inputs.cluster else None)
    today, learned = resolve(baseline), resolve(LEARNED)
    (source,) = inputs.read(warn := Warnings())
    arrivals.warn_of(source, warn)
    gpu = gpu_name(source)
    if gpu == SHARED_GPUS:
        warn((f"{source.name}: pods request {SHARED_GPUS} by annotations, which kube-scheduler does not count",))
    limit = None if options.max_kind_loss is None else KindLimit(options.max_kind_loss, today)
    settings = StockSearchOptions(**arrivals.settings, simple=options.simple, limit=limit, seed=options.seed)
    beside = [learned] if gpu else []
    with Progress("searching, generations") as progress:
        found = search_scheduler(source, settings, today=today, beside=beside, progress=progress.update)
    written = write_configurations(options.output, found.policy) if found.is_better else []
    if options.output_format is TableOrJson.JSON:
        print_json(_scheduler_record(found, source.name))
    else:
        print_table(_scheduler_table(found, source.name))
    gain = gain_text(STOCK_TUNED, found.today, found.savings, found.options.protocol)
    if written:
        say(f"{gain}; {_who_pays(found)}")
        say(f"wrote {', '.join(str(file) for file in written)}")
    elif found.breaks_limit:
        say(f"the best configuration breaks --max-kind-loss: {gain}; {_who_pays(found)}; no file is written")
    else:
        say(f"no configuration is shown to be better: {gain}; no file is written")


def _who_pays(found: SchedulerFit) -> str:
    """Return what each kind of pod pays before and after, those that pay more last."""
    from steersman.policies.kube_scheduler.policy import STOCK_TUNED
    from steersman.simulation.pod_kinds import KINDS

    titles = list(KINDS.values())
    before, after = found.by_kind(found.today), found.by_kind(STOCK_TUNED)
    kinds = [k for k in range(len(titles)) if not math.isnan(after[k] + before[k])]
    kinds.sort(key=lambda k: float(after[k] - before[k]))
    timed = found.options.protocol == "timed"
    unit = [" s" if timed else f" of {each:.0f}" for each in found.arrived]
    changes = [f"{titles[k]} {before[k]:,.0f} -> {after[k]:,.0f}{unit[k]}" for k in kinds]
    return f"{'mean waits' if timed else 'pods that fail'}: {', '.join(changes)}"


def _scheduler_record(found: SchedulerFit, workload: str) -> dict[str, Any]:
    from steersman.cli.output.tables import finite
    from steersman.policies.kube_scheduler.written import configuration_of
    from steersman.simulation.pod_kinds import KINDS

    paid = "mean_wait_seconds" if found.options.protocol == "timed" else "failed"

    def of(policy: str) -> dict[str, Any]:
        mean, interval = found.gain(policy)
        by_kind = [finite(each) for each in found.by_kind(policy).tolist()]
        return {
            "policy": policy,
            "cost": float(found.costs[policy].mean()),
            "gain": {"mean": mean, "low": interval.low, "high": interval.high},
            paid: dict(zip(KINDS, by_kind, strict=True)),
        }

    return {
        "workload": workload,
        "protocol": found.options.protocol,
        "baseline": found.today,
        "is_better": found.is_better,
        "draws": len(found.savings),
        "arrived": dict(zip(KINDS, found.arrived.tolist(), strict=True)),
        "policies": [of(policy) for policy in found.costs],
        "configuration": configuration_of(found.profile, found.scheduler_name, found.configuration),
    }


def _scheduler_table(found: SchedulerFit, workload: str) -> Table:
    from rich.table import Table

    from steersman.simulation.pod_kinds import KINDS

    timed = found.options.protocol == "timed"
    title = f"{workload}: means over {len(found.savings)} draws that the search did not use"
    table = Table("policy", title=title, title_justify="left")
    resource = "GPUs allocated" if found.arrived[1:].any() else "CPU allocated"
    values, unit = ("waits and slowdowns", "times") if timed else (resource, "points")
    kinds = [k for k in range(len(KINDS)) if found.arrived[k]]
    paid = [f"{'wait, s' if timed else 'failed'}, {list(KINDS.values())[k]}" for k in kinds]
    for column in ([] if timed else [values], [f"{values if timed else ''} against {found.today}, {unit}"], paid):
        for each in column:
            table.add_column(each.strip(), justify="right")
    for policy, costs in found.costs.items():
        mean, (low, high) = found.gain(policy)
        against = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        if timed:
            # Gains are differences of logarithms: the ends change places.
            against = f"{math.exp(-mean):.2f} [{math.exp(-high):.2f}, {math.exp(-low):.2f}]"
        allocated = [] if timed else [f"{100 - costs.mean():.1f} %"]
        by_kind = [f"{found.by_kind(policy)[k]:,.0f}" for k in kinds]
        table.add_row(policy, *allocated, "" if policy == found.today else against, *by_kind)
    if not timed:
        table.add_row("pods that arrive", "", "", *(f"{found.arrived[k]:.0f}" for k in kinds))
    return table
