"""`python -m website`: write all pages into build/website, and have Zensical make build/site of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from website import api, commands, configuration, errors, metrics, play, policies
from website.pages import DOCS, INDEX, ROOT, linked, page_text, pictures, place, sources, title_of

HERE = Path(__file__).parent
UNUSED = ("404.html", "classic", "sitemap.xml")
"""What Zensical writes and no page uses: the style of another theme, and what is for servers and search engines."""
Nav = str | dict[str, "str | list[Nav]"]
"""An entry of the navigation: a page, or a title with a page or a group."""


def main() -> int:
    """Build the site below build/, or below a folder that is named, and return the exit status."""
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    return write_site(build / "website", build / "site")


def write_site(work: Path, site: Path) -> int:
    """Write pages into a folder, and the site that is made of them into another; return the exit status."""
    began = time.monotonic()
    shutil.rmtree(work, ignore_errors=True)
    pages = written_pages()
    for name, text in pages.items():
        file = work / "pages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for picture in pictures():
        file = work / "pages" / place(picture)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, file)
    shutil.copytree(HERE / "iframe-worker", work / "pages" / "assets" / "iframe-worker")
    play.write_files(work / "pages" / "assets" / "play")
    shutil.copyfile(HERE / "steersman.css", work / "pages" / "assets" / "steersman.css")
    settings = (HERE / "zensical.toml").read_text().replace("nav = []", f"nav = {toml(navigation(pages))}")
    (work / "zensical.toml").write_text(settings)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run((zensical, "build", "--strict", "--config-file", work / "zensical.toml"), check=False)
    if built.returncode:
        return built.returncode
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(work / "site", site, ignore=shutil.ignore_patterns(*UNUSED))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{site}: {len(pages)} pages, {size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s")
    return 0


def written_pages() -> dict[str, str]:
    """Return the Markdown of all pages by their place."""
    pages = {place(source): page_text(source) for source in sources()}
    return {
        **pages,
        INDEX: play.with_picture(pages[INDEX]),
        "play.md": play.page(),
        **commands.pages(),
        **policies.pages(),
        "reference/api.md": api.page(),
        "reference/configuration.md": configuration.page(),
        "reference/errors.md": errors.page(),
        "reference/metrics.md": metrics.page(),
    }


def navigation(pages: dict[str, str]) -> list[Nav]:
    """Return the navigation: what each group has, by titles; a group without pages is left out.

    Pages are in the order in which docs/README.md names them, others behind these as they were written.
    """
    order = list(pages)
    contents = [place(file) for file in linked(DOCS / "README.md")]

    def entries(*names: str) -> list[Nav]:
        return [{title_of(pages[name]) or name: name} for name in names]

    def below(folder: str) -> list[Nav]:
        found = [name for name in order if name.startswith(folder) and name.count("/") == folder.count("/")]
        found.sort(key=lambda name: contents.index(name) if name in contents else len(contents))
        first = [name for name in found if name.endswith((f"/{INDEX}", "/README.md"))]
        return [*first, *entries(*(name for name in found if name not in first))]

    groups: list[Nav] = [
        {"Home": [INDEX, *entries("changelog.md", "contributing.md")]},
        {"Play": [name for name in order if name == "play.md"]},
        {"Tutorials": below("tutorials/")},
        {"How-to": [*below("how-to/"), {"Examples": below("examples/")}, {"Manifests": below("deploy/")}]},
        {"Reference": [{"Command line": below("reference/commands/")}, *below("reference/")]},
        {"Policies": below("policies/")},
        {"Explanation": [*below("explanation/"), {"Decisions": below("explanation/decisions/")}]},
        {"Results": ["results.md", *below("results/")]},
    ]
    return [group for group in groups if isinstance(group, dict) and all(group.values())]


def toml(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
