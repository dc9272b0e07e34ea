"""`steersman fit scheduler`: find the configuration of kube-scheduler that allocates most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.completing import policies
from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.common import KubernetesOption, MaxKindLoss, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import advanced, option, with_options
from steersman.cli.options.inputs import Inputs, check_overwriting
from steersman.cli.options.policies import with_minor
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, say
from steersman.cluster.model import SHARED_GPUS
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.training.search.schedulers import SchedulerFit

LEARNED = "steersman"  # the policy that the found configuration is also compared with
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SchedulerFittingOptions:
    output: Annotated[Path, path_option("KubeSchedulerConfiguration to write, such as scheduler.yaml.", "--output")]
    baseline: Annotated[
        str,
        option(
            "The configuration that runs today, from which the found one differs as little as it can: kube-default, "
            "FILE or FILE:PROFILE.",
            metavar="POLICY",
            autocompletion=policies,
        ),
    ] = "kube-default"
    kubernetes: KubernetesOption = None
    simple: Annotated[
        bool, option("Search only scoring strategies and weights of resources, all that EKS takes.", "--simple")
    ] = False
    max_kind_loss: MaxKindLoss = None
    seed: Annotated[int, advanced("Seed of the search.", min=0)] = 1
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def scheduler(options: SchedulerFittingOptions, inputs: Inputs, arrivals: ArrivalOptions) -> None:
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
    from steersman.policies.files.kube_configuration import check_is_configuration
    from steersman.policies.files.written_configuration import configuration_files, write_configurations

    for file in configuration_files(options.output):
        check_overwriting(file, "a configuration of kube-scheduler", check_is_configuration)
    from steersman.policies.kube_scheduler import STOCK_TUNED
    from steersman.policies.portfolio_policy import KindLimit
    from steersman.policies.registry import resolve
    from steersman.simulation.selection.choice import gain_text
    from steersman.simulation.selection.stock_search import StockSearchOptions, gpu_name
    from steersman.training.search.schedulers import search_scheduler

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
        print_json(_record(found, source.name))
    else:
        print_table(_table(found, source.name))
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
    from steersman.policies.kube_scheduler import STOCK_TUNED
    from steersman.simulation.pod_kinds import KINDS

    titles = list(KINDS.values())
    before, after = found.by_kind(found.today), found.by_kind(STOCK_TUNED)
    kinds = [k for k in range(len(titles)) if not math.isnan(after[k] + before[k])]
    kinds.sort(key=lambda k: float(after[k] - before[k]))
    timed = found.options.protocol == "timed"
    unit = [" s" if timed else f" of {each:.0f}" for each in found.arrived]
    changes = [f"{titles[k]} {before[k]:,.0f} -> {after[k]:,.0f}{unit[k]}" for k in kinds]
    return f"{'mean waits' if timed else 'pods that fail'}: {', '.join(changes)}"


def _record(found: SchedulerFit, workload: str) -> dict[str, Any]:
    from steersman.cli.output.tables import finite
    from steersman.policies.files.written_configuration import configuration_of
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


def _table(found: SchedulerFit, workload: str) -> Table:
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
