"""Logs on standard error: a log of long-running commands, warnings as lines of the others."""

from __future__ import annotations

import enum
import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.output.display import one_line, say

if TYPE_CHECKING:
    from structlog.typing import EventDict


class LogFormat(enum.StrEnum):
    """Format of log lines."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """Least level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogFormatOption = Annotated[LogFormat, typer.Option(help="Format of the log; auto: text on a terminal, else JSON.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Least level that is logged; debug: every decision.")]


def configure_logs(log_format: LogFormat, level: LogLevel) -> None:
    """Set up the log of this process. Control characters are escaped."""
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
    """Print warnings as lines on standard error, and nothing else, for commands without a log."""
    import structlog

    structlog.configure(
        processors=[_say],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=False,
    )


def _say(_: object, __: str, event: EventDict) -> EventDict:
    from structlog import DropEvent

    message = event.pop("event")
    why = event.pop("error", "")
    details = ", ".join(f"{name} {value}" for name, value in event.items())
    say(one_line(f"warning: {message}" + (f" ({details})" if details else "") + (f": {why}" if why else "")))
    raise DropEvent
