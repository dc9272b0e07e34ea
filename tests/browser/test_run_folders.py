"""Folders of `simulate`, `evaluate` and `train` in Chromium: what pages show, and a training that obeys its page."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import opened

from steersman.policies.files.policy_file import read_policy
from steersman.training.control.progress import PROGRESS, RunProgress, decode_progress

pytestmark = pytest.mark.browser
WORKLOAD, POLICIES = "default-small", ("fgd", "best-fit")
HOSTILE = "<img src=x onerror=alert(1)>"
WIDTHS = {"desktop": 1400, "phone": 390}
TRAINING = (
    *("train", "--algorithm", "dqn", "--protocol", "deployments", "--node-count", "4", "--iterations", "1000000"),
    *("--validate-every", "1000000", "--progress", "none"),
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "steersman", *arguments]


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Pages share the machine with a training here."""
    expect.set_options(timeout=60_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with two simulated runs, two comparisons, a training that has ended and one that goes on."""
    folder = tmp_path_factory.mktemp("runs") / "desk"
    folder.mkdir()
    training = subprocess.Popen(command(*TRAINING, "--output", str(folder / "learning")), env=os.environ)
    try:
        for policy in POLICIES:
            one = ("--workload", WORKLOAD, "--policy", policy, "--seed", "7", "--output", str(folder / f"of-{policy}"))
            subprocess.run(command("simulate", *one), check=True, timeout=300, capture_output=True)
        several = (
            "--workload",
            WORKLOAD,
            "--policy",
            *POLICIES,
            "--seeds",
            "1-3",
            "--protocol",
            "inflation",
            "--output",
        )
        for name in ("first", HOSTILE):
            subprocess.run(
                command("evaluate", *several, str(folder / name)), check=True, timeout=300, capture_output=True
            )
        until(lambda: (folder / "learning" / PROGRESS).exists() and progress(folder / "learning").iteration > 2)
        yield folder
    finally:
        training.terminate()
        training.wait(60)


def progress(folder: Path) -> RunProgress:
    return decode_progress(folder / PROGRESS, (folder / PROGRESS).read_bytes())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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


def test_a_training_is_followed_paused_continued_and_stopped(browser: Browser, address: str, desk: Path) -> None:
    folder = desk / "learning"
    with opened(browser, address) as page:
        screen(page, "Training")
        expect(page.locator("#state")).to_contain_text("learns")
        expect(page.locator("#state")).to_contain_text("of 1000000")
        expect(page.locator("#charts .chart")).not_to_have_count(0)
        expect(page.locator("#histograms canvas[aria-label*='actions']")).to_have_count(1)
        before = progress(folder).iteration
        until(lambda: progress(folder).iteration > before)
        shown = page.locator("#charts .chart [role=img]").first.get_attribute("aria-label")
        expect(page.locator("#charts .chart [role=img]").first).not_to_have_attribute("aria-label", shown or "")
        page.click("#pause")
        expect(page.locator("#state")).to_contain_text("paused")
        expect(page.locator("#pause")).to_be_disabled()
        paused = progress(folder)
        assert paused.state == "paused"
        page.click("#checkpoint")
        expect(page.locator("#log")).to_contain_text(f"policy-{paused.iteration:06d}.safetensors")
        assert read_policy(folder / f"policy-{paused.iteration:06d}.safetensors")[0].scores == ()
        expect(page.locator("#continue")).to_be_enabled()
        assert progress(folder).iteration == paused.iteration
        page.click("#continue")
        expect(page.locator("#state")).to_contain_text("learns")
        until(lambda: progress(folder).iteration > paused.iteration)
        expect(page.locator("#stop")).to_be_enabled()
        page.click("#stop")
        expect(page.locator("#state")).to_contain_text("done", timeout=120_000)
        expect(page.locator("#stop")).to_be_disabled()
        expect(page.locator("#log")).to_contain_text("done after")
        expect(page.locator("#charts")).to_contain_text("Validation")
    assert (folder / "policy.safetensors").exists()


def test_damaged_run_does_not_hide_other_runs(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    for name, table in (("good", "iteration,reward\n1,0.5\n"), ("torn", "nonsense\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text('{"algorithm": "dqn"}')
        (tmp_path / name / "metrics.csv").write_text(table)
    # A browser logs every refusal, so this page is not `opened`.
    page = browser.new_page()
    page.goto(serve(str(tmp_path)))
    expect(page.locator("#state")).to_contain_text("dqn")
    page.click("#overlay summary")
    page.locator("#others label", has_text="torn").locator("input").check()
    expect(page.locator("#problem")).to_contain_text("torn/metrics.csv")
    written = RunProgress(
        state="done",
        iteration=7,
        seconds=1.0,
        iterations=10,
        minutes=None,
        validate_every=1,
        patience=0,
        stale=0,
        best=None,
        best_iteration=0,
        requests=(),
        histograms={},
    )
    (tmp_path / "good" / PROGRESS).write_bytes(msgspec.json.encode(written))
    expect(page.locator("#state")).to_contain_text("iteration 7 of 10")
    expect(page.locator("#charts .chart")).to_have_count(1)
    (tmp_path / "torn" / "metrics.csv").write_text("iteration,reward\n1,0.7\n")
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#charts .lines span")).to_have_count(2)
    page.close()


def test_list_and_state_agree_about_damaged_and_deleted_runs(
    browser: Browser, serve: Callable[..., str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text('{"algorithm": "dqn"}')
    (folder / "metrics.csv").write_text("iteration,reward\n1,0.5\n2\n")
    with opened(browser, serve(str(folder))) as page:
        expect(page.locator("#problem")).to_contain_text("metrics.csv, line 3")
        expect(page.locator("#run option")).to_have_text("run (does not run)")
        expect(page.locator("#state")).to_have_text("does not run · dqn")
        (folder / "progress.json").write_text("damaged")
        expect(page.locator("#run option")).to_have_text("run (cannot be read)")
        expect(page.locator("#state")).to_contain_text("cannot be read")
        expect(page.locator("#problem")).to_contain_text("progress.json")
        shutil.rmtree(folder)
        expect(page.locator("#problem")).to_contain_text("run.json: is missing")
        expect(page.locator("#run option")).to_have_text("run (cannot be read)")
        expect(page.locator("#state")).to_have_text("cannot be read")


def test_leaving_a_page_during_a_request_logs_no_error(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        screen(page, "Training")
        page.route("**/api/training/news*", lambda _route: None)  # it is never answered
        with page.expect_request("**/api/training/news*"):
            pass
        with page.expect_event("requestfailed"):
            screen(page, "Comparison")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_pages_pass_accessibility_checks(browser: Browser, address: str, axe: str, width: str, dark: bool) -> None:
    with opened(browser, address, width=WIDTHS[width], dark=dark) as page:
        for name, ready in (("Training", "#charts .chart"), ("Comparison", "#table tbody tr")):
            screen(page, name)
            page.locator(ready).first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], name
            page.evaluate(axe)
            found = page.evaluate("axe.run()")["violations"]
            serious = [each["id"] for each in found if each["impact"] in ("serious", "critical")]
            assert serious == [], name
            if folder := os.environ.get("STEERSMAN_SCREENSHOTS"):
                page.screenshot(
                    path=f"{folder}/shot-{name.lower()}-{width}-{'dark' if dark else 'light'}.png", full_page=True
                )
