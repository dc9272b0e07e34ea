"""The documentation as a site: links and anchors lead somewhere, nothing is loaded from elsewhere, all is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.site import build_site, problems, read
from tests.unit.docs.test_places import metrics

from steersman.policies.registry import names

pytestmark = pytest.mark.integration

NO_METRICS: set[str] = set()
"""Texts in the code that look like names of metrics."""
SIZE_LIMIT_BYTES = 9_500_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def test_links_and_anchors_resolve(site: Path) -> None:
    assert list(problems(site)) == []


def test_every_page_is_in_the_navigation_or_linked(site: Path) -> None:
    pages = {file.resolve() for file in site.rglob("*.html")}
    linked = {
        (file.parent / link.partition("#")[0]).resolve()
        for file in pages
        for link in read(file).links
        if "://" not in link
    }
    assert {page.name for page in pages - linked} <= {"404.html", "index.html"}


def test_generated_references_list_all_policies_and_metrics(site: Path) -> None:
    assert {file.stem for file in (site / "policies").glob("*.html")} == {"index", *names()}
    page = (site / "reference" / "metrics.html").read_text()
    named = {name for name in metrics() if re.fullmatch(r"steersman_(?!simulated__)[a-z_]+[a-z]", name)}
    assert len(named) > 40
    assert {name for name in named if f"{name}<" not in page and f"{name}_total<" not in page} == NO_METRICS


def test_contributor_pages_are_left_out(site: Path) -> None:
    assert not list(site.rglob("development*"))


def test_search_finds_generated_pages(site: Path) -> None:
    index = site / "search.js"
    assert "steersman_policy_server_duration_seconds" in index.read_text()


def test_site_is_small(site: Path) -> None:
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size < SIZE_LIMIT_BYTES


def test_broken_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    good = '<a href="b.html#there"></a><a href="https://example.org/x"></a>'
    (tmp_path / "a.html").write_text(good)
    assert list(problems(tmp_path)) == []
    bad = '<a href="c.html"></a><a href="b.html#gone"></a><a href="http:/x"></a><img src="x.png">'
    bad += '<script src="https://cdn.example/x.js"></script>'
    (tmp_path / "a.html").write_text(bad)
    assert sorted(line.removeprefix("a.html: ") for line in problems(tmp_path)) == [
        "b.html#gone: the page has no such anchor",
        "c.html leads nowhere",
        "http:/x is not an address",
        "loads https://cdn.example/x.js",
        "x.png is missing",
    ]
