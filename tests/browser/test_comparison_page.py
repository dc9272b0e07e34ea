"""The page of comparisons in Chromium: what it shows is what is ticked, can be read, and is in the files now."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import opened, serious_violations
from tests.unit.live.dashboard.test_comparison import METRIC, POLICIES, SEEDS, runs

from steersman.evaluation.report.style import styles
from steersman.evaluation.results import write_evaluation
from steersman.evaluation.summary import summarise
from steersman.simulation.result import RunResult

pytestmark = pytest.mark.browser
LONG = "a_name_without_any_place_to_break_it_" * 6  # 222 characters
WIDTHS = """[...document.querySelectorAll(".chart:not([hidden]) [role=img]")]
  .map((place) => [place.firstElementChild.offsetWidth, place.clientWidth])"""
"""Widths of the charts, and of their places."""


def write(folder: Path, of: tuple[RunResult, ...], baseline: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_evaluation(folder, of, summarise(of, baseline))
    return folder


@pytest.fixture
def results(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of `evaluate` of one name; the second has a policy more."""
    return (
        write(tmp_path / "x" / "results", runs()[: 2 * len(SEEDS)], "fgd"),
        write(tmp_path / "y" / "results", runs(), "mine"),
    )


def reported_colours(policies: Sequence[str], *, dark: bool) -> list[str]:
    """Return the colours that policies have in reports, as a browser says them."""
    hexadecimal = [style.dark if dark else style.colour for style in styles(policies).values()]
    return [f"rgb({', '.join(str(int(each[i : i + 2], 16)) for i in (1, 3, 5))})" for each in hexadecimal]


def wait_for_fit(page: Page) -> None:
    """Wait until all charts are as wide as their places."""
    deadline = time.monotonic() + 30
    while True:
        widths = page.evaluate(WIDTHS)
        if widths and all(chart == place for chart, place in widths):
            return
        assert time.monotonic() < deadline, widths
        page.wait_for_timeout(50)


def box(page: Page, name: str) -> None:
    """Click the box of a folder."""
    page.locator("#folders label", has_text=name).locator("input").click()


def expect_policies(page: Page, names: Sequence[str]) -> None:
    expect(page.locator("#table tbody tr td:first-child")).to_have_text(names)


def test_folders_with_equal_names_are_distinguished_and_charts_fit(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]
) -> None:
    with opened(browser, serve(*map(str, results))) as page:
        expect(page.locator("#folders label")).to_have_text(["x/results", "y/results"])
        expect(page.locator("#table tbody tr")).to_have_count(2)
        box(page, "y/results")
        expect(page.locator("#table tbody tr")).to_have_count(5)
        expect(page.locator("#table tbody tr td:nth-child(2)")).to_have_text(["x/results"] * 2 + ["y/results"] * 3)
        expect(page.locator("#sentences p")).to_have_count(3)
        expect(page.locator("#kinds h2")).to_have_text(
            [f"{name}/results: Pods failed, by the GPUs that a pod requests" for name in "xy"]
        )
        expect(page.locator("#kinds tbody tr").last).to_contain_text("pods that arrive40.03.0")
        expect(page.locator("#charts .lines").first).to_contain_text("fgd (x/results)")
        expect(page.locator("#charts .lines").first).to_contain_text("fgd (y/results)")
        wait_for_fit(page)
        if folder := os.environ.get("STEERSMAN_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/shot-comparison-two.png", full_page=True)


def test_only_ticked_results_are_shown(browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]) -> None:
    with opened(browser, serve(*map(str, results))) as page:
        expect(page.locator("#table tbody tr")).to_have_count(2)
        box(page, "x/results")
        expect(page.locator("#sentences")).to_have_text("Choose results above.")
        for part in ("#title", "#bars", "#table", "#charts", "#workload"):
            expect(page.locator(part)).to_be_hidden()
        box(page, "y/results")
        expect(page.locator("#table tbody tr")).to_have_count(3)
        expect(page.locator("#charts .chart")).to_have_count(2)
        wait_for_fit(page)


LINES = """[...document.querySelectorAll("#charts .chart:not([hidden]) .lines i")]
  .map((each) => getComputedStyle(each)).map((style) => [style.borderTopColor, style.borderTopStyle])"""
"""Colours and dashes of lines in the charts' legends."""
BARS = """[...document.querySelectorAll("#bars canvas:not(.axis)")].map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 4, canvas.width, 1);
  const counts = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const colour = `rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`;
    if (data[i + 3] === 255) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1])[0][0];
})"""
"""The most frequent colour of each bar."""


@pytest.mark.parametrize("dark", [False, True])
def test_policies_have_the_colours_of_reports(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path], dark: bool
) -> None:
    with opened(browser, serve(*map(str, results)), dark=dark) as page:
        expect(page.locator("#charts .chart")).to_have_count(2)
        assert [colour for colour, _ in page.evaluate(LINES)] == 2 * reported_colours(POLICIES[:2], dark=dark)
        assert page.evaluate(BARS) == reported_colours(POLICIES[1:2], dark=dark)
        box(page, "x/results")
        box(page, "y/results")
        page.select_option("#baseline", "mine")  # no other colours with other policies and another baseline
        expect(page.locator("#title")).to_contain_text("difference from mine")
        assert [colour for colour, _ in page.evaluate(LINES)] == 2 * reported_colours(POLICIES, dark=dark)
        assert page.evaluate(BARS) == reported_colours(POLICIES[:2], dark=dark)
        page.locator("#theme").click()
        assert [colour for colour, _ in page.evaluate(LINES)] == 2 * reported_colours(POLICIES, dark=not dark)
        assert page.evaluate(BARS) == reported_colours(POLICIES[:2], dark=not dark)


def test_policy_of_two_folders_has_one_colour_and_two_lines(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]
) -> None:
    with opened(browser, serve(*map(str, results))) as page:
        box(page, "y/results")
        expect(page.locator("#charts .lines").first).to_contain_text("mine (y/results)")
        colours = reported_colours(POLICIES, dark=False)
        expected = [[each, "solid"] for each in colours[:2]] + [[each, "dashed"] for each in colours]
        assert page.evaluate(LINES) == 2 * expected


def test_damaged_folder_is_reported_and_others_are_shown(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]
) -> None:
    metrics = results[1] / "metrics.csv"
    whole = metrics.read_text()
    metrics.write_text("damaged\n")
    # A browser logs every refusal, so this page is not `opened`.
    page = browser.new_page()
    page.goto(serve(*map(str, results)))
    expect(page.locator("#table tbody tr")).to_have_count(2)
    box(page, "y/results")
    expect(page.locator("#problem")).to_contain_text("y/results/metrics.csv, line 1")
    expect(page.locator("#table tbody tr")).to_have_count(2)
    expect(page.locator("#sentences p")).to_have_count(1)
    box(page, "x/results")
    expect(page.locator("#table")).to_be_hidden()
    expect(page.locator("#sentences")).to_have_text("")
    expect(page.locator("#problem")).to_contain_text("y/results/metrics.csv, line 1")
    metrics.write_text(whole)
    expect(page.locator("#table tbody tr")).to_have_count(3, timeout=30_000)
    expect(page.locator("#problem")).to_be_hidden()
    shutil.rmtree(results[1])
    expect(page.locator("#problem")).to_contain_text("y/results/summary.csv: is missing", timeout=30_000)
    expect(page.locator("#table")).to_be_hidden()
    page.close()


def test_rewritten_results_are_reloaded(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]
) -> None:
    with opened(browser, serve(str(results[0]))) as page:
        expect(page.locator("#baseline option")).to_have_text(POLICIES[:2])
        expect_policies(page, POLICIES[:2])
        expect(page.locator("#sentences p")).to_have_count(1)
        sentence = page.locator("#sentences").inner_text()
        newer = tuple(run for run in runs() if run.policy != "fgd")
        write(results[0], newer, "mine")
        expect(page.locator("#baseline option")).to_have_text(POLICIES[1:], timeout=30_000)
        expect(page.locator("#baseline")).to_have_value("mine")
        expect(page.locator("#sentences")).not_to_have_text(sentence)
        expect_policies(page, POLICIES[1:])


@pytest.mark.parametrize("baseline", POLICIES)
def test_any_policy_can_be_the_baseline_with_intervals_over_paired_seeds(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path], baseline: str
) -> None:
    def shown(values: tuple[float, ...]) -> list[str]:
        return [f"{each:+.2f}".replace("-", "−") for each in values]

    with opened(browser, serve(str(results[1]))) as page:
        page.select_option("#workload", label="one, inflation")
        page.select_option("#baseline", baseline)
        expect(page.locator("#title")).to_have_text(f"GPU allocated at the end, %: difference from {baseline}")
        rows = [row for row in summarise(runs(), baseline) if (row.workload, row.metric) == ("one", METRIC)]
        expect(page.locator("#table tbody tr")).to_have_count(len(rows))
        for row, line in zip(rows, page.locator("#table tbody tr").all(), strict=True):
            if row.policy == baseline:
                expect(line.locator("td").nth(1)).to_have_text("–")
                continue
            (difference,) = shown((row.difference,))
            low, high = shown(row.difference_interval)
            expect(line.locator("td").nth(1)).to_have_text(difference)
            expect(line.locator("td").nth(2)).to_have_text(f"{low} to {high}")
            bar = page.locator(f"#bars canvas[aria-label='{row.policy}: {difference}, {low} to {high}']")
            expect(bar).to_have_count(1)
        expect(page.locator("#bars .name")).to_have_text([row.policy for row in rows if row.policy != baseline])


def test_bar_axis_has_round_numbers(browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]) -> None:
    script = """async () => {
        const { ticksOf } = await import('/static/comparison/bars.js');
        return [[-7.2, 3.6, 12], [-7.2, 3.6, 3], [0, 531647.8, 4], [0, 0.0032, 5], [0, 1, 1]]
            .map(([low, high, most]) => ticksOf({ low, high }, most));
    }"""
    with opened(browser, serve(str(results[0]))) as page:
        found = page.evaluate(script)
        assert found[0] == [-7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3]
        assert found[1:3] == [[-5, 0], [0, 200_000, 400_000]]
        assert found[3] == pytest.approx([0, 0.001, 0.002, 0.003])
        assert found[4] == [0, 1]
        expect(page.locator("#bars .axis")).to_have_count(1)


def test_difference_is_visible_on_a_phone_without_scrolling(
    browser: Browser, serve: Callable[..., str], results: tuple[Path, Path]
) -> None:
    with opened(browser, serve(*map(str, results)), width=390) as page:
        for both in (False, True):
            if both:
                box(page, "y/results")
                expect(page.locator("#table tbody tr")).to_have_count(5)
            difference = page.locator("#table thead th").get_by_text("difference", exact=True)
            expect(difference).to_have_count(1)
            place = difference.bounding_box()
            assert place is not None
            assert place["x"] + place["width"] <= 390


def test_long_legends_fold(browser: Browser, serve: Callable[..., str], results: tuple[Path, Path], axe: str) -> None:
    script = """async count => {
        const { Chart } = await import('/static/shared/chart.js');
        const place = document.getElementById('charts').firstElementChild;
        const lines = [...Array(count).keys()].map(i => ({ label: `node-${i}` }));
        window.chart = new Chart(place, { title: 'Pods per node', lines, x: 'step' });
        window.chart.show([[1, 2], ...lines.map((_, i) => [i, i + 1])]);
    }"""
    entries = "#charts section:first-child .lines span"
    with opened(browser, serve(str(results[0]))) as page:
        expect(page.locator("#charts .chart")).to_have_count(2)
        page.evaluate(script, 8)
        expect(page.locator(entries)).to_have_count(8)
        expect(page.locator("#charts section:first-child .lines button")).to_be_hidden()
        page.evaluate(script, 20)
        more = page.get_by_role("button", name="15 more")
        expect(page.locator(entries)).to_have_count(5)
        expect(more).to_have_attribute("aria-expanded", "false")
        # Screen readers hear of all lines.
        expect(page.locator("#charts section:first-child [role=img]")).to_have_attribute(
            "aria-label", re.compile("node-19")
        )
        page.locator("#baseline").focus()
        for _ in range(9):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "15 more":
                break
        page.keyboard.press("Enter")
        expect(page.locator(entries)).to_have_count(20)
        fewer = page.get_by_role("button", name="show fewer")
        expect(fewer).to_have_attribute("aria-expanded", "true")
        expect(fewer).to_be_focused()
        page.evaluate("window.chart.show([[1, 2, 3], ...window.chart.options.lines.map((_, i) => [i, i, i])])")
        expect(fewer).to_be_focused()  # also when values come
        assert serious_violations(page, axe) == []
        page.keyboard.press("Space")
        expect(page.locator(entries)).to_have_count(5)


def test_long_names_fit_on_a_phone(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    for name in (LONG, f"{LONG}-2"):
        write(desk / f"results-{name}", runs(), "fgd")
    with opened(browser, serve(str(desk)), width=390) as page:
        expect(page.locator("#folders input")).not_to_have_count(0)
        for each in page.locator("#folders input").all():
            each.set_checked(True)
        expect(page.locator("#table tbody tr")).to_have_count(6)
        wait_for_fit(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, "Comparison"
        if shots := os.environ.get("STEERSMAN_SCREENSHOTS"):
            page.screenshot(path=f"{shots}/shot-comparison-long.png", full_page=True)
