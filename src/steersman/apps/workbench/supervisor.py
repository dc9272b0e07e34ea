"""Start servers as child processes, watch them, and stop all of them together."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from steersman.apps.workbench.services import ADDRESS, LocalService
from steersman.core.errors import SteersmanError
from steersman.core.signals import defer_signals

START_SECONDS = 300.0
"""The dashboard may compile kernels first."""
STOP_SECONDS = 20.0
"""Time in which a server may end what it started, such as JupyterLab its kernels; then it is killed."""
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StartedService:
    """A server that was started.

    Attributes:
        service: what it is.
        process: its process, which leads a session of its own: Ctrl-C in a terminal reaches the workbench alone.
        log: file with everything that it prints.
    """

    service: LocalService
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Check that it runs. Raises SteersmanError: it has ended; the message has the end of its log."""
        if (status := self.process.poll()) is not None:
            lines = [line.strip() for line in self._text().splitlines() if line.strip()]
            said = lines[-1] if lines else "it printed nothing"
            raise SteersmanError(f"{self.service.name} ended with exit status {status}: {said}")

    def wait(self) -> None:
        """Wait until it answers. Raises SteersmanError: it ended, or does not answer in time."""
        until = time.monotonic() + START_SECONDS
        while not _answers(self.service.base + self.service.probe):
            self.check()
            if time.monotonic() > until:
                raise SteersmanError(f"{self.service.name} does not answer at {self.service.base}")
            time.sleep(POLL_SECONDS)

    @property
    def address(self) -> str:
        """Return the address of its page, with its token."""
        if self.service.page:
            return self.service.base + self.service.page
        printed = re.search(rf"{re.escape(self.service.base)}/\S*", self._text())
        return printed.group() if printed else self.service.base

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def choose_port(option: str, port: int) -> int:
    """Return a port that is free: the given one, or any if it is 0.

    Raises:
        SteersmanError: the port is in use; the message names its option.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have just ended do not count
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SteersmanError(f"{option} {port}: {reason}; give another port, or 0 for a free one") from None
        return int(probe.getsockname()[1])


@contextmanager
def running(
    services: Sequence[LocalService], logs: Path, environment: Mapping[str, str]
) -> Iterator[list[StartedService]]:
    """Run servers in the block; they answer when it begins, and are gone when it has ended.

    Args:
        services: the servers.
        logs: folder of a log file for each.
        environment: variables that all of them get.

    Raises:
        SteersmanError: one did not start.
    """
    with ExitStack() as stack:
        started: list[StartedService] = []
        stack.callback(_stop, started)
        for service in services:
            with defer_signals():
                started.append(_start(service, logs / f"{service.name}.log", environment))
        for each in started:
            each.wait()
        yield started


def watch(started: Sequence[StartedService]) -> None:
    """Wait until a signal raises KeyboardInterrupt. Raises SteersmanError: a server has ended."""
    while True:
        for each in started:
            each.check()
        time.sleep(POLL_SECONDS)


def _start(service: LocalService, log: Path, environment: Mapping[str, str]) -> StartedService:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *service.command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**environment, **service.environment},
            cwd=service.folder,
            start_new_session=True,
        )
    return StartedService(service, process, log)


def _stop(started: Sequence[StartedService]) -> None:
    with defer_signals():
        for each in started:
            each.process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for each in started:
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(max(0.0, until - time.monotonic()))
            with suppress(ProcessLookupError):
                # Also after it has ended: kernels and terminals that it started are in its session.
                os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
