"""The documentation as a site, opened from its files: the search finds pages, and wide things do not widen a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.support.site import build_site

pytestmark = pytest.mark.browser

PAGES = ("index", "how-to/operate", "reference/api", "reference/features", "policies/steersman", "results")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@contextmanager
def read(browser: Browser, file: Path, width: int, dark: bool) -> Iterator[Page]:
    """Open a page from its file; requests beyond files, messages and errors fail the test."""
    context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme="dark" if dark else "light")
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri())
    yield page
    context.close()
    assert problems == []


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_the_viewport_and_load_from_no_other_host(
    site: Path, browser: Browser, width: int, dark: bool
) -> None:
    for name in PAGES:
        with read(browser, site / f"{name}.html", width, dark) as page:
            page.wait_for_selector("h1")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background.removeprefix("rgb(").rstrip(")").split(","))) < 380) == dark, background


def test_the_search_works_without_a_server(site: Path, browser: Browser) -> None:
    with read(browser, site / "reference" / "api.html", 1400, False) as page:
        page.keyboard.press("/")
        page.wait_for_function("document.activeElement.shadowRoot?.activeElement")  # the field of the search
        page.keyboard.type("fragmentation gradient")
        page.locator('a[href*="fgd.html"]', has_text="Policies").click()
        page.wait_for_url("**/policies/fgd.html*")
