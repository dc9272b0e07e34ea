"""A difference has one interval: the sentence, the tables, the report and the CSV of a comparison agree on it."""

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples
from tests.support.run_results import EXPERIMENT, made_run

from steersman.cli.output.tables import comparison_table, summary_records
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison, write_report
from steersman.evaluation.report.style import interval_text, signed
from steersman.evaluation.results import number, summary_csv
from steersman.evaluation.summary import SummaryRow, summarise
from steersman.simulation.measures import MEAN_WAIT
from steersman.simulation.result import Metric, RunResult

NAN = math.nan
BASELINE = "kube-default"
Outcome = tuple[float, float]
"""What decides in a seed, NaN where it does not apply, and the pods that never ran."""
CLAIM = re.compile(
    r"(?P<size>less than [\d.]+|[\d,.]+) (?:points|s) \[(?P<low>[^,\]]*(?:,\d{3}[^,\]]*)*), (?P<high>[^\]]*)\] "
    r"(?P<sign>more|less) than(?: under)? (?P<other>[\w-]+)"
)
PODS = re.compile(
    r"(?:fails|leaves) (?P<size>[\d,.]+) pods \[(?P<low>[^ ]+), (?P<high>[^\]]+)\] (?P<sign>more|fewer)(?: waiting)?"
    r"(?: than (?P<other>[\w-]+))?"
)
PAIRS = re.compile(r"(\d+) paired seeds?\.$")


def made(outcomes: dict[str, Sequence[Outcome]], protocol: str) -> tuple[list[RunResult], list[SummaryRow], Headline]:
    runs = []
    for policy, of_policy in outcomes.items():
        for seed, (value, left) in enumerate(of_policy):
            waits = (Metric(MEAN_WAIT.name, "seconds", value), Metric("pods_waiting", "pods", left))
            allocation = value if protocol == "inflation" else 50.0
            more = waits if protocol == "timed" else ()
            runs.append(made_run(policy, seed, allocation=allocation, protocol=protocol, failed=left, metrics=more))
    summary = summarise(runs, BASELINE)
    return runs, summary, Headline(runs, summary, BASELINE)


def ends(text: str) -> tuple[str, str]:
    low, high = (end.replace("+", "") for end in text.split(" to "))
    return low, high


def mirrored(pair: tuple[str, str]) -> tuple[str, str]:
    low, high = ("−" + end if not end.startswith("−") else end.removeprefix("−") for end in pair)
    return high, low


def plain(pair: tuple[str, str]) -> tuple[str, str]:
    """Without the sign of zero."""
    low, high = ("0" if not end.strip("−0.") else end for end in pair)
    return low, high


def check(outcomes: dict[str, Sequence[Outcome]], protocol: str) -> bool:
    """Compare what is said of the best policy in the sentence with the table; whether the sentence had an interval."""
    _, summary, headline = made(outcomes, protocol)
    said, (workload,) = headline.sentence(), headline.workloads
    columns = {column.short: column for column in headline.columns(workload)}
    best, *others = [each for each in headline.order(workload) if math.isfinite(headline.means(workload)[each])] or [""]
    claim = CLAIM.search(said)
    other = BASELINE if BASELINE in others else others[0] if others else ""
    primary = "Diff. s" if protocol == "timed" else "Diff. points"
    for match, short in ((claim, primary), (PODS.search(said), "Diff. pods")):
        against = (match["other"] if match else None) or other
        if match is None or BASELINE not in (best, against):
            continue  # of a policy and another that is not the baseline, the table says nothing
        cell = columns[short].cells[best if against == BASELINE else against]
        down = match["sign"] != "more"
        size, shown = match["size"], cell.text.lstrip("+−")
        assert size.startswith("less than") or size == shown, (said, cell)
        is_negative = cell.text.startswith("−") and shown.strip("0.") != ""
        if not size.startswith("less than"):
            assert (is_negative != (against != BASELINE)) == down or not shown.strip("0."), (said, cell)
        in_table = ends(cell.note) if against == BASELINE else mirrored(ends(cell.note))
        in_sentence = (match["low"], match["high"])
        assert plain(in_sentence) == plain(mirrored(in_table) if down else in_table), (said, cell)
    if claim and (pairs := PAIRS.search(said)):
        assert claim["other"] == other
        both = [a + b for (a, _), (b, _) in zip(outcomes[best], outcomes[other], strict=True)]
        assert int(pairs[1]) == sum(map(math.isfinite, both)), said
    for row in summary:
        if row.metric == headline.primary and math.isfinite(row.difference):
            cell = columns[primary].cells[row.policy]
            digits = 1 if protocol == "timed" else 2
            assert cell.text == signed(row.difference, digits)
            assert cell.note == interval_text(row.difference_interval, digits, sign=True)
    return claim is not None


def seeds(*values: float) -> list[Outcome]:
    return [(value, 10.0) for value in values]


ODD = {
    "two seeds": {BASELINE: seeds(90, 91), "fgd": seeds(95, 95.5)},
    "two equal seeds": {BASELINE: seeds(90, 90), "fgd": seeds(95, 95)},
    "the baseline is best": {BASELINE: seeds(95, 95.5, 96.25), "fgd": seeds(90, 91, 90.5)},
    "a tie of two seeds": {BASELINE: seeds(90, 91), "fgd": seeds(91, 90)},
    "a seed that one lacks": {BASELINE: seeds(90, 91, 92, 90), "fgd": seeds(95, NAN, 96, 94)},
    "better where only one has a value": {BASELINE: seeds(90, 91, 92, 20), "fgd": seeds(89, 90, 90.5, NAN)},
    "worse where only one has a value": {BASELINE: seeds(NAN, 5, 5, 5), "fgd": seeds(99, 4, 3, 4.5)},
    "one pair": {BASELINE: seeds(90, NAN, 92), "fgd": seeds(NAN, 91, 95)},
    "less than is shown": {BASELINE: seeds(90, 91, 92), "fgd": seeds(90.001, 91.002, 92.001)},
    "more pods fail": {BASELINE: [(90, 10), (91, 12), (90, 11)], "fgd": [(95, 20), (95, 25), (96, 22)]},
    "fewer pods fail": {BASELINE: [(90, 20), (91, 25), (90, 22)], "fgd": [(95, 10), (95, 12), (96, 11)]},
    "three policies": {"random": seeds(80, 81, 79), BASELINE: seeds(90, 91, 92), "fgd": seeds(91, 92.5, 92)},
}


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
@pytest.mark.parametrize("case", ODD)
def test_sentence_and_table_agree_in_odd_cases(case: str, protocol: str) -> None:
    has_interval = check(ODD[case], protocol)
    assert has_interval or case in ("one pair", "a tie of two seeds")


deciding = st.one_of(st.integers(0, 40).map(lambda n: 80 + n / 8), st.floats(1, 99), st.just(NAN))
outcome = st.tuples(deciding, st.integers(0, 30).map(float))


@st.composite
def outcomes(draw: st.DrawFn) -> dict[str, list[Outcome]]:
    count = draw(st.integers(1, 6))
    policies = draw(st.permutations([BASELINE, "fgd", "random"][: draw(st.integers(2, 3))]))
    return {policy: draw(st.lists(outcome, min_size=count, max_size=count)) for policy in policies}


@settings(max_examples=examples(60), deadline=None)
@given(outcomes(), st.sampled_from(["inflation", "timed"]))
@example(ODD["better where only one has a value"], "inflation")
def test_sentence_and_table_agree(of_policies: dict[str, list[Outcome]], protocol: str) -> None:
    check(of_policies, protocol)


def test_policy_worse_on_common_seeds_is_called_neither_equal_nor_better() -> None:
    _, _, headline = made(ODD["better where only one has a value"], "inflation")
    said = headline.sentence()
    assert headline.order("default")[0] == "fgd", "by the mean of its own seeds"
    assert "not shown to differ" not in said
    assert "less than kube-default" in said
    assert said.endswith("only 3 paired seeds.")


def test_one_seed_has_no_interval_anywhere(tmp_path: Path) -> None:
    runs, summary, headline = made({BASELINE: seeds(90), "fgd": seeds(95)}, "inflation")
    assert "[" not in headline.sentence()
    noted = [column for column in headline.columns("default") if column.notes]
    assert all(cell.note == "" for column in noted for cell in column.cells.values())
    assert {row["difference_ci_low"] for row in summary_records(summary)} == {None}
    write_report(tmp_path / "r.html", [Comparison(runs, summary, headline, EXPERIMENT)], command="")
    assert " to " not in "".join(re.findall("<small>(.*?)</small>", (tmp_path / "r.html").read_text()))


def test_single_policy_mean_has_the_interval_of_its_row() -> None:
    _, _, headline = made({BASELINE: seeds(91.234, 97.7, 3.456)}, "timed")
    (cell,) = headline.columns("default")[0].cells.values()
    assert f"Pods wait {cell.text} s on average" in headline.sentence()
    assert f"95 % interval {cell.note}, " in headline.sentence()


def test_report_terminal_and_csv_have_the_interval_of_the_sentence(tmp_path: Path) -> None:
    case = {BASELINE: seeds(90, 91, 92, 90), "fgd": seeds(95, NAN, 96, 94)}
    runs, summary, headline = made(case, "inflation")
    claim = CLAIM.search(headline.sentence())
    assert claim is not None
    note = f"+{claim['low']} to +{claim['high']}"
    write_report(tmp_path / "r.html", [Comparison(runs, summary, headline, EXPERIMENT)], command="")
    page = (tmp_path / "r.html").read_text()
    assert page.count(f"<small>{note}</small>") == 2, "in the table, and among all metrics"
    table = comparison_table(headline, 200)
    assert any(note in str(cell) for column in table.columns for cell in column.cells)
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary))))
    (row,) = [row for row in rows if row["policy"] == "fgd" and row["metric"] == headline.primary]
    low, high = float(row["difference_ci_low"]), float(row["difference_ci_high"])
    assert (f"{low:.2f}", f"{high:.2f}") == (claim["low"], claim["high"])
    found = headline.difference("default", headline.primary, "fgd", BASELINE)
    assert (row["difference_ci_low"], row["difference_ci_high"]) == tuple(map(number, found.interval))
