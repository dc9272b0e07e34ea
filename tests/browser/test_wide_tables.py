"""Tables that are wider than a phone scroll in their own box, which has a shadow at the right until the end."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.conftest import opened, serious_violations
from tests.support.run_results import EXPERIMENT, made_experiment
from tests.support.site import build_site

from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison, write_report
from steersman.evaluation.results import write_evaluation
from steersman.evaluation.summary import summarise

pytestmark = pytest.mark.browser
ENDS = {
    name: [80.0 + i, 81.0 + i * 1.1, 82.0 + i * 0.9]
    for i, name in enumerate(("kube-default", "fgd", "steersman@max-kind-loss:2", "fgd=500,gpu-packing=700", "mine"))
}
EDGE = """async picture => {
    const image = new Image();
    image.src = `data:image/png;base64,${picture}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const grey = x => {
        const { data } = context.getImageData(x, 0, 1, image.height);
        const greys = [];
        for (let i = 0; i < data.length; i += 4) greys.push((data[i] + data[i + 1] + data[i + 2]) / 3);
        return greys.sort((one, other) => one - other)[Math.floor(greys.length / 2)];
    };
    return Math.abs(grey(image.width - 2) - grey(image.width - 24));
}"""
"""By how much the right edge of a picture is darker or lighter than what is left of it: medians of columns."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., str]) -> Iterator[dict[str, tuple[str, str]]]:
    """Addresses of pages, and what their first wide table scrolls in."""
    folder = tmp_path_factory.mktemp("wide")
    runs = made_experiment(ENDS, workloads=["one", "two"])
    summary = summarise(runs, "kube-default")
    headline = Headline(runs, summary, "kube-default")
    write_report(folder / "report.html", [Comparison(runs, summary, headline, EXPERIMENT)], command="c")
    (folder / "results").mkdir()
    write_evaluation(folder / "results", runs, summary)
    site = build_site(folder / "site")
    return {
        "report": ((folder / "report.html").as_uri(), "main > .scroll"),
        "dashboard": (serve(str(folder / "results")), "#table"),
        "site": ((site / "reference" / "files.html").as_uri(), ".md-typeset__scrollwrap"),
    }


def hint(browser: Browser, box: Locator) -> float:
    """Return the contrast of the shadow at the right edge of a box on the screen."""
    blank = browser.new_page()
    try:
        return float(blank.evaluate(EDGE, base64.b64encode(box.screenshot()).decode()))
    finally:
        blank.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["report", "dashboard", "site"])
def test_wide_table_scrolls_with_a_hint_until_its_end(
    browser: Browser, pages: dict[str, tuple[str, str]], name: str, dark: bool
) -> None:
    address, selector = pages[name]
    with opened(browser, address, width=390, dark=dark) as page:
        box = page.locator(selector).first
        expect(box.locator("tbody tr").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert box.evaluate("box => box.scrollWidth > box.clientWidth + 20")
        assert hint(browser, box) > 15
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        assert hint(browser, box) < 2
    with opened(browser, address, width=1600, dark=dark) as page:
        box = page.locator(selector).first
        expect(box.locator("tbody tr").first).to_be_visible()
        assert hint(browser, box) < 2


@pytest.mark.parametrize("name", ["report", "dashboard"])
def test_first_column_stays_visible(browser: Browser, pages: dict[str, tuple[str, str]], name: str) -> None:
    address, selector = pages[name]
    with opened(browser, address, width=390) as page:
        box = page.locator(selector).first
        expect(box.locator("tbody tr").first).to_be_visible()
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        left = box.evaluate("box => box.getBoundingClientRect().left")
        for cell in box.locator("tbody td:first-child").all():
            place = cell.bounding_box()
            assert place is not None
            assert place["x"] == pytest.approx(left, abs=1)
            assert place["width"] < 0.5 * 390


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_report_passes_accessibility_checks(
    browser: Browser, pages: dict[str, tuple[str, str]], axe: str, width: int, dark: bool
) -> None:
    with opened(browser, pages["report"][0], width=width, dark=dark) as page:
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        assert drawn_within(page)
        assert serious_violations(page, axe) == []


def drawn_within(page: Page) -> bool:
    """Return whether nothing widens the page."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
