"""The page of a live cluster in Chromium, on a real control plane with KWOK nodes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import axe, browser, opened, served
from tests.e2e.conftest import NODES, LocalCluster

__all__ = ["axe", "browser"]
pytestmark = [pytest.mark.e2e, pytest.mark.browser]
SLOW = 60_000


def pod(name: str, cpu: str) -> dict[str, object]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def create(cluster: LocalCluster, *pods: dict[str, object]) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A control plane beside the browser takes its time."""
    expect.set_options(timeout=SLOW)
    yield
    expect.set_options(timeout=None)


@pytest.fixture
def address(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in cluster.environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    with served("--live", "--kubeconfig", str(cluster.kubeconfig)) as printed:
        yield printed


def count(name: str) -> str:
    """Selector of the number beside a name."""
    return f"#counts div:has(dt:text-is('{name}')) dd"


def test_the_page_follows_the_cluster(cluster: LocalCluster, address: str, browser: Browser, axe: str) -> None:
    with opened(browser, address) as page:
        expect(page.locator("#subject")).to_have_text("10 nodes")
        expect(page.locator(count("Pods"))).to_have_text("0")
        create(cluster, *(pod(f"web-{i}", "1") for i in range(12)), pod("too-large", "1000"))
        expect(page.locator(count("Pods"))).to_have_text("13")
        expect(page.locator(count("Bound since the start"))).to_have_text("12")
        expect(page.locator("#waiting")).to_contain_text("10 Insufficient cpu")

        page.click("#waiting .link")
        expect(page.locator("#details h2")).to_have_text("default/too-large waits")
        expect(page.locator("#details")).to_contain_text("Insufficient cpu")
        expect(page.locator("#details [role=status]")).to_have_count(0)
        page.fill("#search", "web-1")
        page.locator("#found button").first.click()
        expect(page.locator("#details")).to_contain_text("would be placed if it still waited")
        expect(page.locator("#details [role=status]")).to_have_count(0)
        page.locator("#details .link").first.click()
        expect(page.locator("#details h2")).to_contain_text("node-")
        chosen = page.locator("#details h2").inner_text()
        page.locator("#map").focus()
        page.keyboard.press("ArrowLeft" if chosen == f"node-{NODES - 1:04}" else "ArrowRight")  # the last has none
        expect(page.locator("#details h2")).not_to_have_text(chosen)

        expect(page.locator("#agreement")).to_contain_text("decisions")
        page.select_option("#rule", "most-even")
        expect(page.locator("#chart-agreement [role=img]")).to_have_attribute(
            "aria-label", re.compile("most-even [0-9.]+ %"), timeout=SLOW
        )
        expect(page.locator("#latency tbody tr").first).to_be_visible(timeout=SLOW)
        page.locator("#chart-pods").get_by_role("button", name=re.compile("^[0-9]+ more$")).click()
        assert page.locator("#chart-pods .lines span").count() >= 10
        expect(page.locator("#chart-waiting .lines span")).to_have_text(["all 1", "Insufficient cpu 1"])

        for width in (1400, 390):
            page.set_viewport_size({"width": width, "height": 1000})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.evaluate(axe)
            found = page.evaluate("axe.run()")["violations"]
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []

        cluster.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")
        expect(page.locator(count("Pods"))).to_have_text("0")
        expect(page.locator("#waiting")).to_have_text("No pod waits.")
