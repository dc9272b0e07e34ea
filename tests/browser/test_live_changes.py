"""The page of a live cluster in Chromium: what it shows of nodes and pods, and how that follows the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.browser.conftest import opened, watched
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod

pytestmark = pytest.mark.browser
SECONDS = 30_000
LONG = f"node-{'long.' * 49}"[:249] + "z"
"""A name as long as one may almost be."""


class Cluster:
    """A cluster of a few nodes and its page."""

    def __init__(self, double: LiveDouble, address: str, call: Callable[..., object]) -> None:
        self.double, self.address, self.call = double, address, call

    def put(self, collection: str, obj: dict[str, object]) -> None:
        self.call(self.double.put, collection, obj)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    double = LiveDouble()
    double.bind_after = None
    double.put(NODES, node("node-0", **{"topology.kubernetes.io/zone": "here"}))
    double.put(NODES, node("node-1"))
    double.put(NODES, node(LONG))
    shared = node("ts-80", **{"nvidia.com/gpu.product": "A100"})
    shared["status"]["allocatable"]["nvidia.com/gpu"] = "80"
    double.put(NODES, shared)
    half = pod("half", on="ts-80")
    half["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "40"}
    double.put(PODS, half)
    odd = node("odd")
    odd["status"]["allocatable"]["cpu"] = "9E"
    double.put(NODES, odd)
    double.put(PODS, pod("lost", on="odd"))
    for i in range(60):
        double.put(PODS, pod(f"many-{i:02}", cpu="100m", on="node-1"))
    double.put(PODS, pod(f"{'w' * 240}", cpu="1000"))
    with watched(double, tmp_path_factory.mktemp("live")) as (address, call):
        yield Cluster(double, address, call)


def until(page: Page, condition: Callable[[], bool]) -> None:
    """Let the page go on until a condition holds, for `SECONDS` at most."""
    for _ in range(SECONDS // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the condition does not hold")


def choose(page: Page, text: str) -> None:
    page.fill("#search", text)
    page.locator("#found button", has_text=text).first.click()


def test_gpus_without_indices_are_counted(browser: Browser, cluster: Cluster) -> None:
    with opened(browser, cluster.address) as page:
        expect(page.locator("#subject")).to_have_text("5 nodes, 80 GPUs")
        choose(page, "ts-80")
        expect(page.locator("#details .card p")).to_contain_text("40 of 80 A100 GPUs; 1 pod")
        expect(page.locator("#details tbody td").last).to_have_text("40 GPUs")
        titles = dict[str, int]()
        width = page.evaluate("document.getElementById('map').clientWidth")
        for x in range(3, width, 20):  # groups by size: the four without a model, right of them the one with
            page.locator("#map").hover(position={"x": x, "y": 20 + 3})
            titles[page.evaluate("document.getElementById('map').title")] = x
        x = titles["ts-80: 2 % of CPU, 40.00 of 80 A100 GPUs; not ready"]
        assert x == max(titles.values()) > 0.9 * width - 20, "the map is narrower than its place"
        colour = "document.getElementById('map').getContext('2d').getImageData(x, 20 + 3, 1, 1).data"
        red, green, blue, _ = page.evaluate(f"x => [...{colour}]", x)
        assert abs(red - 165) + abs(green - 156) + abs(blue - 116) < 9, "not the colour of half"


def test_invalid_node_shows_its_reason_and_pods(browser: Browser, cluster: Cluster) -> None:
    with opened(browser, cluster.address) as page:
        choose(page, "default/lost")
        page.locator("#details button", has_text="odd").click()
        expect(page.locator("#details h2")).to_have_text("odd (not understood)")
        expect(page.locator("#details .reason")).to_contain_text("9E")
        expect(page.locator("#details .card p").last).to_have_text("1 pod")
        expect(page.locator("#details tbody button")).to_have_text(["default/lost"])


def test_headings_name_missing_resources(browser: Browser, cluster: Cluster) -> None:
    with opened(browser, cluster.address) as page:
        page.evaluate(
            """() => {
                window.drawn = [];
                const { fillText } = CanvasRenderingContext2D.prototype;
                CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                    window.drawn.push(text);
                    fillText.call(this, text, ...rest);
                };
            }"""
        )
        page.select_option("#group", "zone")
        assert {"no zone: 4 nodes", "here: 1 node"} <= set(page.evaluate("window.drawn"))
        assert not any("GPU model" in text for text in page.evaluate("window.drawn"))


def test_pod_card_follows_the_pod_and_keeps_the_explanation(browser: Browser, cluster: Cluster) -> None:
    cluster.put(PODS, pod("comes"))
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(cluster.address)
        choose(page, "default/comes")
        expect(page.locator("#details h2")).to_have_text("default/comes waits")
        expect(page.locator("#details")).to_contain_text("has not said why yet")
        expect(page.locator("#details")).to_contain_text("The policy prefers", timeout=SECONDS)
        page.locator("#details select").focus()
        held: list[Route] = []
        question = "**/api/live/explanation?*policy=best-fit"
        page.route(question, lambda route: held.append(route))
        page.select_option("#details select", "best-fit")
        # The former policy's choice must not stand beside this one's name.
        expect(page.locator("#details [role=status]")).to_have_text("Working out why…")
        assert page.evaluate("document.activeElement.value") == "best-fit"
        until(page, lambda: bool(held))
        held[0].continue_()
        page.unroute(question)
        expect(page.locator("#details")).to_contain_text("The policy prefers", timeout=SECONDS)
        explained = page.locator("#details table").first.text_content()
        cluster.call(cluster.double.bind, "comes", "node-0")
        expect(page.locator("#details h2")).to_have_text("default/comes", timeout=SECONDS)
        expect(page.locator("#details")).to_contain_text("On node-0")
        assert page.locator("#details table").first.text_content() == explained
        assert page.evaluate("document.activeElement.tagName") == "SELECT"
        cluster.call(cluster.double.remove, PODS, "comes")
        expect(page.locator("#details .gone")).to_have_text("there is no such pod; it may have ended", timeout=SECONDS)
        assert page.locator("#details table").first.text_content() == explained


def test_node_card_follows_the_node_and_keeps_its_scroll_position(browser: Browser, cluster: Cluster) -> None:
    with opened(browser, cluster.address) as page:
        choose(page, "node-1")
        expect(page.locator("#details .card p")).to_contain_text("; 60 pods")
        listed = page.locator("#details .scroll")
        listed.evaluate("(place) => { place.scrollTop = 300; }")
        focused = page.locator("#details button", has_text="default/many-30")
        focused.focus()
        place = listed.evaluate("(place) => place.scrollTop")
        cluster.put(PODS, pod("many-00-before", cpu="100m", on="node-1"))
        expect(page.locator("#details .card p")).to_contain_text("; 61 pods", timeout=SECONDS)
        assert page.locator("#details tbody button").nth(1).text_content() == "default/many-00-before"
        assert page.evaluate("document.activeElement.textContent") == "default/many-30"
        assert abs(listed.evaluate("(place) => place.scrollTop") - place) < 60  # a row more may be above


@pytest.mark.parametrize("width", [1400, 390])
def test_long_names_do_not_widen_the_page(browser: Browser, cluster: Cluster, width: int) -> None:
    with opened(browser, cluster.address, width=width) as page:
        line = page.locator("#chart-pods .lines span", has_text=LONG[:50])
        expect(line).to_have_count(1, timeout=SECONDS)
        expect(line).to_have_attribute("title", LONG)
        for text in (LONG[:20], "www"):
            choose(page, text)
            expect(page.locator("#details h2")).to_contain_text(text)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        chart = page.locator("#chart-pods").bounding_box()
        box = line.bounding_box()
        assert chart is not None
        assert box is not None
        assert box["x"] + box["width"] <= chart["x"] + chart["width"]
        assert box["height"] < 50


def test_chart_segment_shows_its_name_and_date(browser: Browser, cluster: Cluster) -> None:
    clock = re.compile(r"\d\d:\d\d:\d\d to (.*\d\d:\d\d:\d\d|now)")
    with opened(browser, cluster.address) as page:
        window, span = page.locator("#window"), page.locator("#span")
        expect(span).to_have_text(re.compile(r"\d\d:\d\d to now"))
        page.locator("#until").press("Home")
        yesterday = re.compile(r"^\w+, \w+ \d+, \d\d:\d\d to (\w+, \w+ \d+, )\d\d:\d\d$")
        expect(span).to_have_text(yesterday, timeout=SECONDS)
        page.locator("#until").press("End")
        expect(span).to_have_text(re.compile(r"\d\d:\d\d to now"), timeout=SECONDS)
        page.select_option("#window", "600")
        page.locator("#chart-pods .u-over").scroll_into_view_if_needed()
        box = page.locator("#chart-pods .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=5)
        page.mouse.up()
        expect(window).to_have_value("part")
        assert window.evaluate("(select) => select.selectedOptions[0].textContent") == "a part"
        expect(span).to_have_text(clock, timeout=SECONDS)
        page.locator("#chart-pods .u-over").dblclick()
        expect(window).to_have_value("86400")


def test_expected_starts_are_asked_for(browser: Browser, cluster: Cluster) -> None:
    """The pod that fits nowhere is listed with the reason, under the chosen policy and order."""
    with opened(browser, cluster.address) as page:
        page.select_option("#queue-policy", "best-fit")
        page.select_option("#queue-order", "smallest")
        page.click("#predict")
        said = "under best-fit+smallest, order smallest"
        expect(page.locator("#queue p").first).to_contain_text(said, timeout=4 * SECONDS)
        row = page.locator("#queue tr", has_text="w" * 240)
        expect(row).to_contain_text("never: 0/")
        row.locator("button").click()
        expect(page.locator("#details h2")).to_contain_text("waits")
