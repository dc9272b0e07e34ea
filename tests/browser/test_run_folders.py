"""Folders of `simulate` and `evaluate` in Chromium: what pages show."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import opened, serious_violations

pytestmark = pytest.mark.browser
WORKLOAD, POLICIES = "default-small", ("fgd", "best-fit")
HOSTILE = "<img src=x onerror=alert(1)>"
WIDTHS = {"desktop": 1400, "phone": 390}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "steersman", *arguments]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two simulated runs and two comparisons."""
    folder = tmp_path_factory.mktemp("runs") / "desk"
    folder.mkdir()
    for policy in POLICIES:
        one = ("--workload", WORKLOAD, "--policy", policy, "--seed", "7", "--output", str(folder / f"of-{policy}"))
        subprocess.run(command("simulate", *one), check=True, timeout=300, capture_output=True)
    several = ("--workload", WORKLOAD, "--policy", *POLICIES, "--seeds", "1-3", "--protocol", "inflation", "--output")
    for name in ("first", HOSTILE):
        subprocess.run(command("evaluate", *several, str(folder / name)), check=True, timeout=300, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], desk: Path) -> str:
    return serve(str(desk))


def screen(browser_page: Page, name: str) -> None:
    browser_page.get_by_role("link", name=name).click()
    browser_page.wait_for_selector("main:not([hidden])")
    expect(browser_page).to_have_title(f"steersman: {name.lower()}")


def summary(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_folders_on_the_same_arrivals_are_replayed_beside_each_other(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.locator("#choice")).to_be_hidden()  # there is nothing else to choose
        expect(page.locator(".run h2")).to_have_text(sorted(POLICIES))
        page.click("#next")
        expect(page.locator("#details [role=status]")).to_have_count(0, timeout=120_000)
        expect(page.locator("#details article")).to_have_count(2)
        expect(page.locator("#details article").first).to_contain_text("prefers")


def test_a_run_is_chosen_from_the_list(browser: Browser, serve: Callable[..., str], desk: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    arguments = ("--workload", WORKLOAD, "--policy", "fgd", "--seed", "8", "--output", str(other))
    subprocess.run(command("simulate", *arguments), check=True, timeout=300, capture_output=True)
    with opened(browser, serve(str(desk / "of-fgd"), str(desk / "of-best-fit"), str(other))) as page:
        expect(page.locator("#second option")).to_have_count(2)
        page.select_option("#first", "2")
        page.wait_for_url("**/simulation/?first=2")
        expect(page.locator("#subject")).to_contain_text("seed 8")
        expect(page.locator("#second option")).to_have_text(["none"])
        page.select_option("#first", "1")
        page.wait_for_url("**/simulation/?first=1")
        page.select_option("#second", "0")
        page.wait_for_url("**/simulation/?first=1&second=0")
        expect(page.locator(".run h2")).to_have_text(["best-fit", "fgd"])


def test_the_comparison_has_the_numbers_of_the_summary(browser: Browser, address: str, desk: Path) -> None:
    with opened(browser, address) as page:
        screen(page, "Comparison")
        page.locator("#folders input").nth(0).set_checked(False)
        page.locator("#folders label", has_text="first").locator("input").set_checked(True)
        rows = [
            row
            for row in summary(desk / "first")
            if (row["protocol"], row["metric"]) == ("inflation", "gpu_allocation_percent")
        ]
        expect(page.locator("#table tbody tr")).to_have_count(len(rows))
        for i, row in enumerate(rows):
            cells = page.locator("#table tbody tr").nth(i).locator("td").all_inner_texts()
            assert (cells[0], cells[5]) == (row["policy"], row["runs"])
            assert float(cells[3]) == pytest.approx(float(row["mean"]), abs=0.005)
            if row["difference"]:
                assert float(cells[1].replace("−", "-")) == pytest.approx(float(row["difference"]), abs=0.005)
        expect(page.locator("#sentences")).to_contain_text("3 paired seeds")
        expect(page.locator("#charts .chart")).to_have_count(2)
        label = page.locator("#charts [role=img]").first.get_attribute("aria-label")
        assert label is not None
        assert all(policy in label for policy in POLICIES)
        page.select_option("#baseline", POLICIES[1])
        expect(page.locator("#table tbody tr").nth(0).locator("td").nth(6)).to_have_text(POLICIES[1])
        page.select_option("#metric", "nodes_used")
        expect(page.locator("#title")).to_have_text(f"Nodes in use at the end: difference from {POLICIES[1]}")


def test_run_folders_are_distinguished_and_their_names_escaped(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        screen(page, "Comparison")
        expect(page.locator("#folders input")).not_to_have_count(0)
        for box in page.locator("#folders input").all():
            box.set_checked(True)
        expect(page.locator("#table tbody tr")).to_have_count(4)
        expect(page.locator("#table")).to_contain_text(HOSTILE)
        expect(page.locator("#charts")).to_contain_text(HOSTILE)
        assert page.locator("img").count() == 0


def test_leaving_a_page_during_a_request_logs_no_error(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        screen(page, "Comparison")
        page.route("**/api/comparison/metric*", lambda _route: None)  # it is never answered
        with page.expect_request("**/api/comparison/metric*"):
            page.select_option("#metric", "nodes_used")
        with page.expect_event("requestfailed"):
            screen(page, "Simulation")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_pages_pass_accessibility_checks(browser: Browser, address: str, axe: str, width: str, dark: bool) -> None:
    with opened(browser, address, width=WIDTHS[width], dark=dark) as page:
        screen(page, "Comparison")
        page.locator("#table tbody tr").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        assert serious_violations(page, axe) == []
        if folder := os.environ.get("STEERSMAN_SCREENSHOTS"):
            path = f"{folder}/shot-comparison-{width}-{'dark' if dark else 'light'}.png"
            page.screenshot(path=path, full_page=True)
