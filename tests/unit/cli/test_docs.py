"""`steersman docs`: the site of the wheel or of the checkout, or one line that says how to build it."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.commands import terminal as command
from steersman.cli.main import main


def test_a_checkout_without_a_site_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "checkout_of_this", lambda: tmp_path)
    assert main(["docs"]) == 1
    said = capsys.readouterr()
    page = tmp_path / "build" / "site" / "index.html"
    assert said.err == f"error: {page}: there is no documentation; make -C {tmp_path} site builds it\n"
    assert said.out == ""


@pytest.mark.parametrize("installed", [False, True])
def test_its_first_page_is_opened_and_printed(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = list[str]()
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    monkeypatch.setattr(command, "checkout_of_this", lambda: None if installed else tmp_path)
    monkeypatch.setattr(command.resources, "files", lambda _: tmp_path / "build")
    page = tmp_path / "build" / "site" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<h1>steersman</h1>")
    assert main(["docs", "--no-open"]) == 0
    assert opened == []
    assert main(["docs"]) == 0
    assert opened == [page.as_uri()]
    assert capsys.readouterr().out == f"{page}\n{page}\n"
