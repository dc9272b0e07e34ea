"""Pages of the built site as browsers read them: anchors, links, and what pages load."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
LOADING = {"img": "src", "script": "src", "link": "href", "source": "srcset", "iframe": "src"}
"""Attributes of elements that load a file."""


class SitePage(NamedTuple):
    """A page: its anchors, the addresses of its links, and those that it loads files from."""

    anchors: set[str]
    links: list[str]
    loaded: list[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = SitePage(set(), [], [])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        if tag == "a" and "href" in values:
            self.page.links.append(values["href"])
        elif address := values.get(LOADING.get(tag, "")):
            self.page.loaded.append(address)


def build_site(folder: Path) -> Path:
    """Build the site below a folder as `make site` does below build/, and return where it is."""
    command = (sys.executable, "-m", "website", folder)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def read(file: Path) -> SitePage:
    """Read a page of HTML."""
    reader = _Reader()
    reader.feed(file.read_text())
    return reader.page


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with links and loaded files of a site, one line each.

    Addresses of other sites are not asked; only their form is looked at. Nothing may be loaded from them.
    """
    pages = {file: read(file) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        where = file.relative_to(site)
        for address in page.loaded:
            if urlsplit(address).scheme not in ("", "data"):
                yield f"{where}: loads {address}"
            elif not address.startswith("data:") and not (file.parent / unquote(urlsplit(address).path)).is_file():
                yield f"{where}: {address} is missing"
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme:
                if not re.fullmatch(r"https?://[\w.-]+(?::\d+)?(?:/\S*)?|mailto:\S+@\S+", address):
                    yield f"{where}: {address} is not an address"
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target not in pages:
                if not target.is_file():
                    yield f"{where}: {address} leads nowhere"
            elif parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where}: {address}: the page has no such anchor"
