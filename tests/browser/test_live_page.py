"""The page of a live cluster in Chromium: what it says where there is too much or nothing."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import watched
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod

from steersman.live.dashboard.live.screen import MOST_CLIENTS, PODS_LISTED

pytestmark = pytest.mark.browser
MORE = 100
"""Pods of the node that are not listed."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a cluster of one full node."""
    double = LiveDouble()
    double.bind_after = None
    double.put(NODES, node("node-0", cpu="2000", memory="4000Gi", pods="2000"))
    for i in range(PODS_LISTED + MORE):
        double.put(PODS, pod(f"pod-{i}", on="node-0"))
    with watched(double, tmp_path_factory.mktemp("live")) as (printed, _):
        yield printed


def stream(address: str) -> http.client.HTTPConnection:
    """A connection that has the answer of another page's stream."""
    url = urlsplit(address)
    (token,) = parse_qs(url.query)["token"]
    connection = http.client.HTTPConnection(url.netloc)
    connection.request("GET", "/api/live/stream", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.read(len("event: snapshot")) == b"event: snapshot"
    return connection


def test_surplus_page_waits_until_another_is_closed(browser: Browser, address: str) -> None:
    with ExitStack() as others, closing(browser.new_context()) as context:
        pages = [others.enter_context(closing(stream(address))) for _ in range(MOST_CLIENTS)]
        page = context.new_page()
        page.goto(address)
        problem = page.locator("#problem")
        expect(problem).to_have_text(f"{MOST_CLIENTS} pages are open already; close one")
        page.wait_for_timeout(5_000)  # it asks again
        expect(problem).to_have_text(f"{MOST_CLIENTS} pages are open already; close one")
        expect(problem).to_be_visible()
        pages[0].close()
        expect(page.locator("#subject")).to_have_text("1 node", timeout=30_000)
        expect(problem).to_be_hidden()


def test_node_card_counts_unlisted_pods(browser: Browser, address: str) -> None:
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(address)
        page.fill("#search", "node-0")
        page.locator("#found button").first.click()
        pods = PODS_LISTED + MORE
        expect(page.locator("#details p")).to_have_text(
            f"{pods}.0 of 2000.0 CPU, {pods}.0 of 4000.0 GiB; {pods} pods; {MORE} more are not listed"
        )
