"""Options of comparisons: where their results go, and how they are computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from steersman.cli.options.common import EngineOption, Format, FormatOption, Jobs, Output
from steersman.cli.options.declaring import option
from steersman.cli.output.logs import MessagesFileOption
from steersman.core.engines import Engine


@dataclass(frozen=True, slots=True)
class Results:
    """Where results go, and how many processes compute them; a report does not record these: they change no result."""

    output: Output = Path("comparison")
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    output_format: FormatOption = Format.TABLE
    log_file: MessagesFileOption = None
    resume: Annotated[
        bool,
        option(
            "Continue the interrupted comparison in --output by its own options; its finished runs are not done again.",
            "--resume",
        ),
    ] = False
