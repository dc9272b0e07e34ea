"""Files of `workload run` and recordings of a scheduler in Chromium: the page draws and says what is in them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import opened, serious_violations
from tests.support.scheduler_csv import write_scheduler_csv

from steersman.workloads.experiments import read_bindings
from steersman.workloads.generators.deployments import DELETE, Row, write_rows

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=alert(1)>"
ROWS = [Row("web", 3, "500m", "1", "1Gi", "2Gi"), Row(HOSTILE, 2, "2", "2", "4Gi", "4Gi")]
WIDTHS = {"desktop": 1400, "phone": 390}
NODES = 6


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "desk"
    folder.mkdir()
    write_rows([*ROWS, *(replace(row, action=DELETE) for row in ROWS), ROWS[0]], folder / "run.csv")
    write_rows(ROWS[:1], folder / f"{HOSTILE.replace('/', '')}.csv")
    for seed, spread in ((1, 1.0), (2, 0.4)):
        write_scheduler_csv(folder / f"sched_{seed}.csv", seed, nodes=NODES, spread=spread)
    return folder


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], desk: Path) -> str:
    return serve(str(desk))


def test_a_file_of_workload_run_is_shown_and_followed(
    browser: Browser, serve: Callable[..., str], tmp_path: Path
) -> None:
    write_rows(ROWS, tmp_path / "run.csv")
    with opened(browser, serve(str(tmp_path / "run.csv"))) as page:
        expect(page).to_have_title("steersman: workload")
        pods = page.locator("[aria-label^='Pods: run.csv']")
        expect(pods).to_have_attribute("aria-label", "Pods: run.csv 5 (from 3 to 5)")
        expect(page.locator("[role=img][aria-label^='Requested CPU']")).to_have_attribute(
            "aria-label", "Requested CPU, cores: run.csv 5.5 (from 1.5 to 5.5)"
        )
        rows = page.get_by_role("region", name="Deployments of run.csv").locator("tbody tr")
        expect(rows.nth(1).locator("td")).to_have_text([HOSTILE, "2", "2", "4", "2", ""])
        write_rows([*ROWS, *(replace(row, action=DELETE) for row in ROWS)], tmp_path / "run.csv")
        expect(pods).to_have_attribute("aria-label", "Pods: run.csv 0 (from 0 to 5)", timeout=20_000)
        expect(rows.nth(1).locator("td")).to_have_text([HOSTILE, "2", "2", "4", "2", "3"])
        expect(page.get_by_role("region", name="Fillings").locator("tbody td")).to_have_text(
            ["1", "1 to 3", "2", "5", "5.5", "11"]
        )


def test_workload_files_are_compared_and_their_names_escaped(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.locator("#files label")).to_have_count(4)
        expect(page.locator("#charts")).to_contain_text(HOSTILE)
        balance = page.locator("section[aria-label^='Balance'] .lines span")
        expect(balance).to_have_text([re.compile("desk/sched_1.csv .* %"), re.compile("desk/sched_2.csv .* %")])
        page.locator("#files label", has_text="sched_2").locator("input").set_checked(False)
        expect(balance).to_have_count(1)
        expect(page.locator("#recordings section")).to_have_count(1)
        assert page.locator("img").count() == 0


def test_damaged_file_does_not_hide_other_files(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "run.csv")
    write_rows(ROWS, tmp_path / "torn.csv")
    with (tmp_path / "torn.csv").open("a") as file:
        file.write("web,x\n")
    # A browser logs every refusal, so this page is not `opened`.
    page = browser.new_page()
    page.goto(serve(str(tmp_path)))
    expect(page.locator("#problem")).to_contain_text("torn.csv, line 4")
    expect(page.locator("#runs-of-deployments h2")).to_have_text([f"{tmp_path.name}/run.csv"])
    write_rows(ROWS, tmp_path / "torn.csv")
    expect(page.locator("#problem")).to_be_hidden(timeout=20_000)
    expect(page.locator("#runs-of-deployments section")).to_have_count(2)
    page.close()


def test_recording_is_shown_per_node_over_time(browser: Browser, address: str, desk: Path) -> None:
    rows = read_bindings(desk / "sched_1.csv")
    with opened(browser, address) as page:
        part = page.locator("#recordings section").first
        expect(part).to_contain_text(f"{NODES} nodes, {len(rows)} pods, cleared once")
        cells = part.locator("tbody tr").nth(2).locator("td")
        expect(cells.nth(3)).to_have_text(f"{rows[-1].pods[2]:.0f}")
        part.locator("input[type=range]").focus()
        page.keyboard.press("Home")
        expect(part.locator("output")).to_have_text(f"1 of {len(rows)} pods bound")
        expect(part.locator("tbody td:nth-child(4)")).to_have_text([f"{count:.0f}" for count in rows[0].pods])
        expect(part.locator("canvas")).to_have_attribute(
            "aria-label", re.compile("CPU in use.*1 pods bound: from 0 to")
        )
        part.locator("select").select_option("Pods")
        expect(part.locator("canvas")).to_have_attribute("aria-label", re.compile("Pods by node.*from 0 to 1$"))
        box = part.locator("canvas").bounding_box()
        assert box is not None
        part.locator("canvas").click(position={"x": box["width"] - 3, "y": 5})
        expect(part.locator("output")).to_have_text(f"{len(rows)} of {len(rows)} pods bound")


def test_a_recording_is_replayed_on_the_map(browser: Browser, serve: Callable[..., str], desk: Path) -> None:
    rows = read_bindings(desk / "sched_1.csv")
    with opened(browser, serve(str(desk / "sched_1.csv"))) as page:
        page.get_by_role("link", name="Simulation").click()
        page.wait_for_selector("main:not([hidden])")
        expect(page.locator("#subject")).to_contain_text(f"{NODES} nodes")
        expect(page.locator("#subject")).to_contain_text("sizes are assumed")
        page.fill("#search", "node-0002")
        page.locator("#search").blur()
        expect(page.locator("#details h2")).to_have_text("node-0002 under as recorded")
        expect(page.locator("#details")).to_contain_text(f"{rows[-1].pods[2]:.0f} pods")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_page_passes_accessibility_checks(browser: Browser, address: str, axe: str, width: str, dark: bool) -> None:
    with opened(browser, address, width=WIDTHS[width], dark=dark) as page:
        page.locator("#runs-of-deployments section").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        assert serious_violations(page, axe) == []
        if folder := os.environ.get("STEERSMAN_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/shot-workload-{width}-{'dark' if dark else 'light'}.png", full_page=True)
