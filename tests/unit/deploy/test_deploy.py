"""The image of `deploy/Containerfile` is of this version."""

from __future__ import annotations

from pathlib import Path

import steersman

CONTAINERFILE = Path(__file__).parents[3] / "deploy" / "Containerfile"


def test_image_has_this_version() -> None:
    assert f"steersman:{steersman.__version__}" in CONTAINERFILE.read_text()
