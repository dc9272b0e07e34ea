"""The section of a report about one workload: what is plotted of it, and what is said there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from steersman.evaluation.report.curves import LinePlots
from steersman.evaluation.report.figures import (
    bars,
    causes_in_short,
    causes_over_run,
    grouped_bars,
    heat_map,
    latency_by_node,
    pods_over_time,
    success_lines,
)
from steersman.evaluation.report.headline import Cell, Headline
from steersman.evaluation.report.style import CAUSE_COLOURS, DASH, Figure, Style, fixed, interval_text, styles
from steersman.simulation.measures import COURSE, CPU_ALLOCATION, FRAGMENTED, GPU_ALLOCATION, MEAN_WAIT, Measure
from steersman.simulation.pod_kinds import KINDS, wait_metric
from steersman.simulation.result import RunResult

NAMED_CELLS = 40_000  # heat maps of more cells have no node names, which would be most of the file

DIAGONAL = " Dotted: everything that arrives is placed."
BOUND_TEXT = " Red: the bound, which no scheduler exceeds that places every pod that fits."
SUCCESS = "Share of the last 30 placed pods with limits that were within their soft limit right after."

WAIT_ROWS = (
    ("waiting_time_p50_seconds", "Median wait, s", 0),
    ("waiting_time_p95_seconds", "95 % of pods wait at most, s", 0),
    ("waiting_time_p99_seconds", "99 % wait at most, s", 0),
    ("waiting_time_max_seconds", "Longest wait, s", 0),
    ("waiting_time_mean_by_gpus_seconds", "Mean wait, each pod weighted by its GPUs, s", 1),
    *((wait_metric(kind), f"Mean wait of pods with {title}, s", 1) for kind, title in KINDS.items()),
    ("bounded_slowdown_mean", "Mean bounded slowdown (10 s)", 2),
)
TIME_UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure and its place in the page."""

    identity: str
    figure: Figure
    caption: str  # what a reader sees of it in words
    label: str  # the same for screen readers
    policy: str = ""  # the only policy in it; empty if it shows all
    style: Style | None = None


@dataclass(frozen=True, slots=True)
class PlotGroup:
    """A titled group of plots."""

    title: str
    text: str
    plots: Sequence[Plot | None]  # side by side; a block without any is left out
    grid: str = "two"  # CSS class of their arrangement
    small: Sequence[Plot] = ()  # plots of one policy each, below
    colours: dict[str, str] = field(default_factory=dict)  # a legend of colours by their meaning
    scale: tuple[str, ...] = ()  # the ends of the legend of shades; empty for none
    rows: Sequence[Sequence[Cell]] = ()  # of a table of waits below: a title, and a cell per policy

    @property
    def shown(self) -> list[Plot]:
        return [plot for plot in self.plots if plot is not None]


def _unit_of(span: float) -> tuple[str, float]:
    return next((unit for unit in TIME_UNITS if span >= 3 * unit[1]), TIME_UNITS[-1])


class Section:
    """The section of a workload in one protocol.

    Args:
        runs: of this workload and protocol; the first of a policy has its final nodes.
        number: of the section in the report, from 0.
    """

    def __init__(self, headline: Headline, workload: str, runs: Sequence[RunResult], number: int) -> None:
        self.headline = headline
        self.workload = workload
        self.number = number
        self._where = f" ({workload}, {headline.protocol})"
        self.by_time = headline.protocol in ("timed", "latency")
        unit, seconds = "", 1.0
        if self.by_time:
            unit, seconds = _unit_of(max(float(run.curve.x[-1] - run.curve.x[0]) for run in runs))
        self.runs = {
            policy: [
                replace(run, curve=replace(run.curve, x=run.curve.x / seconds)) for run in runs if run.policy == policy
            ]
            for policy in headline.order(workload)
        }
        style = styles(headline.policies)
        self.style = {policy: style[policy] for policy in self.runs}
        on_gpu = headline.on_gpu or headline.protocol == "inflation"
        arrived = "arrived GPU demand, % of all GPUs" if on_gpu else "arrived, %"
        self.lines = LinePlots(self.runs, self.style, f"time, {unit}" if self.by_time else arrived)
        self.blocks = list(self._blocks())

    def _blocks(self) -> Iterator[PlotGroup]:
        headline = self.headline
        yield self._objectives()
        if headline.protocol == "deployments":
            yield self._rewards()
        yield from self._latency()
        yield self._allocation()
        if headline.timed:
            yield self._waiting()
        if headline.on_gpu:
            yield self._causes()
        if not self.by_time:  # else all pods have left, or the moment says little
            yield self._nodes()
        yield self._use()

    def plots(self) -> Iterator[Plot]:
        for block in self.blocks:
            yield from block.shown
            yield from block.small

    def _wait(self, policy: str, metric: str, digits: int) -> Cell:
        row = self.headline.row(self.workload, policy, metric)
        return Cell(fixed(row.mean, digits), interval_text(row.interval, digits)) if row else Cell(DASH)

    @property
    def _quantity(self) -> str:
        return GPU_ALLOCATION if self.headline.on_gpu else CPU_ALLOCATION

    def _plot(self, name: str, figure: Figure | None, caption: str) -> Plot | None:
        if figure is None:
            return None
        layout = figure["layout"]
        axis = layout["yaxis"].get("title", layout["xaxis"].get("title", {})).get("text", "")
        return Plot(f"w{self.number}-{name}", figure, caption, f"{axis}. {caption}{self._where}")

    def _line(self, name: str, quantity: str, y_title: str, caption: str, *, digits: int = 2) -> Plot | None:
        return self._plot(name, self.lines.plot(quantity, y_title, digits=digits), caption)

    def _of_policy(self, name: str, what: str, policy: str, figure: Figure, caption: str = "") -> Plot:
        style = self.style[policy]
        label = f"{policy}: {what}{f', {caption}' if caption else ''}{self._where}"
        return Plot(f"w{self.number}-{name}-{style.index}", figure, caption, label, policy, style)

    def _objectives(self) -> PlotGroup:
        plots = []
        for number, each in enumerate(self.headline.criteria):
            if each.name not in (self._quantity, MEAN_WAIT.name):
                caption = f"{each.phrase[0].upper()}{each.phrase[1:]} over the run. {_better(each)}"
                if each.curve:
                    plots.append(self._line(f"objective-{number}", each.curve, each.short, caption, digits=each.digits))
                plots.append(self._differences(f"compared-{number}", each))
        return PlotGroup("Objectives", "What the policies are compared by.", plots)

    def _differences(self, name: str, criterion: Measure) -> Plot | None:
        baseline = self.headline.baseline
        values = self.headline.differences(self.workload, criterion.name)
        title = f"difference from {baseline}{', ' * bool(criterion.unit)}{criterion.difference_unit}"
        interval = self.headline.interval_title
        caption = f"{criterion.title}: difference from {baseline}, with its {interval} where there is one."
        figure = bars(values, self.style, title, criterion.digits)
        return self._plot(name, figure, f"{caption} {_better(criterion)}")

    def _rewards(self) -> PlotGroup:
        reward = "Reward 1 - 2 s / (s + 1) of each decision, s the standard deviation."
        variance = "Variance over nodes of the share of CPU in use; 0 is perfectly even."
        plots = [
            self._line("reward", "balance", "reward", reward, digits=4),
            self._line("variance", "cpu_variance", "variance of the nodes' CPU shares", variance, digits=5),
        ]
        return PlotGroup("Reward and variance", "How even the CPU use is while the cluster fills.", plots)

    def _latency(self) -> Iterator[PlotGroup]:
        first = {policy: runs[0] for policy, runs in self.runs.items() if runs}
        episodes = {policy: run.latency for policy, run in first.items() if run.latency is not None}
        if not episodes:
            return
        caption = f"Mean over the pods that a node got, seed {self.headline.seeds[0]}."
        plots = [
            self._plot("success", success_lines(self.runs, self.style), SUCCESS),
            self._plot("latency", latency_by_node(episodes, self.style), caption),
        ]
        yield PlotGroup("Latency", "How long answers take from a pod's node to its users.", plots)
        most = max(int(episode.pods.max()) for episode in episodes.values())
        small = []
        for policy, episode in episodes.items():
            figure = pods_over_time(episode, first[policy].curve.x, self.lines.x_title, most)
            small.append(self._of_policy("pods", "pods per node over time", policy, figure))
        yield PlotGroup("Pods per node", "Pods on every node over the first seed's episode, a row per node.", small)

    def _allocation(self) -> PlotGroup:
        headline, bound = self.headline, self.headline.bound(self.workload)
        diagonal, is_measured = headline.on_gpu and not headline.timed, headline.protocol == "latency"
        y_title = f"{headline.resource} {'used' if is_measured else 'allocated'}, %"
        whole = self.lines.plot(self._quantity, y_title, diagonal=diagonal, bound=bound)
        caption = "The whole run." + (DIAGONAL if diagonal else "") + (BOUND_TEXT if math.isfinite(bound) else "")
        plots = [self._plot("whole", whole, caption)]
        if self._quantity == headline.primary:
            plots.append(self._differences("difference", headline.criterion))
        if not self.by_time:
            x = self.lines.x()
            # Beyond 100 % demand exceeds the capacity; where it never does, the last fifth of the run.
            window = (100.0 if x[-1] > 100 else float(x[0] + 0.8 * (x[-1] - x[0])), float(x[-1]))
            end = self.lines.plot(self._quantity, y_title, window=window, bound=bound)
            plots.append(self._plot("end", end, "The last part of it, where schedulers differ in what is left over."))
            arrived = {
                kind: self.headline.arrived(self.workload, kind) / 100.0 for kind in self.headline.kinds(self.workload)
            }
            plots.append(self._by_kind(arrived, "pods failed, % of those that arrive", "Share of pods that fail,"))
        if is_measured:
            return PlotGroup("CPU use", "How much of the CPU the pods really use.", plots)
        return PlotGroup(f"{headline.resource} allocation", "How much of the cluster is given to pods.", plots)

    def _waiting(self) -> PlotGroup:
        plots = [
            self._line("waiting", "pods_waiting", "pods waiting", "Pods that wait for room."),
            self._differences("waits", MEAN_WAIT),
            self._waits_by_kind(),
        ]
        rows = [
            [Cell(title), *(self._wait(policy, metric, digits) for policy in self.runs)]
            for metric, title, digits in WAIT_ROWS
        ]
        return PlotGroup("Waiting", "How long pods wait before they run.", plots, rows=rows)

    def _mean_of(self, policy: str, metric: str) -> tuple[float, float, float]:
        row = self.headline.row(self.workload, policy, metric)
        return (math.nan,) * 3 if row is None else (row.mean, *(row.interval or (math.nan, math.nan)))

    def _by_kind(self, scale: Mapping[str, float], y_title: str, caption: str) -> Plot | None:
        """Return the means of a metric of each kind of pod as bars, each divided by a scale, by kind."""
        metrics = self.headline.kinds(self.workload)
        values = {
            policy: [
                (mean / scale[kind], low / scale[kind], high / scale[kind])
                for kind, (mean, low, high) in ((kind, self._mean_of(policy, metrics[kind])) for kind in metrics)
            ]
            for policy in self.runs
        }
        figure = grouped_bars(values, [KINDS[kind] for kind in metrics], self.style, y_title)
        return self._plot("by-kind", figure, f"{caption} by the GPUs that a pod requests: who gains, and who pays.")

    def _waits_by_kind(self) -> Plot | None:
        metrics = self.headline.kinds(self.workload)
        means = [self._mean_of(policy, metric)[0] for policy in self.runs for metric in metrics.values()]
        unit, seconds = _unit_of(max((mean for mean in means if math.isfinite(mean)), default=0.0))
        return self._by_kind(dict.fromkeys(metrics, seconds), f"mean wait, {unit}", "Mean wait")

    def _causes(self) -> PlotGroup:
        timed = self.headline.timed
        fragmented = COURSE[FRAGMENTED]
        share, caption = fragmented.title.format(""), fragmented.title.format(" over the run") + "."
        in_short = causes_in_short(self.runs, at_end=not timed)
        over_run = causes_over_run(self.runs, self.lines.x_title if timed else "arrived, %")
        what = "fragmentation by cause over the run"
        return PlotGroup(
            "Fragmentation by cause",
            "Idle GPU that a typical pod of this workload cannot use, and why.",
            [
                self._plot("causes", in_short, "Mean over the run." if timed else "At the end of the run."),
                self._line("fragmentation", fragmented.name, share, caption),
            ],
            small=[self._of_policy("causes", what, policy, figure) for policy, figure in over_run.items()],
            colours=CAUSE_COLOURS,
        )

    def _nodes(self) -> PlotGroup:
        on_gpu = self.headline.on_gpu
        kept = {policy: runs[0].final_nodes for policy, runs in self.runs.items() if runs and runs[0].final_nodes.names}
        cells = sum(len(nodes.names) for nodes in kept.values()) * len(self.headline.workloads)
        plots = []
        for policy, nodes in kept.items():
            heat = heat_map(nodes, names=cells < NAMED_CELLS, gpu=on_gpu)
            caption = f"{heat.full:,} nodes full, {heat.partly:,} partly used, {heat.empty:,} empty"
            plots.append(self._of_policy("nodes", "nodes at the end", policy, heat.figure, caption))
        share = "GPUs in use (of its CPU where it has none)" if on_gpu else "CPU in use"
        grouped = "grouped by GPU model, " if any((nodes.gpu_count > 0).any() for nodes in kept.values()) else ""
        text = f"A cell is a node, its shade the share of its {share}; {grouped}the fullest first."
        scale = ("0 %", f"100 %, seed {self.headline.seeds[0]}")
        return PlotGroup("Nodes at the end", text, plots, "many", scale=scale)

    def _use(self) -> PlotGroup:
        plots = [
            self._line(plot.id, each.name, plot.axis, plot.caption)
            for each in COURSE.values()
            if (plot := each.plot) and plot.resource in ("", self.headline.resource)
        ]
        return PlotGroup("Balance and nodes in use", "How the load is spread over the nodes.", plots)


def _better(criterion: Measure) -> str:
    return "Higher is better." if criterion.larger_is_better else "Lower is better."
