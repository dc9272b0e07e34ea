"""The servers of the workbench: how each is started, and where it answers."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ADDRESS = "127.0.0.1"
CLUSTER = "workbench"
"""Name of the cluster, for `--name`."""
TUTORIALS = Path(__file__).resolve().parents[4] / "docs" / "tutorials"
"""Folder of the tutorials in a checkout."""
RUNS = "runs"
"""Folder of training runs in the folder of notebooks, which TensorBoard shows."""
NEWS = "@jupyterlab/apputils-extension:announcements"
"""What asks for news and new versions of JupyterLab."""


@dataclass(frozen=True, slots=True)
class LocalService:
    """A server that the workbench starts.

    Attributes:
        name: its name in messages.
        option: option of its port.
        port: its port on 127.0.0.1.
        command: arguments of Python.
        probe: path that answers without a token.
        page: path of its page with the token; "": the server prints its address itself.
        environment: variables that only this server gets.
        note: what a user should know about it.
        folder: its working directory; None: that of the workbench.
    """

    name: str
    option: str
    port: int
    command: Sequence[str]
    probe: str
    page: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    folder: Path | None = None

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

    Args:
        port: its port.
        folder: what it opens.
        scratch: folder of its connection files and of its page's configuration, which end with the workbench.
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
    """Return the environment of the servers: the commands of this Python come first, and kubectl finds the cluster.

    Args:
        kubeconfig: file of the cluster.
    """
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": programs, "KUBECONFIG": kubeconfig, "PYTHONUNBUFFERED": "1"}
