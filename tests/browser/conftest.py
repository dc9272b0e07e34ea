"""Chromium for the tests of pages, and dashboards as the command serves them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright
from tests.support.nightly import is_nightly
from tests.support.servers.live_cluster import LiveDouble

from steersman.core.cache import cache_root
from steersman.live.local_cluster.record import locked

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = "axe-core@4.10.3"
# Every answer takes 0.7 s and scripts run at a third of the speed: a test that reads a page too early fails.
SLOW = is_nightly()


def chromium() -> str:
    """The browser's path; Debian's package is installed where there is none."""
    if not any(map(shutil.which, NAMES)):
        # Of processes that run tests beside each other one installs it.
        with locked(cache_root() / "chromium.lock", waiting=lambda: None):
            if not any(map(shutil.which, NAMES)):
                for command in ("update", "-q"), ("install", "-y", "-q", "chromium"):
                    waiting = ("apt-get", "-o", "DPkg::Lock::Timeout=300")  # for another program that installs
                    subprocess.run([*waiting, *command], check=True, stdout=subprocess.DEVNULL, timeout=600)
    return next(path for path in map(shutil.which, NAMES) if path is not None)


@pytest.fixture(scope="module")  # while it lives an event loop runs, and other modules' tests cannot start theirs
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds what keeps people from using a page."""
    kept = cache_root() / AXE.replace("@", "-") / "axe.min.js"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, check=True, capture_output=True, timeout=300)
            (packed,) = Path(folder).glob("*.tgz")
            subprocess.run(["tar", "xzf", packed.name], cwd=folder, check=True, timeout=60)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(folder) / "package" / "axe.min.js", kept)
    return kept.read_text()


def serious_violations(page: Page, axe: str) -> list[str]:
    """Return the rules of accessibility that a page breaks seriously."""
    page.evaluate(axe)
    # It would load the style sheets again, which a page from a file may not.
    found = page.evaluate("axe.run({preload: false})")["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """Run `steersman dashboard` in the block; the address that it printed."""
    command = [sys.executable, "-m", "steersman", "dashboard", "--port", "0", "--no-open", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, line
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., str]]:
    """A function that serves a dashboard until the module's tests are over."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(served(*arguments))


@contextmanager
def opened(browser: Browser, address: str, *, width: int = 1400, dark: bool = False) -> Iterator[Page]:
    """A page that has loaded; whatever its scripts log or throw fails the test."""

    def note_failure(request: Request) -> None:
        # A page that is left while it asks aborts its request, which is no failure.
        if request.failure != "net::ERR_ABORTED":
            problems.append(f"{request.url}: {request.failure}")

    context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme="dark" if dark else "light")
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("requestfailed", note_failure)
    if SLOW:
        session = context.new_cdp_session(page)
        session.send("Emulation.setCPUThrottlingRate", {"rate": 3})
        conditions = {"offline": False, "latency": 700, "downloadThroughput": -1, "uploadThroughput": -1}
        session.send("Network.emulateNetworkConditions", conditions)
    page.goto(address)
    page.wait_for_selector("main:not([hidden])")
    yield page
    context.close()
    assert problems == []


@contextmanager
def watched(double: LiveDouble, folder: Path) -> Iterator[tuple[str, Callable[..., object]]]:
    """Run an API server in a thread, and `steersman dashboard --live` on it.

    Yields:
        The address of the page, and a function that calls another in the server's thread.
    """
    began, loop, ended = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def main() -> None:
        async with double:
            began.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert began.wait(30)
        config = folder / "config"
        clusters = [{"name": "double", "cluster": {"server": double.url}}]
        contexts = [{"name": "double", "context": {"cluster": "double"}}]
        config.write_text(json.dumps({"clusters": clusters, "contexts": contexts, "current-context": "double"}))
        with served("--live", "--kubeconfig", str(config)) as printed:
            yield printed, loop.call_soon_threadsafe
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
