"""Logs on standard error and in a file: a log of long-running commands, warnings as lines of the others."""

from __future__ import annotations

import enum
import logging
import os
import sys
import weakref
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.common import advanced_path
from steersman.cli.options.declaring import advanced
from steersman.cli.output.display import mirror_lines, one_line, say
from steersman.core.errors import UsageError
from steersman.core.redaction import redact
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

LOG_FILE_BYTES, LOG_FILES_KEPT = 10 << 20, 5  # size at which a log file becomes FILE.1; number of those
ROTATION_HELP = (
    f"It is continued; at {LOG_FILE_BYTES >> 20} MiB it is renamed to FILE.1, and {LOG_FILES_KEPT} such files are kept."
)


class LogFormat(enum.StrEnum):
    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


MessagesFileOption = Annotated[
    Path | None, advanced_path(f"Write messages and progress to this file, too, as JSON lines. {ROTATION_HELP}")
]


def check_log_file(file: Path | None) -> None:
    """Check before anything starts that a log file can be written; nothing is left behind. Raises UsageError."""
    if file is None:
        return
    check_writable("--log-file", file)
    if file.exists():
        if not file.is_file():
            raise UsageError(f"--log-file {file}: is not a file; expected a new or regular file")
        try:
            file.open("ab").close()
        except OSError as error:
            raise UsageError(f"--log-file {file}: cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of the log, as background processes get them, too."""

    log_format: LogFormat = advanced("Format of the log; auto: text on a terminal, else JSON.", default=LogFormat.AUTO)
    log_level: LogLevel = advanced("Least level that is logged; debug: every decision.", default=LogLevel.INFO)
    log_file: Path | None = advanced_path(
        f"Write the log to this file, too: JSON lines, or text with --log-format text. {ROTATION_HELP}"
    )

    def check(self) -> None:
        check_log_file(self.log_file)

    def of_process(self, name: str) -> LogOptions:
        """Return the options of a background process, with a file of its own: `s.log` is `s.fit.log` for `fit`."""
        file = self.log_file
        return self if file is None else replace(self, log_file=file.with_name(f"{file.stem}.{name}{file.suffix}"))

    def configure(self) -> None:
        configure_logs(self.log_format, self.log_level, self.log_file)

    def configure_process(self, name: str) -> None:
        """Configure the log in a background process; one that observes what another one watches logs errors alone."""
        from steersman.live.learner.processes import OBSERVE

        (LogOptions(self.log_format, LogLevel.ERROR) if name == OBSERVE else self.of_process(name)).configure()


class LogFile:
    """A log file that is rotated by size; a failure to write is said once and ends nothing."""

    def __init__(self, file: Path) -> None:
        check_log_file(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._handler = _Handler(file, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--log-file {file}: cannot be written: {error.strerror}") from None
        # Closes the file when the log is configured again, and when Python ends.
        weakref.finalize(self, self._handler.close)

    def write(self, line: str) -> None:
        self._handler.handle(logging.makeLogRecord({"msg": line}))

    def copying(self, renderer: Any) -> Processor:
        """Return a processor that writes events to the file, rendered, and passes them on."""

        def write(logger: Any, method: str, event: EventDict) -> EventDict:
            # A copy, since renderers take the fields out of the event.
            self.write(str(renderer(logger, method, dict(event))))
            return event

        return write

    def write_message(self, message: str) -> None:
        import json

        level, colon, text = message.partition(": ")
        # `say` gets levels as the beginning of the text.
        known = bool(colon) and level in ("warning", "error")
        stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        event = {"event": text if known else message, "level": level if known else "info", "timestamp": stamp}
        self.write(json.dumps(event, ensure_ascii=False))


class _Handler(RotatingFileHandler):
    has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not self.has_failed:
            self.has_failed = True
            message = f"warning: the log file {self.baseFilename} cannot be written: {sys.exc_info()[1]}"
            # Not `say`, which would write to this file again.
            print(one_line(message), file=sys.stderr, flush=True)


def log_messages(file: Path | None) -> None:
    """Write what this command says to a file, too, for commands without a log. Raises UsageError: it is unusable."""
    if file is not None:
        mirror_lines(LogFile(file).write_message)


def configure_logs(log_format: LogFormat, level: LogLevel, file: Path | None = None) -> None:
    """Set up the log of this process. Control characters are escaped."""
    import structlog

    terminal = sys.stderr.isatty()
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and terminal)
    colours = terminal and not os.environ.get("NO_COLOR")
    renderer: Any = structlog.dev.ConsoleRenderer(colors=colours) if text else structlog.processors.JSONRenderer()
    as_text = log_format is LogFormat.TEXT
    in_file: Any = structlog.dev.ConsoleRenderer(colors=False) if as_text else structlog.processors.JSONRenderer()
    copies = [] if file is None else [LogFile(file).copying(in_file)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Before `_redacted`: a traceback may have secrets, too.
            structlog.processors.format_exc_info,
            _redacted,
            *copies,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.value.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        # A cached logger keeps the configuration of its first use.
        cache_logger_on_first_use=False,
    )


def _redacted(_: object, __: str, event: EventDict) -> EventDict:
    return {name: redact(value) if isinstance(value, str) else value for name, value in event.items()}


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
