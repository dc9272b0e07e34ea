"""Prometheus and simulated exporters of a local cluster: started as processes of this machine on free ports.

They are stopped with the cluster's servers (`control_plane.servers.stop`), which finds them by their files of ids.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from steersman.core.errors import SteersmanError, UsageError
from steersman.live.local_cluster.control_plane import servers
from steersman.live.local_cluster.control_plane.servers import LOCALHOST
from steersman.live.local_cluster.record import ClusterRecord, folder_of
from steersman.prometheus.configuration import DEFAULT_FEATURES, KIND
from steersman.workloads.generators.latency_settings import (
    ASSUMED_LINK,
    ASSUMED_POD_LINK,
    ASSUMED_SERVICE,
    LatencySettings,
)

PROGRAM = "prometheus"
EXPORTER = "steersman.live.local_cluster.telemetry.exporter"
FOLDER = servers.TELEMETRY
FILE = "telemetry.yaml"  # in the folder of the cluster: what `--telemetry` takes
PROCESSES = ("prometheus", "exporters")
START_SECONDS = 120.0  # the exporters compile their model once for this machine
POLL_SECONDS = 0.1
STALE_SCRAPES, RATE_SCRAPES = 8, 20  # as by default: 2 and 5 minutes with a scrape every 15 seconds
LONGEST_REFRESH = 5.0
NETWORK = "network_received_bytes_per_second"
SCRAPE_INTERVALS = (1.0, 300.0)


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Telemetry of a new cluster: seconds between samples, the model's seed, and its settings that are not defaults."""

    scrape_interval: float = LatencySettings().scrape_interval
    seed: int = 0
    settings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = SCRAPE_INTERVALS
        if not low <= self.scrape_interval <= high:
            raise UsageError(f"--scrape-interval {self.scrape_interval:g}: expected {low:g} to {high:g} seconds")


def find_program() -> str:
    """Return the path of Prometheus. Raises SteersmanError: it is not on the PATH."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise SteersmanError(
            "--telemetry needs Prometheus, and there is no program 'prometheus' on the PATH; 'apt-get install "
            "prometheus' installs it and starts it as a service, too; the program alone, of a release of Prometheus, "
            "in a folder of the PATH is enough"
        )
    return program


def start(cluster_record: ClusterRecord, options: TelemetryOptions) -> None:
    """Start the exporters and Prometheus, and write the file for `--telemetry`."""
    program, folder = find_program(), folder_of(cluster_record.name) / FOLDER
    folder.mkdir(mode=0o700)
    exporters_port, port = servers.free_ports([0, 0])
    exporters = {
        "kubeconfig": cluster_record.kubeconfig,
        "context": cluster_record.context,
        "port": exporters_port,
        "seed": options.seed,
        "settings": {**options.settings, "scrape_interval": options.scrape_interval},
    }
    _write_json(folder / "exporters.json", exporters)
    _write_json(folder / "prometheus.yml", _prometheus_config(exporters_port, options.scrape_interval))
    process = _launch(folder, "exporters", [sys.executable, "-m", EXPORTER, str(folder / "exporters.json")])
    _wait(process, folder, "exporters", f"http://{LOCALHOST}:{exporters_port}/readyz")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=1d",
        f"--web.listen-address={LOCALHOST}:{port}",
        "--log.level=warn",
    ]
    _wait(_launch(folder, "prometheus", command), folder, "prometheus", f"http://{LOCALHOST}:{port}/-/ready")
    _write_json(file_of(cluster_record.name), telemetry_config(port, options.scrape_interval))


def file_of(name: str) -> Path:
    """Return the file for `--telemetry` of a cluster."""
    return folder_of(name) / FILE


def has_telemetry(name: str) -> bool:
    """Return whether a cluster was started with telemetry."""
    return file_of(name).is_file()


def ended(name: str) -> list[str]:
    """Return the processes that should run and do not."""
    return sorted(set(PROCESSES) - servers.running(folder_of(name)).keys()) if has_telemetry(name) else []


def address_of(name: str) -> str:
    """Return the address of a cluster's Prometheus. Raises SteersmanError: its file is damaged."""
    try:
        return str(msgspec.json.decode(file_of(name).read_bytes())["prometheus"]["url"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        raise SteersmanError(f"{file_of(name)}: is damaged") from None


def _prometheus_config(port: int, interval: float) -> dict[str, object]:
    """Scrape each node as a target of its own, so that scrapes are spread over the interval."""
    every = f"{round(1000 * interval)}ms"
    exporters = f"{LOCALHOST}:{port}"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [
            {
                "job_name": "nodes",
                "http_sd_configs": [{"url": f"http://{exporters}/targets", "refresh_interval": "2s"}],
            },
            {"job_name": "cluster", "honor_labels": True, "static_configs": [{"targets": [exporters]}]},
        ],
    }


def telemetry_config(port: int, interval: float) -> dict[str, object]:
    network, window = DEFAULT_FEATURES[NETWORK], f"[{round(1000 * interval * RATE_SCRAPES)}ms]"
    return {
        "apiVersion": "steersman.dev/v1alpha1",
        "kind": KIND,
        "prometheus": {"url": f"http://{LOCALHOST}:{port}"},
        "refreshSeconds": min(interval, LONGEST_REFRESH),
        "maxAgeSeconds": STALE_SCRAPES * interval,
        "cpuWindowSeconds": interval,
        "features": {NETWORK: {"query": network.query.replace("[5m]", window), "sampledAt": network.sampled_at}},
        "assumptions": {
            "serviceMilliseconds": ASSUMED_SERVICE,
            "linkBytesPerSecond": ASSUMED_LINK,
            "podLinkShare": ASSUMED_POD_LINK,
        },
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _launch(folder: Path, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            env=_environment(),
        )
    (folder / f"{name}.pid").write_text(str(process.pid), encoding="ascii")
    return process


def _environment() -> dict[str, str]:
    """Return the environment, in which Python finds the same packages from another folder."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _wait(process: subprocess.Popen[bytes], folder: Path, name: str, url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (OSError, urllib.error.URLError):
            pass
        if process.poll() is not None or time.monotonic() > until:
            raise servers.failure(f"{name} did not start", folder / f"{name}.log", folder.parent)
        time.sleep(POLL_SECONDS)
