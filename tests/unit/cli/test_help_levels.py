"""--help of every command fits one screen, and --help-all has every parameter with its whole text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from steersman.cli import main as cli
from steersman.cli.options.common import first_sentence

MOST_LINES = 45


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    for name, each in (below or {}).items():
        yield from leaves(each, (*path, name))


TREE = dict(leaves(typer.main.get_command(cli.app)))
every_command = pytest.mark.parametrize("path", TREE, ids=" ".join)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@every_command
def test_help_fits_one_screen(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, *path, "--help")
    lines = text.rstrip().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == f"More options: steersman {' '.join(path)} --help-all"
    assert "**" not in text
    assert text == shown(capsys, *path, "-h")
    options = lines[lines.index("Options:") :]
    named = {word.strip(",") for line in options if line.startswith("  -") for word in line[2:].split("  ")[0].split()}
    for each in TREE[path].params:
        if each.param_type_name == "option" and not each.hidden:
            assert (each.opts[0] in named) == bool(each.required or not each.rich_help_panel), each.name


@every_command
def test_help_all_lists_every_parameter(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    text = shown(capsys, *path, "--help-all")
    flat = "".join(text.replace("│", " ").split())
    for each in TREE[path].params:
        assert each.param_type_name == "argument" or each.opts[0] in text
        assert "".join((each.help or "").replace("**", "").split()) in flat, each.name
    assert "More options: " not in text


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("One. Two.", "One."),
        ("One; two. [default: 3]", "One [default: 3]"),
        ("Such as e.g. this.", "Such as e.g. this."),
        ("Up to this, ... or that. More.", "Up to this, ... or that."),
        ("A [default: 1]; b [default: 2]", "A [default: 2]"),
    ],
)
def test_brief_help_is_the_first_sentence_and_the_default(text: str, brief: str) -> None:
    assert first_sentence(text) == brief
