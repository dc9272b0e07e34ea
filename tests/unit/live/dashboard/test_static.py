"""Files of the dashboard's pages: how much a browser loads, and where vendored code comes from."""

from __future__ import annotations

import gzip
from pathlib import Path

import steersman

STATIC = Path(steersman.__file__).parent / "live" / "dashboard" / "static"
MOST_BYTES = 500_000


def test_all_pages_together_are_small() -> None:
    files = [file for file in STATIC.glob("*/*") if file.suffix in (".js", ".css", ".html")]
    assert {"main.js", "uPlot.esm.js", "style.css"} <= {file.name for file in files}
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < MOST_BYTES


def test_vendored_code_has_its_licence_and_its_version() -> None:
    assert "(MIT Licensed)" in (STATIC / "uplot" / "uPlot.esm.js").read_text()
    assert "Permission is hereby granted" in (STATIC / "uplot" / "LICENSE").read_text()
    version = (STATIC / "uplot" / "README.md").read_text().split("\n")[0].split()[-1]
    assert f"(v{version})" in (STATIC / "uplot" / "uPlot.esm.js").read_text()[:400]
