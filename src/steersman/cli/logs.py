"""What is logged, on standard error: of commands that run for long a log, of the others warnings as lines."""

from __future__ import annotations

import enum
import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.display import one_line, say

if TYPE_CHECKING:
    from structlog.typing import EventDict


class LogFormat(enum.StrEnum):
    """How a line of the log looks."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """The least that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogFormatOption = Annotated[LogFormat, typer.Option(help="Of the log; auto: text on a terminal, else JSON.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="The least that is logged; debug: every decision.")]


def configure_logs(log_format: LogFormat, level: LogLevel) -> None:
    """Set up the log of this process. Control characters in what is logged are escaped."""
    import structlog

    terminal = sys.stderr.isatty()
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and terminal)
    renderer: Any = structlog.dev.ConsoleRenderer(colors=terminal) if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.value.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def say_warnings() -> None:
    """For commands without a log: a warning is one line on standard error, and nothing is told of the rest."""
    import structlog

    structlog.configure(
        processors=[_say],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=False,
    )


def _say(_: object, __: str, event: EventDict) -> EventDict:
    from structlog import DropEvent

    said = event.pop("event")
    why = event.pop("error", "")
    details = ", ".join(f"{name} {value}" for name, value in event.items())
    say(one_line(f"warning: {said}" + (f" ({details})" if details else "") + (f": {why}" if why else "")))
    raise DropEvent
