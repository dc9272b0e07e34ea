"""Colours on a terminal, and none with NO_COLOR: help, tables and logs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tests.unit.live.top.test_top import NODES, node, running_double

COLOUR = re.compile(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[\d;]*)?m")
"""An escape sequence that sets a colour of text or background; bold and dim text is none."""
WIDTH = {"TERM": "xterm-256color", "COLUMNS": "100"}

HELP = "from steersman.cli.main import main; main(['policy', 'show', '--help-all'])"
TABLE = (
    "from rich.table import Table; from steersman.cli.output.display import print_table\n"
    "table = Table('Node'); table.add_row('n1', style='red'); print_table(table)"
)
LOG = (
    "import structlog; from steersman.cli.output.logs import LogFormat, LogLevel, configure_logs\n"
    "configure_logs(LogFormat.AUTO, LogLevel.INFO); structlog.get_logger('x').warning('bound', pod='p1')"
)
PROGRESS = (
    "import time; from steersman.cli.output.display import Progress\n"
    "with Progress('simulating') as bar:\n    bar.update(1, 2); bar._show(); bar.update(2, 2); time.sleep(0.2)"
)
every_output = pytest.mark.parametrize(
    ("program", "word"),
    [(HELP, "POLICY"), (TABLE, "n1"), (LOG, "bound"), (PROGRESS, "simulating")],
    ids=["help", "table", "log", "progress"],
)


def on_terminal(program: str, until: str = "", **variables: str) -> str:
    """Return what a program writes to a terminal that is its standard output and error; `q` is typed after a text."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=follower, stdout=follower, stderr=follower, env=kept | WIDTH | variables
    ):
        os.close(follower)
        parts = []
        while True:
            try:
                parts.append(os.read(leader, 4096))
            except OSError:  # the program has ended
                break
            if until and until.encode() in b"".join(parts):
                os.write(leader, b"q")
                until = ""
    os.close(leader)
    return b"".join(parts).decode()


def in_pipe(program: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    done = subprocess.run(
        [sys.executable, "-c", program], env=kept | WIDTH | variables, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


@every_output
def test_terminal_has_colours_unless_disabled(program: str, word: str) -> None:
    shown, plain = on_terminal(program), on_terminal(program, NO_COLOR="1")
    assert word in shown
    assert word in plain
    assert COLOUR.search(shown)
    assert not COLOUR.search(plain), plain


def test_top_honours_disabled_colours(tmp_path: Path) -> None:
    with running_double(tmp_path) as (double, kubeconfig):
        double.put(NODES, node("n1", gpus=4))
        top = f"from steersman.cli.main import main; main(['top', '--kubeconfig', '{kubeconfig}'])"
        assert COLOUR.search(on_terminal(top, until="n1"))
        assert not COLOUR.search(on_terminal(top, until="n1", NO_COLOR="1"))


def test_empty_no_color_is_ignored() -> None:
    assert COLOUR.search(on_terminal(LOG, NO_COLOR=""))


@pytest.mark.parametrize("program", [HELP, TABLE, LOG], ids=["help", "table", "log"])
def test_output_to_a_pipe_has_no_colours(program: str) -> None:
    assert "\x1b" not in in_pipe(program)


@pytest.mark.parametrize("program", [HELP, TABLE], ids=["help", "table"])
def test_colours_can_be_forced_without_a_terminal(program: str) -> None:
    assert COLOUR.search(in_pipe(program, FORCE_COLOR="1"))
    assert not COLOUR.search(in_pipe(program, FORCE_COLOR="1", NO_COLOR="1"))
