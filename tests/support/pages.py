"""Blocks of code on the pages of the documentation, and the commands that a shell would run for them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if ".ipynb_checkpoints" not in page.parts),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
PROGRAMS = (
    "apt-get",
    "cosign",
    "crane",
    "docker",
    "helm",
    "kind",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "make",
    "pip",
    "podman",
    "python",
    "ray",
    "steersman",
    "steersman-kube-scheduler",
    "tensorboard",
)
"""Programs whose calls are recorded, not run. A line of code that begins with one makes its block one of a shell."""
SILENT = ("awk", "cat", "cp", "install", "jq", "openssl", "sed", "sleep")
"""Other programs; they do nothing."""
BESIDE = (*SILENT, "cd", "eval", "export", "for", "source", "while")
"""What such lines may also begin with."""
FOLDERS = [path.relative_to(ROOT) for top in ("deploy", "examples") for path in (ROOT / top).iterdir() if path.is_dir()]
"""Folders of a checkout that blocks go to; they are empty here."""
RECORDS = r"""#!/bin/sh
for word in "${0##*/}" "$@"; do printf "%s\036" "$word"; done >> "$RECORD"
printf "\035" >> "$RECORD"
"""


class Block(NamedTuple):
    """A block of code: its page, its language ("" for an indented one), the number of its first line, and its text."""

    page: Path
    language: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """The page and line for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_shell(self) -> bool:
        """Whether its first line is a command."""
        words = re.sub(r"^(?:[A-Z_]+=\S+ )*", "", self.text.lstrip()).split(maxsplit=1)
        return self.language in ("shell", "bash", "sh") or (
            not self.language and bool(words) and Path(words[0]).name in (*PROGRAMS, *BESIDE)
        )


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of code of a page: fenced ones, and those indented by four spaces after a blank line."""
    lines = [*page.read_text().splitlines(), "", ""]
    is_indented = [line.startswith("    ") for line in lines]
    number = 0
    while number < len(lines) - 1:
        start = number
        if fence := re.match(r"```(\w*)", lines[number]):
            number = lines.index("```", number + 1)
            yield Block(page, fence[1], start + 2, "\n".join(lines[start + 1 : number]))
        elif is_indented[number] and (number == 0 or not lines[number - 1]):
            while is_indented[number] or (not lines[number] and is_indented[number + 1]):
                number += 1
            yield Block(page, "", start + 1, "\n".join(line[4:] for line in lines[start:number]))
        number += 1


@cache
def commands(block: Block) -> tuple[tuple[str, ...], ...]:
    """Return the calls of `PROGRAMS` that bash makes for a block, each with its arguments: loops, braces and all.

    Raises:
        AssertionError: bash finds a mistake, or another program is called.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = folder / "programs"
        programs.mkdir()
        for program in (*PROGRAMS, *SILENT):
            file = programs / program
            file.write_text(RECORDS if program in PROGRAMS else "#!/bin/sh\n")
            file.chmod(0o755)
        for place in FOLDERS:
            (folder / place).mkdir(parents=True)
        for place in (".venv/bin", "build"):
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / place).symlink_to(programs)
        script = re.sub(r"<([a-z-]+)>", r"\1", block.text)
        record = folder / "record"
        record.touch()
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "RECORD": str(record), "HOME": name, "SHELL": "/bin/bash"}
        done = subprocess.run(
            ("bash", "-u", "-c", script),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{block.place}: {done.stderr or done.returncode}"
        calls = record.read_text().split("\035")[:-1]
    return tuple(tuple(call.split("\036")[:-1]) for call in calls)


def calls_of(program: str, pages: Sequence[Path] = PAGES) -> Iterator[tuple[Block, tuple[str, ...]]]:
    """Return every call of a program in the blocks of pages, without its name."""
    for page in pages:
        for block in blocks(page):
            if block.is_shell:
                yield from ((block, call[1:]) for call in commands(block) if call[0] == program)
