"""Pages of the repository as pages of the site: where each is, and where its links lead there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from website.notebooks import as_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = "index.md"
POLICIES = DOCS / "reference" / "policies.md"
"""The page whose sections are pages of the site, see `website.policies`."""
LEFT_OUT = {DOCS / "development.md"}
"""Pages for those who work on steersman."""
MOVED = {
    ROOT / "README.md": INDEX,
    DOCS / "README.md": INDEX,
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    POLICIES: "policies/index.md",
}
"""Where pages are that are elsewhere than below docs/. The table of contents of docs/ is the site's navigation."""
GENERATED = {POLICIES, DOCS / "README.md"}
"""Pages that are not copied."""
LINK = re.compile(r'(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)(?: "([^"]*)")?\)')
LIST = re.compile(r"(?:[-*]|\d+\.) ")
IMAGES = (".png", ".svg")
UNSEARCHED = {
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")),
    *(DOCS / name for name in ("explanation/architecture.md", "how-to/images.md", "reference/features.md")),
    *(DOCS / "explanation" / "decisions").glob("*.md"),
    *(DOCS / "results").glob("*.md"),
}
"""Pages that the search leaves out: what users look for is elsewhere, and the site holds the index twice."""
NOT_FOUND = "---\nsearch:\n  exclude: true\n---\n\n"


def place(path: Path) -> str:
    """Return where a page or picture of the repository is on the site."""
    if path in MOVED:
        return MOVED[path]
    if path.is_relative_to(DOCS):
        relative = path.relative_to(DOCS)
        return str(relative.with_suffix(".md") if path.suffix == ".ipynb" else relative)
    inner = path.relative_to(ROOT)
    return f"{inner.parent}.md" if path.name == "README.md" else str(inner)


def sources() -> list[Path]:
    """Return the pages of the site that are files of the repository, and those that they link to."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(DOCS.rglob("*.ipynb"))]
    found += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    found = [page for page in found if page not in LEFT_OUT and ".ipynb_checkpoints" not in page.parts]
    for page in found:  # it grows
        found += [file for file in dict.fromkeys(linked(page)) if file not in found and file not in LEFT_OUT]
    return [page for page in found if page not in GENERATED]


def pictures() -> list[Path]:
    """Return the pictures of the pages."""
    return sorted(path for path in DOCS.rglob("*") if path.suffix in IMAGES)


def page_text(path: Path) -> str:
    """Return the Markdown of a page or notebook for the site."""
    text = as_page(path.read_text()) if path.suffix == ".ipynb" else path.read_text()
    return (NOT_FOUND if path in UNSEARCHED else "") + for_site(text, path, place(path))


def for_site(text: str, source: Path, target: str) -> str:
    """Return the Markdown of a page for `target`: links go to pages of the site, lists begin after a blank line.

    What is linked and is no page of the site stays as text, with its path in the repository for the pointer.
    """
    lines = list[str]()
    for line, is_code in _lines(text):
        if is_code:
            lines.append(line)
            continue
        if LIST.match(line) and lines and lines[-1] and not LIST.match(lines[-1]) and lines[-1][0] not in " |":
            lines.append("")
        lines.append(LINK.sub(lambda match: _link(match, source, target), line))
    return "\n".join(lines) + "\n"


def title_of(text: str) -> str:
    """Return the first heading of a page, without marks."""
    match = re.search(r"^# (.+)$", text, re.M)
    return match[1].replace("`", "") if match else ""


def _link(match: re.Match[str], source: Path, target: str) -> str:
    label, address, title = match[1], match[2], match[3]
    path, _, anchor = address.partition("#")
    if not path or re.match(r"[a-z]+:", address):
        return match[0]
    file = (source.parent / path).resolve()
    page = _page_of(file)
    if page is None and file.suffix in IMAGES:
        page = file
    if page is None or page in LEFT_OUT:
        words = str(file.relative_to(ROOT)) + (f": {title}" if title else "")
        return f'<span class="in-repository" title="{words}">{_as_html(label[1:-1])}</span>'
    there = place(page)
    if page == POLICIES and anchor:
        there, anchor = f"policies/{anchor}.md", ""
    relative = os.path.relpath(there, Path(target).parent)
    return f"{label}({relative}{'#' if anchor else ''}{anchor})"


def _as_html(label: str) -> str:
    """Return the label of a link for HTML: code between backticks stays code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", label)


def _page_of(path: Path) -> Path | None:
    """Return the page that a path in the repository leads to: itself, or a folder's README."""
    file = path / "README.md" if path.is_dir() else path
    return file if file.suffix in (".md", ".ipynb") and file.is_file() else None


def linked(page: Path) -> list[Path]:
    """Return the pages that a page links to, in order."""
    return [file for target in _targets(page) if (file := _page_of(target)) is not None]


def _targets(page: Path) -> Iterator[Path]:
    """Files and folders that a page links to."""
    for line, is_code in _lines(page.read_text()):
        for match in () if is_code or page.suffix != ".md" else LINK.finditer(line):
            path = match[2].partition("#")[0]
            if path and not re.match(r"[a-z]+:", match[2]):
                yield (page.parent / path).resolve()


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Lines of Markdown, and whether each is code."""
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            yield line, True
        else:
            yield line, bool(fence) or line.startswith("    ")
