"""What studies measured with each policy, from studies/results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import geometric_mean, mean
from typing import Any, NamedTuple

from website.pages import ROOT

RESULTS = ROOT / "studies" / "results"
PAGES = ROOT / "docs" / "results"
RULES = {"ma": "most-allocated", "la": "least-allocated", "lc": "least-connections", "p0": "latency-aware"}
"""Objectives of the rules that decide by nodes' metrics."""
FIGURES = {
    "empty_nodes": "empty nodes",
    "used_nodes": "nodes in use",
    "cpu_use_deviation_percent": "deviation of used CPU, %",
    "connections_peak": "most connections ever",
    "connections_maximum_mean": "most connections, mean",
    "soft_limits_kept_percent": "soft limits kept, %",
}
MINUTE = 60.0


class Measured(NamedTuple):
    """A result of a policy.

    Attributes:
        policy: its name.
        where: the workloads or clusters.
        figure: what was measured.
        value: its mean.
        compared: the difference to another policy.
        link: to the page of the study.
    """

    policy: str
    where: str
    figure: str
    value: str
    compared: str
    link: str


def measured() -> list[Measured]:
    """Return all results, in the order of the report."""
    return [*_generated(), *_departures(), *_openb(), *_waits(), *_metrics(), *_live_metrics(), *_live_fillings()]


def _result(name: str) -> tuple[dict[str, Any], str]:
    """Return the result of a study, and a link to its page."""
    (file,) = RESULTS.rglob(f"{name}.json")
    title = (PAGES / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ").replace("`", "")
    return json.loads(file.read_text())["result"], f"[{title}](../results/{name}.md)"


def _generated() -> Iterator[Measured]:
    result, link = _result("any_cluster")
    where = f"{len(result['values'])} generated clusters that no training saw, filled (`inflation`)"
    means = {
        policy: mean(mean(each["allocation"][policy]) for each in result["values"])
        for policy in result["values"][0]["allocation"]
    }
    for policy, value in means.items():
        yield Measured(
            policy, where, "GPU allocated, %", f"{value:.2f}", _to(value - means["fgd"], policy, "fgd"), link
        )


def _departures() -> Iterator[Measured]:
    if not any(RESULTS.rglob("steady_state.json")):
        return  # it takes hours, and is left out until it is made with the present policy
    result, link = _result("steady_state")
    clusters = result["values"]
    for policy in clusters[0]["waits"]["0.8"]:
        for load in ("0.8", "1.1"):
            ratio = geometric_mean(_wait(each, load, policy) / _wait(each, load, "fgd") for each in clusters)
            where = f"{len(clusters)} generated clusters, pods come and go at a load of {load} (`timed`)"
            text = "" if policy == "fgd" else f"{ratio:.2f}"
            if text:
                yield Measured(policy, where, "wait, as a share of that of `fgd`", text, " ", link)


def _wait(cluster: dict[str, Any], load: str, policy: str) -> float:
    return float(mean(cluster["waits"][load][policy])) + MINUTE


def _openb() -> Iterator[Measured]:
    result, link = _result("limits")
    for workload, each in result["comparison"].items():
        where = "the 15 openb traces, mean (`inflation`)" if workload == "all" else f"openb `{workload}` (`inflation`)"
        means = each["mean"]
        for policy in ("kube-default", "fgd", "steersman"):
            compared = _to(means[policy] - means["fgd"], policy, "fgd")
            yield Measured(policy, where, "GPU allocated, %", f"{means[policy]:.2f}", compared, link)


def _waits() -> Iterator[Measured]:
    result, link = _result("timed")
    for load, at in result["loads"].items():
        for workload, each in at["comparison"].items():
            waits = each["mean"]["waiting_time_mean_seconds"]
            for policy, value in waits.items():
                compared = _to((value - waits["kube-default"]) / MINUTE, policy, "kube-default", 1)
                where = f"openb `{workload}` at a load of {load} (`timed`)"
                yield Measured(policy, where, "mean wait, minutes", f"{value / MINUTE:.1f}", compared, link)


def _metrics() -> Iterator[Measured]:
    result, link = _result("latency")
    yield from _of_tasks(
        result["comparison"], "rule {objective}", "simulated clusters with telemetry (`latency`)", link
    )


def _live_metrics() -> Iterator[Measured]:
    result, link = _result("telemetry")
    for size, comparison in result["comparison"].items():
        where = f"a real control plane, {size} simulated nodes with telemetry"
        yield from _of_tasks(comparison, "rule {policy}", where, link)


def _of_tasks(comparison: dict[str, Any], rule: str, where: str, link: str) -> Iterator[Measured]:
    """Results of the rules that decide by nodes' metrics, each by the figures of its own objective."""
    for policy, objective in RULES.items():
        figures = comparison[objective][rule.format(policy=policy, objective=objective)]
        for figure, title in FIGURES.items():
            if figure in figures:
                compared = _to(figures[figure]["difference"]["mean"], policy, "kube-default")
                yield Measured(policy, where, title, f"{figures[figure]['values']['mean']:.2f}", compared, link)


def _live_fillings() -> Iterator[Measured]:
    result, link = _result("agents")
    for policy in ("kube-default", "least-allocated", "most-even", "random"):
        each = result["comparison"][policy]["variance_mean"]
        compared = _to(each["differences"]["kube-default"]["mean"], policy, "kube-default")
        where = "10 equal nodes, filled with Deployments to 50 % (`deployments`)"
        yield Measured(
            policy, where, "variance of CPU use, squared points", f"{each['values']['mean']:.2f}", compared, link
        )


def _to(difference: float, policy: str, other: str, digits: int = 2) -> str:
    """Return a difference to another policy; "" for that policy itself."""
    return "" if policy == other else f"{difference:+.{digits}f} to `{other}`"
