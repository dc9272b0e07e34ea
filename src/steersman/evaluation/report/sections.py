"""The section of a report about one workload: its table and its plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from steersman.evaluation.criteria import TIMED_CRITERIA, WAITING_TIME, Criterion
from steersman.evaluation.report import figures, markup
from steersman.evaluation.report.episode_figures import latency_by_node, pods_over_time, success_lines
from steersman.evaluation.report.figures import Figure
from steersman.evaluation.report.headline import DASH, MEAN_WAIT, Cell, Headline, fixed, interval_text
from steersman.objectives.fragmentation import CAUSES
from steersman.simulation.result import RunResult

NAMED_CELLS = 40_000
"""Node names are in the heat maps only if these have fewer cells in total: names would be most of the file."""

SMALL = {
    "causes": "fragmentation by cause over the run",
    "nodes": "nodes at the end",
    "pods": "pods per node over time",
}
"""Titles of the plots of which there is one per policy."""

DIAGONAL = " Dotted: everything that arrives is placed."
BOUND_TEXT = " Red: the bound, which no scheduler exceeds that places every pod that fits."


SUCCESS = "Share of the last 30 placed pods with limits that were within their soft limit right after."
PODS_PER_NODE = "Pods on every node over the first seed's episode, a row per node."

WAIT_ROWS = (
    ("waiting_time_p50_seconds", "Median wait, s", 0),
    ("waiting_time_p95_seconds", "95 % of pods wait at most, s", 0),
    ("waiting_time_p99_seconds", "99 % wait at most, s", 0),
    ("waiting_time_max_seconds", "Longest wait, s", 0),
    ("waiting_time_mean_by_gpus_seconds", "Mean wait, each pod weighted by its GPUs, s", 1),
    ("waiting_time_mean_cpu_only_seconds", "Mean wait of pods without GPU, s", 1),
    ("waiting_time_mean_gpu_share_seconds", "Mean wait of pods with a share of a GPU, s", 1),
    ("waiting_time_mean_one_gpu_seconds", "Mean wait of pods with one GPU, s", 1),
    ("waiting_time_mean_several_gpus_seconds", "Mean wait of pods with several GPUs, s", 1),
    ("bounded_slowdown_mean", "Mean bounded slowdown (10 s)", 2),
)
"""Metric, title and digits of what the table of waits shows."""
TIME_UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


def _time_unit(runs: Sequence[RunResult]) -> tuple[str, float]:
    """Return the largest unit of which the runs last at least three, and its seconds."""
    span = max(float(run.curve.x[-1] - run.curve.x[0]) for run in runs)
    return next((unit for unit in TIME_UNITS if span >= 3 * unit[1]), TIME_UNITS[-1])


def _rescaled(run: RunResult, seconds: float) -> RunResult:
    """Return the run with its time in another unit."""
    return run if seconds == 1 else replace(run, curve=replace(run.curve, x=run.curve.x / seconds))


class Section:
    """The section of a workload in one protocol.

    Args:
        headline: of all runs of the protocol.
        workload: which one.
        runs: of this workload and protocol; the first of a policy has its final nodes.
        plots: takes this section's figures by the id of their place.
        number: of the section in the report, from 0.
    """

    def __init__(
        self,
        headline: Headline,
        workload: str,
        runs: Sequence[RunResult],
        plots: dict[str, Figure],
        number: int,
    ) -> None:
        self.headline = headline
        self.workload = workload
        self.number = number
        self.by_time = headline.protocol in ("timed", "latency")
        unit, seconds = _time_unit(runs) if self.by_time else ("", 1.0)
        self.runs = {
            policy: [_rescaled(run, seconds) for run in runs if run.policy == policy]
            for policy in headline.order(workload)
        }
        style = figures.styles(headline.policies, headline.baseline)
        self.style = {policy: style[policy] for policy in self.runs}
        self.plots = plots
        self.quantity = "gpu_allocation_percent" if headline.on_gpu else "cpu_allocation_percent"
        self.is_measured = headline.protocol == "latency"
        self.allocated = f"{headline.resource} {'used' if self.is_measured else 'allocated'}, %"
        if self.by_time:
            self.x_title = f"time, {unit}"
        else:
            on_gpu = headline.on_gpu or headline.protocol == "inflation"
            self.x_title = "arrived GPU demand, % of all GPUs" if on_gpu else "arrived, %"

    def html(self) -> str:
        """Return the section."""
        parts = [
            self._table(),
            markup.legend(self.style),
            self._bands(),
            self._objectives(),
            self._rewards(),
            self._latency(),
            self._allocation(),
            self._waiting(),
            self._causes(),
            self._nodes(),
            self._use(),
        ]
        attributes = f'data-workload="{escape(self.workload)}" data-protocol="{self.headline.protocol}"'
        return f"<section {attributes}>\n" + "\n".join(filter(None, parts)) + "\n</section>"

    def _table(self) -> str:
        if len(self.headline.workloads) == 1:
            return ""
        title = f"<h2>{escape(self.workload)} ({self.headline.protocol})</h2>"
        return f"{title}\n{markup.policy_table(self.headline, self.workload)}"

    def _bands(self) -> str:
        seeds = len(self.headline.seeds)
        if seeds == 1:
            return ""
        return markup.soft(
            f"Lines are means of {seeds} seeds; bands reach from the smallest to the largest. "
            "Choose a name to hide or show it."
        )

    def _objectives(self) -> str:
        """Return the plots of the criteria that the comparison was asked for."""
        places = []
        for number, each in enumerate(self.headline.criteria):
            if each.metric in (self.quantity, MEAN_WAIT):
                continue  # below
            over_run = self._lines(each.curve, each.short, digits=each.digits) if each.curve else None
            better = "Higher is better." if each.larger_is_better else "Lower is better."
            places += [
                self._place(
                    f"objective-{number}", over_run, f"{each.phrase[0].upper()}{each.phrase[1:]} over the run. {better}"
                ),
                self._differences(f"compared-{number}", each, better),
            ]
        return markup.block("Objectives", "What the policies are compared by.", "two", filter(None, places))

    def _differences(self, identity: str, criterion: Criterion, better: str) -> str:
        """Return the differences from the baseline with their intervals; bars from 0 of values would look alike."""
        baseline = self.headline.baseline
        values = self.headline.differences(self.workload, criterion.metric)
        title = f"difference from {baseline}{', ' * bool(criterion.unit)}{criterion.unit}"
        plot = figures.bars(values, self.style, title, criterion.digits)
        caption = f"{criterion.title}: difference from {baseline}, with its 95 % interval where there is one. {better}"
        return self._place(identity, plot, caption)

    def _rewards(self) -> str:
        """Return reward and variance over a filling, as AAML's scheduler plots them."""
        if self.headline.protocol != "deployments":
            return ""
        reward = self._lines("balance", "reward", digits=4)
        variance = self._lines("cpu_variance", "variance of the nodes' CPU shares", digits=5)
        places = [
            self._place("reward", reward, "Reward 1 - 2 s / (s + 1) of each decision, s the standard deviation."),
            self._place("variance", variance, "Variance over nodes of the share of CPU in use; 0 is perfectly even."),
        ]
        return markup.block("Reward and variance", "How even the CPU use is while the cluster fills.", "two", places)

    def _latency(self) -> str:
        """Return what Matranga's live page shows: pods per node, latency by node, success rate."""
        first = {policy: runs[0] for policy, runs in self.runs.items() if runs and runs[0].latency is not None}
        episodes = {policy: run.latency for policy, run in first.items() if run.latency is not None}
        if not episodes:
            return ""
        by_node = latency_by_node(episodes, self.style)
        places = [
            self._place("success", success_lines(self.runs, self.style), SUCCESS),
            self._place("latency", by_node, f"Mean over the pods that a node got, seed {self.headline.seeds[0]}."),
        ]
        head = markup.block("Latency", "How long answers take from a pod's node to its users.", "two", places)
        most = max(int(episode.pods.max()) for episode in episodes.values())
        small = "".join(
            self._small("pods", policy, pods_over_time(episode, first[policy].curve.x, self.x_title, most))
            for policy, episode in episodes.items()
        )
        return f'{head}\n<h2>Pods per node</h2>\n{markup.soft(PODS_PER_NODE)}\n<div class="two">{small}</div>'

    def _allocation(self) -> str:
        diagonal = self.headline.on_gpu and not self.headline.timed
        bound = self.headline.bound(self.workload)
        whole = self._lines(self.quantity, self.allocated, diagonal=diagonal, bound=bound)
        caption = "The whole run." + (DIAGONAL if diagonal else "") + (BOUND_TEXT if math.isfinite(bound) else "")
        places = [self._place("whole", whole, caption)]
        if self.quantity == self.headline.primary:
            places.append(self._differences("difference", self.headline.criterion, "Higher is better."))
        if not self.by_time:
            x = figures.grid([run.curve for runs in self.runs.values() for run in runs])
            start = 100.0 if x[-1] > 100 else float(x[0] + 0.8 * (x[-1] - x[0]))
            end = self._lines(self.quantity, self.allocated, window=(start, float(x[-1])), bound=bound)
            places.append(self._place("end", end, "The last part of it, where schedulers differ in what is left over."))
        title, text = f"{self.headline.resource} allocation", "How much of the cluster is given to pods."
        if self.is_measured:
            title, text = "CPU use", "How much of the CPU the pods really use."
        return markup.block(title, text, "two", places)

    def _waiting(self) -> str:
        if not self.headline.timed:
            return ""
        places = [
            self._place("waiting", self._lines("pods_waiting", "pods waiting"), "Pods that wait for room."),
            self._differences("waits", TIMED_CRITERIA[WAITING_TIME], "Lower is better."),
        ]
        block = markup.block("Waiting", "How long pods wait before they run.", "two", places)
        return f"{block}\n{self._waits()}"

    def _waits(self) -> str:
        """Return the table of percentiles of waits, of waits by kind of pod, and of slowdowns."""
        policies, rows = self.headline.order(self.workload), []
        for metric, title, digits in WAIT_ROWS:
            found = [self.headline.row(self.workload, policy, metric) for policy in policies]
            cells = [
                Cell(fixed(row.mean, digits), interval_text(row.interval, digits)) if row else Cell(DASH)
                for row in found
            ]
            rows.append(markup.row([Cell(title), *cells]))
        return markup.page_table(["Waits", *policies], rows)

    def _causes(self) -> str:
        if not self.headline.on_gpu:
            return ""
        share = self._lines("gpu_fragmented_percent", "GPU fragmented, % of all GPUs")
        when = "Mean over the run." if self.headline.timed else "At the end of the run."
        places = [
            self._place("causes", figures.causes_in_short(self.runs, at_end=not self.headline.timed), when),
            self._place("fragmentation", share, "GPU fragmented over the run, % of all GPUs."),
        ]
        over_run = figures.causes_over_run(self.runs, self.x_title if self.headline.timed else "arrived, %")
        small = "".join(self._small("causes", policy, plot) for policy, plot in over_run.items())
        labels = [figures.CAUSE_LABELS[name] for name in CAUSES]
        block = markup.block(
            "Fragmentation by cause",
            "Idle GPU that a typical pod of this workload cannot use, and why.",
            "two",
            places,
            markup.key(dict(zip(labels, figures.CAUSE_COLOURS, strict=True))),
        )
        return f'{block}\n<div class="many">{small}</div>' if small else block

    def _nodes(self) -> str:
        if self.by_time:
            return ""  # all pods have left, or the moment says little
        kept = {policy: runs[0].final_nodes for policy, runs in self.runs.items() if runs and runs[0].final_nodes.names}
        cells = sum(len(nodes.names) for nodes in kept.values()) * len(self.headline.workloads)
        places = []
        for policy, nodes in kept.items():
            heat = figures.heat_map(nodes, names=cells < NAMED_CELLS, gpu=self.headline.on_gpu)
            caption = f"{heat.full:,} nodes full, {heat.partly:,} partly used, {heat.empty:,} empty"
            places.append(self._small("nodes", policy, heat.figure, caption))
        share = "GPUs in use (of its CPU where it has none)" if self.headline.on_gpu else "CPU in use"
        grouped = "grouped by GPU model, " if any((nodes.gpu_count > 0).any() for nodes in kept.values()) else ""
        text = f"A cell is a node, its shade the share of its {share}; {grouped}the fullest first."
        scale = markup.scale(figures.SHARE_COLOURS, "0 %", f"100 %, seed {self.headline.seeds[0]}")
        return markup.block("Nodes at the end", text, "many", places, scale)

    def _use(self) -> str:
        balance = "gpu_balance_percent" if self.headline.on_gpu else "cpu_balance_percent"
        deviation = self._lines(balance, f"standard deviation of {self.headline.resource} use, %")
        places = [
            self._place("balance", deviation, "How unequally nodes are used; 0 is perfectly balanced."),
            self._place("used", self._lines("nodes_used", "nodes in use"), "Nodes with at least one pod."),
        ]
        return markup.block("Balance and nodes in use", "How the load is spread over the nodes.", "two", places)

    def _lines(
        self,
        quantity: str,
        y_title: str,
        *,
        window: tuple[float, float] | None = None,
        diagonal: bool = False,
        bound: float = math.nan,
        digits: int = 2,
    ) -> Figure | None:
        return figures.lines(
            self.runs,
            self.style,
            quantity,
            x_title=self.x_title,
            y_title=y_title,
            window=window,
            diagonal=diagonal,
            bound=bound,
            digits=digits,
        )

    def _place(self, name: str, plot: Figure | None, caption: str) -> str:
        if plot is None:
            return ""
        axis = plot["layout"]["yaxis"].get("title", plot["layout"]["xaxis"].get("title", {})).get("text", "")
        return markup.figure(self._plot(name, plot, f"{axis}. {caption}"), caption)

    def _small(self, name: str, policy: str, plot: Figure, caption: str = "") -> str:
        style = self.style[policy]
        label = f"{policy}: {SMALL[name]}" + (f", {caption}" if caption else "")
        return markup.policy_figure(self._plot(f"{name}-{style.index}", plot, label), policy, style, caption)

    def _plot(self, name: str, plot: Figure, label: str) -> str:
        """Return the placeholder of a figure; `label` says what it shows and of which workload."""
        identity = f"w{self.number}-{name}"
        self.plots[identity] = plot
        return markup.plot(identity, plot, f"{label} ({self.workload}, {self.headline.protocol})")
