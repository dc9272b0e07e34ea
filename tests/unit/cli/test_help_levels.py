"""--help of commands with many options shows a dozen of them, and --help-all every one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from steersman.cli import main as cli
from steersman.cli.options.common import BRIEF

MANY = 26
MOST_SHOWN = 13


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    for name, each in (below or {}).items():
        yield from leaves(each, (*path, name))


TREE = dict(leaves(typer.main.get_command(cli.app)))
LONG = {path: command for path, command in TREE.items() if len(command.params) >= MANY}
every_long = pytest.mark.parametrize("path", LONG, ids=" ".join)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


def test_commands_with_many_options_have_a_brief_help() -> None:
    assert sorted(path[-1] for path in LONG) == sorted(BRIEF)
    assert sum(command.name in BRIEF for command in TREE.values()) == len(BRIEF), "no other command has such a name"


@every_long
def test_brief_help_has_declared_and_required_options(path: tuple[str, ...]) -> None:
    parameters = {each.name: each for each in LONG[path].params}
    listed = BRIEF[path[-1]].split()
    assert set(listed) <= parameters.keys()
    assert len(listed) == len(set(listed)) <= MOST_SHOWN
    assert {name for name, each in parameters.items() if each.required} <= set(listed)


@every_long
def test_brief_help_ends_with_help_all(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    listed, parameters = BRIEF[path[-1]].split(), LONG[path].params
    whole, brief = shown(capsys, *path, "--help-all"), shown(capsys, *path, "--help")
    options = [line.strip("│ *").split()[0].partition(",")[0] for line in brief.splitlines() if "│" in line]
    seen = {option for option in options if option.startswith("--")}
    assert seen == {"--help", *(each.opts[0] for each in parameters if each.name in listed)}
    assert brief.strip().splitlines()[-1].strip() == (f"--help-all shows {len(parameters) - len(listed)} more options.")
    assert brief == shown(capsys, *path, "-h")
    assert all(f" {each.opts[0]}" in whole for each in parameters)
    assert "more options" not in whole
    texts = [each.help.split(" [default")[0][:40] for each in parameters if each.name in listed]
    assert all(text in whole and text in brief for text in texts), "the texts are the same"


def test_other_commands_have_one_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help-all" not in shown(capsys, "simulate", "--help")
    assert cli.main(["simulate", "--help-all"]) == 2
