"""Options of comparisons: where their results go, and how they are computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.cli.options.common import Format, FormatOption, Jobs, Output
from steersman.cli.output.logs import MessagesFileOption


@dataclass(frozen=True, slots=True)
class Results:
    """Where results go, and how many processes compute them; a report does not record these: they change no result."""

    output: Output = Path("comparison")
    jobs: Jobs = None
    output_format: FormatOption = Format.TABLE
    log_file: MessagesFileOption = None
