"""The servers of the workbench: how each is started and where it answers; they are watched and stopped together."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from steersman.core.errors import SteersmanError
from steersman.core.signals import defer_signals

ADDRESS = "127.0.0.1"
CLUSTER = "workbench"  # name of the cluster, for `--name`
TUTORIALS = Path(__file__).resolve().parents[3] / "docs" / "tutorials"  # folder of the tutorials in a checkout
RUNS = "runs"  # folder of training runs in the folder of notebooks, which TensorBoard shows
NEWS = "@jupyterlab/apputils-extension:announcements"  # what asks for news and new versions of JupyterLab
START_SECONDS = 300.0  # the dashboard may compile kernels first
STOP_SECONDS = 20.0  # time in which a server may end what it started, such as JupyterLab its kernels; then it is killed
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LocalService:
    """A server that the workbench starts."""

    name: str  # its name in messages
    option: str  # option of its port
    port: int  # its port on 127.0.0.1
    command: Sequence[str]  # arguments of Python
    probe: str  # path that answers without a token
    page: str = ""  # path of its page with the token; "": the server prints its address itself
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that only this server gets
    note: str = ""  # what a user should know about it
    folder: Path | None = None  # its working directory; None: that of the workbench

    @property
    def base(self) -> str:
        """Return its address without a path."""
        return f"http://{ADDRESS}:{self.port}"


def default_folder() -> Path:
    """Return the folder of the tutorials in a checkout, else the working directory."""
    return TUTORIALS if TUTORIALS.is_dir() else Path.cwd()


def jupyterlab(port: int, folder: Path, scratch: Path) -> LocalService:
    """Return JupyterLab with a random token, which is in its environment and not in its arguments.

    Nothing is asked of other hosts: neither news (nor whether news are wanted), nor new versions, nor extensions.
    """
    token = secrets.token_urlsafe(24)
    command = ["-m", "jupyterlab", "--no-browser", f"--ServerApp.ip={ADDRESS}", f"--ServerApp.port={port}"]
    # Tutorials link to pages beside their folder, which JupyterLab opens only below its root.
    root = TUTORIALS.parent if folder == TUTORIALS else folder
    command += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}", f"--ServerApp.preferred_dir={folder}"]
    command += ["--LabApp.extension_manager=readonly"]
    # A login shell, which is the default without a terminal, would forget where this Python's commands are.
    command += [f"--ServerApp.terminado_settings={json.dumps({'shell_command': [os.environ.get('SHELL', 'sh')]})}"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    page = scratch / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": {NEWS: True}}), encoding="utf-8")
    configuration = os.pathsep.join(filter(None, (str(scratch), os.environ.get("JUPYTER_CONFIG_PATH"))))
    environment = {
        "JUPYTER_TOKEN": token,
        "JUPYTER_RUNTIME_DIR": str(scratch),
        "JUPYTER_CONFIG_PATH": configuration,
    }
    return LocalService(
        "JupyterLab", "--jupyter-port", port, command, "/api", f"/lab?token={token}", environment, folder=folder
    )


def tensorboard(port: int, folder: Path) -> LocalService:
    """Return TensorBoard on the training runs of a folder of notebooks."""
    command = ["-m", "tensorboard.main", f"--logdir={folder / RUNS}", f"--host={ADDRESS}", f"--port={port}"]
    command += ["--load_fast=false", "--reload_interval=5"]  # no data server of its own
    note = "has no token: whoever uses this machine can read it"
    return LocalService("TensorBoard", "--tensorboard-port", port, command, "/", "/", note=note)


def dashboard(port: int) -> LocalService:
    """Return the dashboard: the cluster as it is, and two policies on simulated runs."""
    command = ["-m", "steersman", "dashboard", "--port", str(port), "--no-open", "--live"]
    command += ["--workload", "default-small", "--policy", "kube-default", "steersman"]
    return LocalService("dashboard", "--dashboard-port", port, command, "/readyz")


def environment_of(kubeconfig: str) -> dict[str, str]:
    """Return the environment of the servers: the commands of this Python come first, and kubectl finds the cluster."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": programs, "KUBECONFIG": kubeconfig, "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class StartedService:
    """A server that was started."""

    service: LocalService  # what it is
    # Its process, which leads a session of its own: Ctrl-C in a terminal reaches the workbench alone
    process: subprocess.Popen[bytes]
    log: Path  # file with everything that it prints

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
    """Return a port that is free: the given one, or any if it is 0."""
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
    """Run servers in the block; they answer when it begins, and are gone when it has ended."""
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
