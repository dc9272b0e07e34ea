"""`report.html`: the outcome in a sentence, a table, plots, and the method; one file that needs no network."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.core.counting import counted
from steersman.core.statistics import BLOCKS
from steersman.evaluation.advice import Advice
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.generated import repr_without_defaults
from steersman.evaluation.report.curves import LearningCurve, learning_figure
from steersman.evaluation.report.figures import family_of, workload_bars
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.section import Plot, Section
from steersman.evaluation.report.style import (
    BOUND_COLOUR,
    BOUND_LABEL,
    DASHES,
    FEW_SEEDS,
    SHARE_COLOURS,
    dark_colours,
    fixed,
    interval_text,
    signed,
    styles,
    with_wrapped_titles,
)
from steersman.evaluation.results import REPORT_MARK, seed_ranges
from steersman.evaluation.summary import BOUND, SummaryRow
from steersman.simulation.result import RunResult
from steersman.simulation.waiting import LEAST_BUSY_PERIODS
from steersman.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

PLOTLY = "plotly-cartesian.min.js.gz"
DARK = dark_colours()
_WARNINGS = re.compile('<ul class="warnings" aria-label="Warnings">(.*?)</ul>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of policies in one protocol."""

    runs: Sequence[RunResult]  # all of them; the first of a workload and policy has its final nodes
    summary: Sequence[SummaryRow]
    headline: Headline
    experiment: Experiment

    @property
    def choices(self) -> tuple[str, ...]:
        runs = [run for run in self.runs if run.choice]
        return tuple(
            dict.fromkeys(f"{each.policy} on {each.workload} ({each.protocol}): {each.choice}" for each in runs)
        )


def write_report(
    path: Path,
    comparisons: Sequence[Comparison],  # of the same policies and workloads, one per protocol
    *,
    command: str,  # the command line, without the machine's paths
    reason: str = "",  # why these protocols, if the data chose them
    learning: LearningCurve | None = None,
    understood: Sequence[str] = (),  # what the workloads were taken to hold, a sentence each
    accounts: Sequence[str] = (),  # which of their nodes and GPUs are counted, a sentence each
    advice: Advice | None = None,  # what to do, for its first lines
) -> None:
    """Write the report of an experiment."""
    places = [(each, workload) for each in comparisons for workload in each.headline.workloads]
    sections = [
        Section(each.headline, workload, [run for run in each.runs if run.workload == workload], number)
        for number, (each, workload) in enumerate(places)
    ]
    bars = [_workload_plot(each.headline, number) for number, each in enumerate(comparisons)]
    learned = [_learning_plot(learning)] if learning is not None else []
    plots = [*filter(None, bars), *(plot for section in sections for plot in section.plots()), *learned]
    figures = {each.identity: with_wrapped_titles(each.figure) for each in plots}
    environment = comparisons[0].experiment.environment
    page = templates().get_template("page.html.j2")
    path.write_text(
        page.render(
            mark=REPORT_MARK,
            version=__version__,
            comparisons=comparisons,
            experiments={each.headline.protocol: each.experiment for each in comparisons},
            environment="" if environment is None else repr_without_defaults(environment),
            warnings=list(dict.fromkeys(text for each in comparisons for run in each.runs for text in run.warnings)),
            bars=bars,
            sections=sections,
            learning=learning,
            learned=learned,
            command=command,
            reason=reason,
            understood=understood,
            accounts=accounts,
            advice=advice,
            plotly=_text(resources.files("steersman.data.plotly").joinpath(PLOTLY).read_bytes()),
            # mtime=0: the same results give the same bytes. A browser rejects NaN, which is no JSON.
            figures=_text(gzip.compress(json.dumps(figures, separators=(",", ":"), allow_nan=False).encode(), mtime=0)),
            dark=DARK,
        ),
        encoding="utf-8",
    )


def notebook_tables(headlines: Sequence[Headline]) -> str:
    """Return the tables and sentences of all protocols for notebooks, with what short titles mean."""
    return templates().get_template("notebook.html.j2").render(headlines=headlines)


def report_warnings(page: str) -> tuple[str, ...]:
    found = _WARNINGS.search(page)
    return tuple(unescape(item) for item in re.findall("<li>(.*?)</li>", found[1], re.DOTALL)) if found else ()


@cache
def templates() -> Environment:
    """Return the templates of the page; every text that they write is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # not to be waited for where no report is written

    loader = PackageLoader("steersman.evaluation.report")
    # StrictUndefined: a name that a template misspells is an error, not an empty text.
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {
        "counted": counted,
        "fixed": fixed,
        "general": "{:g}".format,
        "interval": interval_text,
        "percent": lambda share: f"{100 * share:g}",
        "light_dark": lambda colour: f"light-dark({colour},{DARK[colour]})" if colour in DARK else colour,
        "ranges": seed_ranges,
        "shade": _shade,
        "signed": signed,
        "styles": styles,
    }
    templates.tests["nan"] = math.isnan
    templates.globals |= {
        "blocks": BLOCKS,
        "bound": BOUND,
        "bound_colour": BOUND_COLOUR,
        "bound_label": BOUND_LABEL,
        "dashes": DASHES,
        "few_seeds": FEW_SEEDS,
        "least_busy_periods": LEAST_BUSY_PERIODS,
        "shades": SHARE_COLOURS,
    }
    return templates


def _workload_plot(headline: Headline, number: int) -> Plot | None:
    """Return differences from the baseline as grouped bars, a group per workload; None for a single workload."""
    if len(headline.workloads) < 2:
        return None
    style = styles(headline.policies)
    values = {workload: headline.differences(workload, headline.primary) for workload in headline.workloads}
    title = f"{headline.primary_title}, difference from {headline.baseline}"
    figure = workload_bars(values, style, title, headline.criterion.digits)
    families = ", openb workloads by family" if any(map(family_of, headline.workloads)) else ""
    caption = f"Mean difference of each policy from {headline.baseline}, with its {headline.interval_title}{families}."
    return None if figure is None else Plot(f"workloads-{number}", figure, caption, title)


def _learning_plot(curve: LearningCurve) -> Plot:
    caption = (
        f"What {curve.policy} saves of the GPUs that {curve.reference} leaves unallocated: grey, the mean candidate of "
        "a generation on its training episodes; dots, the policy itself on arrivals that training does not see."
    )
    return Plot("learning", learning_figure(curve), caption, caption)


def _shade(colour: str, name: str = "background") -> str:
    """Return a CSS declaration of a colour, and of its dark-page counterpart if there is one."""
    return f"{name}:{colour}" + (f";{name}:light-dark({colour},{DARK[colour]})" if colour in DARK else "")


def _text(packed: bytes) -> str:
    return base64.b64encode(packed).decode("ascii")
