"""Reference of errors: what the exit status means, and the form of messages, from the classes of errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

from steersman.cli import main
from steersman.core import errors
from steersman.core.extras import MissingExtraError

ROOT = Path(__file__).parents[1]
TEXTS = ROOT / "tests" / "data" / "error_texts.json"
EXAMPLES = 12
"""Messages of each kind on the page."""
KINDS = (
    ("A wrong option or argument", r"^(--|policy|unknown)"),
    ("Wrong content of a file", r"^[\w./-]+\.(csv|json|yaml|safetensors|npz), "),
    ("Something that is not installed", r"needs the extra"),
)
"""Titles of the examples, and what their messages match."""


def page() -> str:
    """Return the page."""
    status = " ".join((main.__doc__ or "").split("\n\n")[1].split())
    texts = sorted({text for several in json.loads(TEXTS.read_text()).values() for text in several})
    parts = [
        "# Errors",
        "An error is one line on standard error. It names the file, the line and the field, or the option, and says "
        "what would be right; nothing is written. A message that begins with `this is a bug in steersman` is one: "
        f"`{main.TRACEBACK}=1` in the environment shows where.",
        f"## Exit status\n\n{status}",
        "| class | exit status | meaning |\n| --- | ---: | --- |\n"
        + "\n".join(
            f"| `{each.__name__}` | {each.exit_status} | {_summary(each)} |"
            for each in (errors.SteersmanError, errors.UsageError, errors.InputError, MissingExtraError)
        ),
        "In Python these are exceptions of `steersman.core.errors` and `steersman.core.extras`, all of them a "
        "`SteersmanError`.",
        "## Examples",
        f"Whole texts that the tests check, {EXAMPLES} of each kind at most.",
    ]
    for title, pattern in KINDS:
        matching = [text for text in texts if re.search(pattern, text) and "TMP" not in text and len(text) < 200]
        chosen = matching[:: max(1, len(matching) // EXAMPLES)][:EXAMPLES]
        parts.append(f"### {title}\n\n```text\n" + "\n".join(chosen) + "\n```")
    return "\n\n".join(parts) + "\n"


def _summary(error: type[Exception]) -> str:
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())
