"""The screen of comparisons: a metric's summary, sentences and curves of the chosen folders of `evaluate`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

import msgspec
from aiohttp import web

from steersman.core.errors import SteersmanError, UsageError
from steersman.evaluation.report.curves import curve_stats, grid
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.style import BOUND_COLOUR, dark_colours
from steersman.live.dashboard.columns import PolicyLook, policy_looks
from steersman.live.dashboard.comparison.evaluation import BESIDE, CRITERIA, EvaluationFolder, Subject, version_of
from steersman.live.dashboard.runs import FoundRun
from steersman.live.dashboard.server import Screen, json_response
from steersman.simulation.measures import COURSE, FRAGMENTED, GPU_ALLOCATION

CURVES = {name: COURSE[name].title.format("") for name in (GPU_ALLOCATION, FRAGMENTED)}
"""Quantities over arrivals that `results.csv` has."""
KEPT_FOLDERS = 8  # folders whose files are kept in memory


class FolderEntry(msgspec.Struct, kw_only=True):
    """A folder in the list, metrics by protocol; `problem` says why it cannot be shown.

    `version` changes whenever the folder's files do.
    """

    id: str
    name: str
    version: str = ""
    subjects: list[Subject] = []
    policies: list[str] = []
    metrics: dict[str, list[str]] = {}
    baseline: str = ""
    problem: str = ""


class MetricTitle(msgspec.Struct, kw_only=True, rename="camel"):
    """What is known of a metric; None: not known."""

    title: str
    larger_is_better: bool | None = None
    digits: int | None = None


class PolicyCurve(msgspec.Struct, kw_only=True):
    """A policy's mean over seeds of a quantity in a folder."""

    folder: str
    policy: str
    mean: list[float]


class CurveChart(msgspec.Struct, kw_only=True):
    """Curves over the arrived GPU demand, in percent of all GPUs."""

    title: str
    x: list[float]
    curves: list[PolicyCurve]


class FolderSentence(msgspec.Struct, kw_only=True):
    """What the report says of a folder, by the folder's name."""

    folder: str
    sentence: str


class KindRow(msgspec.Struct, kw_only=True):
    """What kinds of pods pay under a policy: by kind a number, and its difference from the baseline or ""."""

    name: str
    cells: list[str]
    notes: list[str]


class KindTable(msgspec.Struct, kw_only=True):
    """What kinds of pods pay under the policies of a folder."""

    folder: str
    title: str
    kinds: list[str]
    rows: list[KindRow]


class ComparisonFigures(msgspec.Struct, kw_only=True):
    """What a page shows: by workload the rows of its policies, then sentences and curves of the chosen workload."""

    versions: dict[str, str]  # of the chosen folders that can be read, by id; all figures are theirs
    problems: list[str]  # why others cannot be read
    metric: MetricTitle
    looks: dict[str, PolicyLook]  # by policy of all chosen folders
    workloads: dict[str, list[dict[str, object]]]  # fields of `SummaryRow` and the folder's name; JSON has null for NaN
    sentences: list[FolderSentence]
    kinds: list[KindTable]
    charts: list[CurveChart]


class ComparisonScreen(Screen):
    """Results in folders of `evaluate`."""

    name = "comparison"
    title = "Comparison"

    def __init__(self, runs: Sequence[FoundRun]) -> None:
        self._runs = {run.id: run for run in runs}
        # By version, so that files which have changed are read again.
        self._opened = lru_cache(KEPT_FOLDERS)(_opened)
        self._entry = lru_cache(max(1, len(runs)))(_entry)
        self._lock = asyncio.Lock()  # results are read and summarised for one request at a time

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list and of comparisons."""
        return (
            web.get("/api/comparison/folders", self._get_folders),
            web.get("/api/comparison/metric", self._get_metric),
        )

    async def _get_folders(self, _: web.Request) -> web.Response:
        async with self._lock:
            return json_response(await asyncio.to_thread(self._entries))

    def _entries(self) -> list[FolderEntry]:
        return [self._entry(run, version_of(run)) for run in self._runs.values()]

    async def _get_metric(self, request: web.Request) -> web.Response:
        async with self._lock:
            return json_response(await asyncio.to_thread(self._compare, request))

    def _compare(self, request: web.Request) -> ComparisonFigures:
        chosen, problems = self._open_readable(request.query.getall("folder", []))
        if not chosen:
            raise UsageError(" ".join(problems) or "folder: choose one at least")
        workload, protocol, metric = (request.query.get(each, "") for each in ("workload", "protocol", "metric"))
        baseline = request.query.get("baseline", "")
        subjects = [subject for each in chosen for subject in each.subjects if subject.protocol == protocol]
        subject = next((each for each in subjects if each.workload == workload), None)
        if subject is None:
            problem = f"workload {workload[:80]!r}: no chosen folder has it in protocol {protocol[:40]!r}"
            raise UsageError(" ".join(problems) or problem)
        workloads = dict.fromkeys(each.workload for each in subjects)
        known = CRITERIA.get(metric)
        title = MetricTitle(title=metric.replace("_", " "))
        if known is not None:
            title = MetricTitle(title=known.title, larger_is_better=known.larger_is_better, digits=known.digits)
        by_workload = {
            # Recorded placements and bounds come last.
            name: sorted(
                (
                    {"folder": each.run.name, **asdict(row)}
                    for each in chosen
                    for row in each.rows(Subject(name, subject.protocol), metric, baseline)
                ),
                key=lambda row: row["policy"] in BESIDE,
            )
            for name in workloads
        }
        having = [each for each in chosen if subject in each.subjects]
        headlines = {
            each.run.name: headline for each in having if (headline := each.headline(subject, metric, baseline))
        }
        sentences = [
            FolderSentence(folder=name, sentence=sentence)
            for name, headline in headlines.items()
            for sentence in (headline.sentence(), headline.kinds_sentence())
        ]
        sentences += [
            FolderSentence(folder=each.run.name, sentence=f"Warning: {text}")
            for each in having
            for text in each.warnings
        ]
        return ComparisonFigures(
            versions={each.run.id: each.version for each in chosen},
            problems=problems,
            metric=title,
            looks=policy_looks(list(dict.fromkeys(policy for each in chosen for policy in each.policies)))
            | dict.fromkeys(BESIDE, PolicyLook(light=BOUND_COLOUR, dark=dark_colours()[BOUND_COLOUR], dash=())),
            workloads={name: rows for name, rows in by_workload.items() if rows},
            sentences=[each for each in sentences if each.sentence],
            kinds=[_kind_table(name, headline) for name, headline in headlines.items() if headline.kinds(workload)],
            charts=_charts(having, subject),
        )

    def _open_readable(self, ids: Sequence[str]) -> tuple[list[EvaluationFolder], list[str]]:
        """Return the folders that can be read as a whole, and why the others cannot."""
        folders: list[EvaluationFolder] = []
        problems: list[str] = []
        for each in ids:
            if each not in self._runs:
                raise UsageError(f"folder {each[:40]!r} is none that this dashboard was started with")
            try:
                folders.append(self._opened(self._runs[each], version_of(self._runs[each])))
            except SteersmanError as error:
                problems.append(str(error))
        return folders, problems


def _opened(run: FoundRun, _version: str) -> EvaluationFolder:
    folder = EvaluationFolder(run)
    _ = folder.runs  # whether they can be read is known before anything is shown
    return folder


def _entry(run: FoundRun, _version: str) -> FolderEntry:
    try:
        found = EvaluationFolder(run)
    except SteersmanError as error:
        return FolderEntry(id=run.id, name=run.name, problem=str(error))
    return FolderEntry(
        id=run.id,
        name=run.name,
        version=found.version,
        subjects=list(found.subjects),
        policies=list(found.policies),
        metrics={protocol: list(metrics) for protocol, metrics in found.metrics.items()},
        baseline=found.baseline,
    )


def _kind_table(folder: str, headline: Headline) -> KindTable:
    columns, below = headline.kind_columns(headline.workload), headline.kind_rows(headline.workload)
    rows = []
    for policy in [*headline.order(headline.workload), *below]:
        cells = [column.cells[policy] for column in columns]
        name = below.get(policy, policy)
        rows.append(KindRow(name=name, cells=[each.text for each in cells], notes=[each.note for each in cells]))
    return KindTable(folder=folder, title=headline.kinds_title, kinds=[each.title for each in columns], rows=rows)


def _charts(chosen: Sequence[EvaluationFolder], subject: Subject) -> list[CurveChart]:
    found = [(each.run.name, policy, curves) for each in chosen for policy, curves in each.curves(subject).items()]
    if not found:
        return []
    x = grid([curve for _, _, curves in found for curve in curves])
    charts = []
    for quantity, title in CURVES.items():
        curves = [
            PolicyCurve(folder=folder, policy=policy, mean=curve_stats(of_policy, quantity, x).mean.tolist())
            for folder, policy, of_policy in found
        ]
        if any(math.isfinite(value) for curve in curves for value in curve.mean):
            charts.append(CurveChart(title=title, x=x.tolist(), curves=curves))
    return charts
