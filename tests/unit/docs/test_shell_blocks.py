"""Blocks of a shell on pages: bash runs them, and every call of steersman and make that it makes is a right one."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from tests.support.pages import PAGES, ROOT, Block, blocks, calls_of, commands
from tests.unit.docs.test_features import parse
from tests.unit.docs.test_places import make_targets

from steersman.core.errors import SteersmanError

NO_COMMANDS = {
    "docs/explanation/architecture.md": 2,  # the layers
    "docs/how-to/compare.md": 2,  # sentences of an outcome and of an account
    "docs/how-to/kube-scheduler.md": 1,  # a table of a terminal
    "docs/how-to/operate.md": 1,  # lines of a log
    "docs/reference/files.md": 1,  # a file of a run, read by pandas
    "deploy/kube-scheduler/README.md": 1,  # a line of a log
}
"""Indented blocks that are no commands, by page."""
page_of = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_non_command_blocks_are_listed() -> None:
    others = [block for page in PAGES for block in blocks(page) if not block.language and not block.is_shell]
    assert {
        page: sum(str(each.page.relative_to(ROOT)) == page for each in others) for page in NO_COMMANDS
    } == NO_COMMANDS
    assert len(others) == sum(NO_COMMANDS.values()), [each.place for each in others]


@page_of
def test_steersman_calls_parse(page: Path) -> None:
    for block, words in calls_of("steersman", [page]):
        try:
            parse(words)
        except (typer.TyperException, SteersmanError, AssertionError) as error:
            raise AssertionError(f"{block.place}: steersman {' '.join(words)}: {error}") from error


@page_of
def test_make_targets_exist(page: Path) -> None:
    targets = {word for _, words in calls_of("make", [page]) for word in words if word[0] != "-" and "=" not in word}
    assert not targets - make_targets()


def test_blocks_are_expanded_by_bash() -> None:
    page = ROOT / "README.md"
    text = "for a in x y; do steersman train --output $a-{1,2} \\\n  --seed 1; done  # twice\nmake site | jq ."
    assert commands(Block(page, "", 1, text)) == (
        ("steersman", "train", "--output", "x-1", "x-2", "--seed", "1"),
        ("steersman", "train", "--output", "y-1", "y-2", "--seed", "1"),
        ("make", "site"),
    )
    for wrong in ("steersman top |", "echo $undefined", "no-such-program"):
        with pytest.raises(AssertionError, match=r"README\.md:1"):
            commands(Block(page, "", 1, wrong))
