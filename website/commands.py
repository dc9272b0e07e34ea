"""Reference of the command line, a page for each command, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from steersman.cli.main import app

EXAMPLE = re.compile(r"\*\*(.+?)\*\*: ((?:[A-Z_]+=\S+ )?(?:steersman |eval ).+)")
"""An example in a help text."""


def pages() -> dict[str, str]:
    """Return the pages: of all commands, and of each with its subcommands."""
    tree: Any = typer.main.get_command(app)
    result = {}
    rows = list[str]()
    for name, command in sorted(tree.commands.items()):
        leaves = list(_leaves(command, (name,)))
        result[f"reference/commands/{name}.md"] = "\n\n".join(
            (f"# steersman {name}", _help(command), *(_section(path, leaf) for path, leaf in leaves if path != (name,)))
            if len(leaves) > 1
            else (f"# steersman {name}", _usage(*leaves[0]))
        )
        rows.append(f"| [`steersman {name}`]({name}.md) | {_summary(command)} |")
    table = "\n".join(("| command | what it does |", "| --- | --- |", *rows))
    exits = "The exit status is in [Errors](../errors.md). `--help` of any command shows what is here."
    result["reference/commands/index.md"] = f"# Command line\n\n{_help(tree)}\n\n{table}\n\n{exits}\n"
    return {place: f"{text.rstrip()}\n" for place, text in result.items()}


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Commands that run, with their words."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        yield from _leaves(each, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    return f"## steersman {' '.join(path)}\n\n{_usage(path, command)}"


def _usage(path: tuple[str, ...], command: Any) -> str:
    """Return help, the line of its use and the table of parameters of a command."""
    context = typer.Context(command, info_name=f"steersman {' '.join(path)}")
    usage = " ".join(("steersman", *path, *command.collect_usage_pieces(context)))
    arguments = [row for each in command.params if not each.opts[0].startswith("-") if (row := _row(each, context))]
    options = [row for each in command.params if each.opts[0].startswith("-") if (row := _row(each, context))]
    parts = [_help(command), f"```text\n{usage}\n```"]
    for title, rows in (("argument", arguments), ("option", options)):
        if rows:
            parts.append("\n".join((f"| {title} | meaning |", "| --- | --- |", *rows)))
    return "\n\n".join(parts)


def _row(parameter: Any, context: Any) -> str:
    """Return the row of a parameter; "" if it is hidden."""
    record = parameter.get_help_record(context)
    if record is None:
        return ""
    names, meaning = record
    return f"| `{re.sub(' <str>$', '', names.strip())}` | {_cell(meaning) or ' '} |"


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _help(command: Any) -> str:
    """Return the help of a command as Markdown; an example (`**Title**: steersman ...`) is code."""
    parts = list[str]()
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        example = EXAMPLE.fullmatch(" ".join(paragraph.split()))
        parts.append(f"{example[1]}:\n\n```shell\n{example[2]}\n```" if example else _escaped(paragraph))
    return "\n\n".join(parts)


def _summary(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return _cell(_help(command).split("\n\n")[0])


def _escaped(text: str) -> str:
    r"""Return text without what would be read as marks: `\[` of rich, tags, and options of two hyphens."""
    text = text.replace("\\[", "[").replace("<", "&lt;")
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*)(?![`\w])", r"`\1`", text)
