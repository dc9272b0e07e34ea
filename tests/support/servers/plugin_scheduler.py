"""kube-scheduler with the plugins of `plugin/`, built once into the user's cache folder, and started on a cluster."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import until
from tests.support.kubernetes import minor

from steersman.core.cache import cache_root
from steersman.core.errors import SteersmanError
from steersman.live.local_cluster.control_plane.build import (
    Module,
    build_tags,
    built,
    mod_file,
    version_flags,
    version_of,
)

SOURCES = Path(__file__).resolve().parents[3] / "plugin"
PROGRAM = "kube-scheduler"
SCHEDULER = "plugged"
"""The name of the profile, which pods ask for."""

Settings = Mapping[str, Any]


def plugged_scheduler() -> Path:
    """The program, for the minor of `tests.support.kubernetes`. Raises SteersmanError: it could not be built."""
    module = Module(
        SOURCES,
        f"kube-scheduler {minor()} with plugins",
        "a minute beside a control plane, else 4",
        "kube-scheduler with steersman's plugins needs Go 1.26 or newer to be built",
        version_flags(version_of(minor())),
        lambda part: part,
        tests=False,
        mod_file=mod_file(SOURCES, minor()),
        tags=build_tags(SOURCES, minor()),
    )
    return built(module, cache_root().absolute() / "plugin" / minor(), lambda *_: None, print) / PROGRAM


@pytest.fixture(scope="session")
def scheduler_program() -> Path:
    """kube-scheduler with steersman's plugins."""
    try:
        return plugged_scheduler()
    except SteersmanError as error:
        pytest.fail(str(error))


def profile(
    args: Settings | None, *plugins: str, weight: int = 1, alone: bool = False, name: str = SCHEDULER
) -> dict[str, Any]:
    """A profile of a KubeSchedulerConfiguration.

    Args:
        args: of the plugin `Steersman`, None: it is not used. Without a timeout a pod waits for two seconds, so that a
            busy machine changes no decision.
        plugins: further ones of ours to be used.
        weight: of the scores of `Steersman`.
        alone: whether nobody else scores.
        name: of the profile.
    """
    ours: list[dict[str, Any]] = [{"name": "Steersman", "weight": weight}] if args is not None else []
    enabled: dict[str, Any] = {"multiPoint": {"enabled": [*ours, *({"name": each} for each in plugins)]}}
    if alone:
        enabled["score"] = {"disabled": [{"name": "*"}], "enabled": ours}
        enabled["preScore"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Steersman"}]}
    found: dict[str, Any] = {"schedulerName": name, "plugins": enabled}
    if args is not None:
        found["pluginConfig"] = [{"name": "Steersman", "args": {"timeout": "2s", **args}}]
    return found


def configuration(kubeconfig: Path, profiles: Sequence[Settings], **more: Any) -> dict[str, Any]:
    """A KubeSchedulerConfiguration for a scheduler that is alone on a local cluster."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 10000, "burst": 10000},
        "profiles": list(profiles),
        **more,
    }


@dataclass
class Scheduler:
    """A scheduler at work.

    Attributes:
        process: it.
        port: of its probes and metrics, by TLS.
        log_file: what it says.
    """

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def get(self, path: str) -> str:
        """What it answers. Raises OSError: nothing, yet."""
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(f"https://127.0.0.1:{self.port}/{path}", timeout=10, context=anyone) as answer:
            return str(answer.read().decode())

    def ready(self) -> bool:
        """Whether it is at work, or has ended."""
        try:
            return self.process.poll() is not None or self.get("readyz").startswith("ok")
        except OSError:
            return False

    def metrics(self, name: str) -> dict[str, float]:
        """The values of a metric of the plugin by its labels but the profile: `outcome="scored"`."""
        found = {}
        pattern = rf"^steersman_plugin_{name}(?:\{{(.*)\}})? (\S+)$"
        for labels, value in re.findall(pattern, self.get("metrics"), re.MULTILINE):
            kept = [each for each in labels.split(",") if not each.startswith("profile=")]
            found[",".join(kept)] = float(value)
        return found

    def count(self, name: str, label: str = "") -> float:
        """One value of `metrics`, 0: it is not there."""
        return self.metrics(name).get(label, 0.0)


@contextmanager
def plugged(program: Path, folder: Path, settings: Settings, *arguments: str) -> Iterator[Scheduler]:
    """Run the scheduler; yields when it is at work.

    Args:
        program: see `scheduler_program`.
        folder: for its settings and log.
        settings: a `configuration`.
        arguments: further ones.
    """
    number = len(list(folder.glob("scheduler-*.json")))
    configured, log = folder / f"scheduler-{number}.json", folder / f"scheduler-{number}.log"
    configured.write_text(json.dumps(settings))
    port = free_port()
    command: list[str | Path] = [
        program,
        f"--config={configured}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}",
        # Whoever is on this machine may read probes and metrics: the tests.
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        *arguments,
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    running = Scheduler(process, port, log)
    try:
        until(running.ready, 60)
        assert process.poll() is None, running.log()
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
