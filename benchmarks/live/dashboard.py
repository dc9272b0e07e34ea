"""What the dashboard costs beside a live cluster, and how fast its pages are in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from playwright.async_api import async_playwright
from playwright.sync_api import sync_playwright
from tests.browser.conftest import OPTIONS, chromium

from benchmarks.live.rate import cpu_seconds, local_cluster, peak_memory, pod_object
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.config import load
from steersman.live.runtime.tasks import run_concurrently

NODES, PODS = 1_000, 10_000
SHAPE = "96cpu,768Gi,110pods,8gpu:A100"
CHURN = 10
"""Pods that come a second, and as many that go."""
SECONDS = 60.0
HISTORY_SECONDS = 10.0
"""Time between two questions of a page for its charts."""
PATH = "/api/v1/namespaces/default/pods"
FRAMES_SECONDS = 10
START = "() => { const t = document.getElementById('time'); t.value = 0; t.dispatchEvent(new Event('input')); }"
BOUND = re.compile(rb'"bound":([0-9]+)')
PAINT = "() => performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"


@contextmanager
def served(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `steersman dashboard` in the block; its process, and the address that it printed."""
    command = [sys.executable, "-m", "steersman", "dashboard", "--port", "0", "--no-open", *arguments]
    given = os.environ | {"PYTHONUNBUFFERED": "1"} | (environment or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(30)


def dashboard_live() -> dict[str, Any]:
    """1,000 nodes of 8 GPUs, 10,000 pods and an open page: share of a core of the dashboard, at rest and in churn.

    A client asks for what a page asks; in churn Chromium does afterwards, too, which shares the machine's cores.
    """
    shape = ("--node-shape", SHAPE)
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES, *shape) as (kubeconfig, _):
        asyncio.run(_fill(kubeconfig))
        with served("--live", "--kubeconfig", str(kubeconfig)) as (process, address):
            result = asyncio.run(_measure(kubeconfig, process.pid, address))
            memory = peak_memory(process.pid)
    return {"nodes": NODES, "pods": PODS, **result, "peak_memory_mb": round(memory / 1e6)}


async def _measure(kubeconfig: Path, pid: int, address: str) -> dict[str, Any]:
    async with Client(load(kubeconfig)) as client:
        async with _page(address) as page:
            began = time.monotonic()
            while page["snapshots"] == 0:
                await asyncio.sleep(0.1)
            listed, listing = time.monotonic() - began, cpu_seconds(pid)
            await asyncio.sleep(2 * HISTORY_SECONDS)
            result = {"seconds_until_listed": round(listed, 1), "cpu_seconds_until_listed": round(listing, 1)}
            result["percent_of_core_at_rest"] = await _share(pid)
            churn = asyncio.create_task(_churn(client))
            await asyncio.sleep(2 * HISTORY_SECONDS)
            before, began = dict(page), time.monotonic()
            result["percent_of_core_in_churn"] = await _share(pid)
            seconds = time.monotonic() - began
            result["messages_per_second"] = round((page["messages"] - before["messages"]) / seconds, 1)
            result["bindings_per_second"] = round((page["bound"] - before["bound"]) / seconds, 1)
        async with _browser_page(address):
            await asyncio.sleep(2 * HISTORY_SECONDS)
            result["percent_of_core_in_churn_with_chromium"] = await _share(pid)
        churn.cancel()
        with suppress(asyncio.CancelledError):
            await churn
    return result | {"pods_created_per_second": CHURN}


@asynccontextmanager
async def _browser_page(address: str) -> AsyncIterator[None]:
    """Have the page open in Chromium in the block; it has to show the cluster."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        page = await browser.new_page(viewport={"width": 1400, "height": 1000})
        await page.goto(address)
        await page.wait_for_selector("#counts dd")
        yield
        await browser.close()


async def _share(pid: int) -> float:
    """Percent of a core, user and system, that a process takes."""
    began, before = time.monotonic(), cpu_seconds(pid)
    await asyncio.sleep(SECONDS)
    return round(100 * (cpu_seconds(pid) - before) / (time.monotonic() - began), 2)


@asynccontextmanager
async def _page(address: str) -> AsyncIterator[dict[str, int]]:
    """Ask what a page asks: its stream, and its charts every few seconds; yield the numbers of what came."""
    seen = {"snapshots": 0, "messages": 0, "bound": 0}
    parts = urlsplit(address)
    base, token = f"{parts.scheme}://{parts.netloc}", parts.query.removeprefix("token=")
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(base, timeout=timeout, headers={"Authorization": f"Bearer {token}"}) as session:

        async def follow() -> None:
            async with session.get("/api/live/stream", read_bufsize=1 << 22) as answer:
                async for line in answer.content:
                    seen["snapshots"] += line == b"event: snapshot\n"
                    seen["messages"] += line.startswith(b"event: summary")
                    if found := BOUND.search(line):
                        seen["bound"] = int(found[1])

        async def ask() -> None:
            while True:
                async with session.get("/api/live/history?seconds=3600&ago=0&by=model&node=") as answer:
                    await answer.read()
                await asyncio.sleep(HISTORY_SECONDS)

        tasks = [asyncio.create_task(follow()), asyncio.create_task(ask())]
        yield seen
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fill(kubeconfig: Path) -> None:
    async with Client(load(kubeconfig)) as client:
        nodes = [msgspec.json.decode(raw)["metadata"]["name"] for raw in (await client.list("/api/v1/nodes")).items]
        pods = (pod_object(i, nodes[i % len(nodes)]) for i in range(PODS))
        await run_concurrently(partial(client.create, PATH, each) for each in pods)
        while any(b'"phase":"Running"' not in bytes(raw) for raw in (await client.list(PATH)).items):
            await asyncio.sleep(1)  # KWOK still changes pods, which is no rest


async def _churn(client: Client) -> None:
    """Pods come for kube-scheduler to bind, and those that came first go."""
    there = deque(f"web-{i:05d}" for i in range(PODS))
    async with asyncio.TaskGroup() as group:
        for i in range(1_000_000):
            pod = pod_object(i, name=f"churn-{i:06d}")
            pod["spec"]["schedulerName"] = DEFAULT_SCHEDULER
            there.append(pod["metadata"]["name"])
            group.create_task(client.create(PATH, pod))
            group.create_task(_delete(client, there.popleft()))
            await asyncio.sleep(1 / CHURN)


async def _delete(client: Client, name: str) -> None:
    with suppress(ApiError):  # KWOK may have deleted it
        await client.delete(f"{PATH}/{name}", {"gracePeriodSeconds": "0"})


def dashboard_frames() -> dict[str, Any]:
    """Two policies on openb's 1,213 nodes, played in headless Chromium: frames per second, and the first paint."""
    with (
        served("--workload", "default", "--policy", "fgd", "steersman") as (_, address),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(address)
        page.wait_for_selector("main:not([hidden])")
        paint = page.evaluate(PAINT)
        page.select_option("#duration", str(FRAMES_SECONDS))
        page.evaluate(START)
        page.click("#play")
        page.wait_for_selector("#play[aria-pressed=false]", timeout=10_000 * FRAMES_SECONDS)
        frames = float(page.evaluate("document.body.dataset.framesPerSecond"))
        browser.close()
    return {"maps": 2, "frames_per_second": frames, "first_contentful_paint_ms": round(paint[0]) if paint else None}
