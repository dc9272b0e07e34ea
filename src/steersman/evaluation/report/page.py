"""`report.html`: the outcome in a sentence, a table, plots, and the method; one file that needs no network."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from importlib import resources
from pathlib import Path

from steersman.core.statistics import BLOCKS
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.generated import repr_without_defaults
from steersman.evaluation.report import markup
from steersman.evaluation.report.episode_figures import family_of, workload_bars
from steersman.evaluation.report.figures import Figure, dark_colours, styles
from steersman.evaluation.report.headline import (
    BOUND_LABEL,
    FEW_SEEDS,
    Cell,
    Headline,
    count,
    fixed,
    interval_text,
    signed,
)
from steersman.evaluation.report.learning_curve import LearningCurve, learning_section
from steersman.evaluation.report.sections import Section
from steersman.evaluation.results import REPORT_MARK
from steersman.evaluation.summary import ALL, SummaryRow
from steersman.simulation.result import RunResult
from steersman.version import __version__

# Nothing is loaded from the network: reports are read behind firewalls, and must not leak that they are.
SECURITY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

PLOTLY = "plotly-cartesian.min.js.gz"

PROTOCOLS = {
    "inflation": "Pods are drawn from the workload, in an order that the seed decides, until they ask for "
    "{percent:g} % of the cluster's GPUs. They arrive one by one and none leaves; a pod that fits nowhere fails.",
    "arrivals": "Pods arrive one by one in the order of the file and none leaves; a pod that fits nowhere fails.",
    "timed": "Pods arrive and leave at the times of the workload. A pod that fits nowhere waits, and is tried again "
    "when others leave.",
    "deployments": "The seed draws Deployments of several equal pods until they ask for one of the loads (of CPU, "
    "memory or pods). Pods arrive one by one on an empty cluster and none leaves; a pod that fits nowhere fails.",
    "latency": "The seed draws a cluster in zones, Deployments that arrive and leave, what they really use under a "
    "load that changes over the day, and the errors of measurement. Policies see requests and what was last scraped; "
    "figures are of what is really used, means over time after a warm-up. Learned policies choose among nodes "
    "that put no hard limit of latency at risk while others do not; rules decide for themselves.",
}

BY_LOAD = (
    "As many pods as the workload has are drawn from it and arrive at random times (a Poisson process), so that those "
    "that run would ask for {percent:g} % of the cluster's GPUs, or of its CPU if no pod asks for GPUs, on average if "
    "none waited. A run begins with the pods that would run by then. Each stays for as long as in the workload. A pod "
    "that fits nowhere waits, and is tried again when others leave."
)
"""The protocol `timed` with a load, which stands for the times of the workload."""

ALLOCATED = {
    "inflation": "The used share of the cluster at the end: the mean over the last arrivals, those by which the demand "
    "rounds to {percent:g} %, as in the published experiments.",
    "arrivals": "The used share of the cluster after the last arrival.",
}

WAITS = (
    "From a pod's arrival until it is bound, of the pods that were bound. With generated arrivals (--load) of those "
    "that arrive after the start: the pods that run already when a run begins are no arrivals."
)

BOUND_TEXT = (
    "An upper bound by linear programming (HiGHS) on what any scheduler allocates by the end that places every pod "
    "that fits on some node, even one that knows all arrivals beforehand; computed for the arrivals of each seed. It "
    "is too high rather than too low: pods may be split, CPU, memory and whole GPUs are pooled over the nodes of a "
    "type (shares do have to fill single GPUs), and wishes about other pods are ignored. A scheduler that turns pods "
    "away on purpose could exceed it."
)

RECORDED = (
    "The placement that the input records, of the pods that ran when it was written. No seed changes it, so it has no "
    "interval."
)

FITTED = (
    "What was kept of a search on random draws of the same pods, and of a comparison with every rule on further "
    "draws: {}. No draw is a run of this report; in arrivals the pods are those of the draws, in another order."
)

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{mark}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{security}">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
{body}
</main>
<!-- plotly.js (cartesian bundle), Copyright Plotly, Inc., MIT License -->
<script type="application/gzip" id="plotly">{plotly}</script>
<script type="application/gzip" id="figures">{figures}</script>
<script type="application/json" id="dark">{dark}</script>
<script>
{script}</script>
</body>
</html>
"""


WARNINGS = '<ul class="warnings" aria-label="Warnings">'


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of policies in one protocol.

    Attributes:
        runs: all of them; the first of a workload and policy has its final nodes.
        summary: of these runs.
        headline: of these runs.
        experiment: what was run.
    """

    runs: Sequence[RunResult]
    summary: Sequence[SummaryRow]
    headline: Headline
    experiment: Experiment

    @property
    def choices(self) -> tuple[str, ...]:
        """Return which members of portfolios decided, and why, a sentence each."""
        runs = [run for run in self.runs if run.choice]
        return tuple(
            dict.fromkeys(f"{each.policy} on {each.workload} ({each.protocol}): {each.choice}" for each in runs)
        )


def write_report(
    path: Path,
    comparisons: Sequence[Comparison],
    *,
    command: str,
    reason: str = "",
    learning: LearningCurve | None = None,
    understood: Sequence[str] = (),
    fitted: str = "",
) -> None:
    """Write the report of an experiment.

    Args:
        path: the file.
        comparisons: of the same policies and workloads, one per protocol.
        command: the command line, without the machine's paths.
        reason: why these protocols, if the data chose them.
        learning: how one of the policies was trained, to be shown.
        understood: what the workloads were taken to hold, a sentence each.
        fitted: how one of the policies was fitted to the workload, if one was.
    """
    plots: dict[str, Figure] = {}
    sections: list[str] = []
    for each in comparisons:
        for workload in each.headline.workloads:
            runs = [run for run in each.runs if run.workload == workload]
            sections.append(Section(each.headline, workload, runs, plots, len(sections)).html())
    headlines = [each.headline for each in comparisons]
    parts = [
        *(_top(headline, "h2" if number else "h1") for number, headline in enumerate(headlines)),
        _warnings(comparisons),
        *(_bars(headline, number, plots) for number, headline in enumerate(headlines)),
        _choice(headlines),
        *sections,
        learning_section(learning, plots) if learning is not None else "",
        _method(comparisons, command, reason, understood, fitted),
        *(_details(each.headline, each.summary) for each in comparisons),
    ]
    page = PAGE.format(
        mark=REPORT_MARK,
        security=SECURITY,
        title=escape(headlines[0].sentence()),
        css=_file("report.css"),
        body="\n".join(parts),
        plotly=_text(resources.files("steersman.data.plotly").joinpath(PLOTLY).read_bytes()),
        figures=_text(gzip.compress(json.dumps(plots, separators=(",", ":"), allow_nan=False).encode(), mtime=0)),
        dark=json.dumps(dark_colours(), separators=(",", ":")),
        script=_file("report.js"),
    )
    path.write_text(page, encoding="utf-8")


def _text(packed: bytes) -> str:
    """Return bytes as text that can stand in a page."""
    return base64.b64encode(packed).decode("ascii")


def _top(headline: Headline, level: str) -> str:
    several = headline.workload == ALL
    gpus = headline.gpus.get(headline.workload, 0)
    facts = [
        count(len(headline.workloads), "workload") if several else headline.workload,
        *([] if headline.protocol in ("deployments", "latency") else [count(headline.nodes, "node")]),
        *([count(gpus, "GPU")] if gpus else []),
        f"{headline.protocol} protocol",
        count(len(headline.seeds), "seed"),
    ]
    parts = [
        f'<{level} class="claim">{escape(headline.sentence())}</{level}>',
        *(f"<p>{escape(sentence)}</p>" for sentence in headline.sentences()[1:]),
        markup.soft(" · ".join(facts)),
        f"<p>{escape(bound)}</p>" if (bound := headline.bound_sentence()) else "",
        markup.policy_table(headline, headline.workload),
        markup.soft(_small_print(headline)),
        _matrix(headline) if several else "",
    ]
    return "\n".join(filter(None, parts))


def _warnings(comparisons: Sequence[Comparison]) -> str:
    """Return what a reader must know of the workloads, as the terminal says it."""
    texts = dict.fromkeys(text for each in comparisons for run in each.runs for text in run.warnings)
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"{WARNINGS}{items}</ul>" if items else ""


def report_warnings(page: str) -> tuple[str, ...]:
    """Return the warnings in a report."""
    _, found, rest = page.partition(WARNINGS)
    items = rest.partition("</ul>")[0] if found else ""
    return tuple(unescape(item.removesuffix("</li>")) for item in items.split("<li>")[1:])


def _small_print(headline: Headline) -> str:
    """Return what the small print of the table is."""
    if headline.is_given and headline.has_intervals:
        return f"Small print is the 95 % interval over {BLOCKS} moving blocks of the trace; differences are paired."
    if headline.is_given:
        return "There is no interval: the arrivals are given once, and seeds only rank equal nodes."
    if len(headline.seeds) == 1:
        return "One seed has no interval."
    few = f", wide because of only {len(headline.seeds)} seeds" if len(headline.seeds) < FEW_SEEDS else ""
    return f"Small print is the 95 % interval{few}; differences are taken seed by seed."


def _matrix(headline: Headline) -> str:
    """Return the primary metric on every workload by policy, the best in bold."""
    rows = []
    for workload in headline.workloads:
        best = headline.order(workload)[0]
        cells = (
            f"<td{' class=best' if policy == best else ''}>{fixed(mean, 2)}</td>"
            for policy, mean in headline.means(workload).items()
        )
        last = f"<td>{fixed(headline.bound(workload), 2)}</td>" if headline.bounds is not None else ""
        rows.append(f"<tr><td>{escape(workload)}</td>{''.join(cells)}{last}</tr>")
    title = f"<h2>{escape(headline.primary_title)}, by workload</h2>"
    bound = [BOUND_LABEL] if headline.bounds is not None else []
    return title + markup.page_table(["Workload", *headline.policies, *bound], rows)


def _bars(headline: Headline, number: int, plots: dict[str, Figure]) -> str:
    """Return differences from the baseline as grouped bars, a group per workload; empty for a single workload."""
    if len(headline.workloads) < 2:
        return ""
    style = styles(headline.policies, headline.baseline)
    values = {workload: headline.differences(workload, headline.primary) for workload in headline.workloads}
    title = f"{headline.primary_title}, difference from {headline.baseline}"
    plot = workload_bars(values, style, title, headline.criterion.digits)
    if plot is None:
        return ""
    plots[identity := f"workloads-{number}"] = plot
    families = ", openb workloads by family" if any(map(family_of, headline.workloads)) else ""
    name = f"Mean difference of each policy from {headline.baseline}, with its 95 % interval{families}."
    shown = markup.figure(markup.plot(identity, plot, title), name)
    legend = markup.key({policy: look.colour for policy, look in style.items() if policy != headline.baseline})
    return f"<h2>{escape(title)}, by workload ({headline.protocol})</h2>\n{legend}{shown}"


def _intervals_text(headline: Headline) -> str:
    """Return what intervals of a comparison are over."""
    if not headline.is_given:
        return (
            "95 % of the mean over seeds (Student's t), differences paired by seed. They say how much depends on the "
            "seed, not how another workload would do."
        )
    if headline.timed:
        return (
            f"In {headline.protocol} the trace gives the arrivals, and seeds only rank equal nodes. Intervals are 95 % "
            f"over moving blocks, each a {BLOCKS}th of the trace (Künsch 1989), differences paired by arrival or "
            "moment. They say how other weeks like these would do. What is no mean over the trace has none."
        )
    return (
        f"In {headline.protocol} the order of arrivals is given once, and seeds only rank equal nodes, so there is no "
        "interval."
    )


def _choice(headlines: Sequence[Headline]) -> str:
    shown = [(workload, headline.protocol) for headline in headlines for workload in headline.workloads]
    if len(shown) == 1:
        return ""
    named = (f"{workload} ({protocol})" if len(headlines) > 1 else workload for workload, protocol in shown)
    options = "".join(f"<option>{escape(name)}</option>" for name in named)
    label = '<label for="workload">Plots of</label>'
    return f'<p class="choose">{label} <select id="workload">{options}</select></p>'


def _method(
    comparisons: Sequence[Comparison], command: str, reason: str, understood: Sequence[str], fitted: str
) -> str:
    headline, protocols = comparisons[0].headline, [each.headline.protocol for each in comparisons]
    experiments = {each.headline.protocol: each.experiment for each in comparisons}
    ratio = experiments["inflation"].ratio if "inflation" in experiments else math.nan
    timed = experiments.get("timed")
    load, mean_duration = (None, None) if timed is None else (timed.load, timed.mean_duration)
    texts = PROTOCOLS if load is None else PROTOCOLS | {"timed": BY_LOAD.format(percent=100 * load)}
    how = " ".join(f"{name}: {texts[name].format(percent=100 * ratio)}" for name in protocols)
    allocated = dict.fromkeys(ALLOCATED[name].format(percent=100 * ratio) for name in protocols if name in ALLOCATED)
    first = comparisons[0].experiment
    parts = dict.fromkeys(part for each in first.objectives for part in each.objectives)
    facts = {
        "Pods": "; ".join(understood),
        "Protocols" if len(protocols) > 1 else "Protocol": f"{how} Among equally good nodes the seed decides.",
        "Chosen": f"By the data: {reason}." if reason else "",
        "Ratio": f"{ratio:g}" if "inflation" in protocols else "",
        "Load": "" if load is None else f"{load:g}",
        "Mean duration": "" if mean_duration is None else f"{mean_duration:g} s of pods whose source states no end",
        "Generated by": ""
        if first.environment is None
        else f"{repr_without_defaults(first.environment)}; the rest as this version has it.",
        "Seeds": f"{', '.join(_ranges(headline.seeds))}; with the same seed every policy meets the same pods.",
        "Policies": ", ".join(headline.policies) + ". A policy ranks nodes; it never refuses a pod that fits.",
        "Members": "; ".join(choice for each in comparisons for choice in each.choices),
        "Fitted": FITTED.format(fitted) if fitted else "",
        "Objectives": "; ".join(f"{part.name}: {part.formula}" for part in parts) + "." if parts else "",
        "Best": f"{_best(comparisons)}, if the interval of its difference from every other policy excludes 0; else no "
        "difference is shown. It is best on this cluster and for these pods alone.",
        "Allocated": " ".join(allocated),
        "Waits": "" if timed is None else WAITS,
        "As it is": RECORDED if any(each.headline.recorded for each in comparisons) else "",
        "Bound": BOUND_TEXT if any(each.headline.bounds is not None for each in comparisons) else "",
        "Fragmented": "Idle GPU that a pod drawn at random from the typical pods of the workload could not use, in "
        "percent of all GPUs "
        "(Weng et al., “Beware of Fragmentation”, USENIX ATC 2023)."
        if any(each.headline.on_gpu for each in comparisons)
        else "",
        "Intervals": " ".join(dict.fromkeys(_intervals_text(each.headline) for each in comparisons)),
        "Version": f"steersman {__version__}",
    }
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    typed = f"<dt>Command</dt><dd><code>{escape(command)}</code></dd>" if command else ""
    return f"<h2>How this was measured</h2>\n<dl>{items}{typed}</dl>"


def _best(comparisons: Sequence[Comparison]) -> str:
    if not comparisons[0].experiment.objectives:
        return "The policy that allocates the most, or lets pods wait the least"
    criteria = dict.fromkeys(
        f"the {'highest' if each.larger_is_better else 'lowest'} {each.phrase}"
        for comparison in comparisons
        for each in comparison.headline.criteria
    )
    return f"The policy with {', or '.join(criteria)}"


def _ranges(seeds: Iterable[int]) -> list[str]:
    """Return seeds as `42-51`, neighbours joined."""
    joined: list[list[int]] = []
    for seed in seeds:
        if joined and seed == joined[-1][1] + 1:
            joined[-1][1] = seed
        else:
            joined.append([seed, seed])
    return [f"{first}-{last}" if last > first else str(first) for first, last in joined]


def _details(headline: Headline, summary: Sequence[SummaryRow]) -> str:
    titles = (
        "Metric",
        "Policy",
        "Mean",
        "Interquartile mean",
        f"Difference from {headline.baseline}",
    )
    chosen = [row for row in summary if row.workload == headline.workload and math.isfinite(row.mean)]
    rows = []
    for metric in dict.fromkeys(row.metric for row in chosen):
        for row in (row for row in chosen if row.metric == metric):
            cells = (
                Cell(f"{row.metric} ({row.unit})"),
                Cell(headline.others(row.workload).get(row.policy, row.policy)),
                Cell(fixed(row.mean, 2), interval_text(row.interval, 2)),
                Cell(fixed(row.interquartile_mean, 2)),
                Cell(signed(row.difference, 2), interval_text(row.difference_interval, 2, sign=True)),
            )
            rows.append(markup.row(cells))
    title = f"<summary>Every metric at the end, {escape(headline.workload)} ({headline.protocol})</summary>"
    return f"<details>{title}{markup.page_table(titles, rows)}</details>"


def _file(name: str) -> str:
    return resources.files("steersman.evaluation.report").joinpath(name).read_text("utf-8")
