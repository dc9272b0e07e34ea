"""The shells that source what steersman prints."""

from __future__ import annotations

import enum
import os
from pathlib import Path


class Shell(enum.StrEnum):
    """Shell of the user."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def current_shell() -> Shell:
    """Return the shell of $SHELL; bash, whose syntax others share, if it is none of those known here."""
    name = Path(os.environ.get("SHELL", "")).name
    return Shell(name) if name in set(Shell) else Shell.BASH
