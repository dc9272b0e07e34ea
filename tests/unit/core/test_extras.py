"""What errors tell a user to do can be done."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from steersman.core import errors
from steersman.core.extras import MissingExtraError


def test_missing_extra_error_names_the_checkout() -> None:
    message = str(MissingExtraError("the bound", "report"))
    checkout = Path(__file__).resolve().parents[3]
    assert (
        message == f"the bound needs the extra 'report': make -C {checkout} learn, or pip install '{checkout}[report]'"
    )


@pytest.mark.parametrize(
    ("source", "requirement"),
    [
        ("file:///dist/steersman.whl", "steersman[report] @ file:///dist/steersman.whl"),
        (None, "steersman[report]"),
    ],
)
def test_missing_extra_error_names_where_pip_got_it(
    source: str | None, requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return json.dumps({"url": source}) if source and filename == "direct_url.json" else None

        def locate_file(self, path: object) -> Path:
            return tmp_path

    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "steersman" / "errors.py"))
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    assert str(MissingExtraError("the bound", "report")).endswith(f"pip install '{requirement}'")
