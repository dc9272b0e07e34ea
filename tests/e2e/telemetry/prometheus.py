"""Debian's Prometheus and node-exporter as real telemetry: fetched once, started on free ports, stopped by their ids.

Nodes of a test's cluster do not exist, so one exporter shows what a file for each of them says (its textfile collector,
with an `instance` of the node's name); another one shows the machine that the test runs on.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from steersman.core.cache import cache_root

PACKAGES = ("prometheus", "prometheus-node-exporter")
SCRAPE_SECONDS = 1
WRITE_SECONDS = 0.5


def programs() -> Path:
    """The folder with Debian's programs, in the user's cache by their versions: unpacked, not installed."""
    for own in (False, True):  # the machine's lists of packages; where they are missing or too old, lists of our own
        with tempfile.TemporaryDirectory() as folder:
            options = _lists(Path(folder)) if own else []
            versions = _versions(options)
            home = cache_root() / "debian" / "_".join(versions).replace("/", "-").replace(":", "-")
            if versions and (home.is_dir() or _fetch(options, home)):
                return home / "usr" / "bin"
    raise AssertionError("apt-get download prometheus prometheus-node-exporter does not work here")


def _lists(folder: Path) -> list[str]:
    """Options of apt for fresh lists in a folder."""
    for name in ("lists", "archives"):
        (folder / name / "partial").mkdir(parents=True)
    options = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}"]
    _run("apt-get", *options, "update")
    return options


def _fetch(options: list[str], home: Path) -> bool:
    """Download and unpack the packages; whether they are to be had."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        command = ["apt-get", *options, "download", *PACKAGES]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300).returncode:
            return False
        unpacked = Path(folder) / "unpacked"
        for package in Path(folder).glob("*.deb"):
            _run("dpkg", "-x", str(package), str(unpacked))
        with suppress(OSError):  # another process was faster
            unpacked.rename(home)
    return True


def _versions(options: list[str]) -> list[str]:
    """Of the packages that would be fetched; nothing where they are not known."""
    command = ["apt-cache", *options, "show", "--no-all-versions", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line.removeprefix("Version: ") for line in done.stdout.splitlines() if line.startswith("Version: ")]
    return found if len(found) == len(PACKAGES) else []


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Node:
    """What a node's exporter shows. Counters grow as these say, from when they are first written.

    Attributes:
        cpu: share of CPU used.
        connections: established TCP connections.
        network: received bytes a second.
        memory: bytes available.
        filesystem: share used.
        latency: milliseconds by users.
        series: further series with their values.
        there: whether it is scraped at all.
    """

    cpu: float = 0.1
    connections: float = 10.0
    network: float = 1e6
    memory: float = 8e9
    filesystem: float = 0.2
    latency: dict[str, float] = field(default_factory=dict)
    series: dict[str, float] = field(default_factory=dict)
    there: bool = True
    idle_seconds: float = 0.0
    received: float = 0.0

    def lines(self, name: str, passed: float) -> str:
        self.idle_seconds += passed * (1.0 - self.cpu)
        self.received += passed * self.network
        values = {
            'node_cpu_seconds_total{instance="%s",cpu="0",mode="idle"}': self.idle_seconds,
            'node_network_receive_bytes_total{instance="%s",device="eth0"}': self.received,
            'node_netstat_Tcp_CurrEstab{instance="%s"}': self.connections,
            'node_memory_MemAvailable_bytes{instance="%s"}': self.memory,
            'node_filesystem_avail_bytes{instance="%s",mountpoint="/"}': 1e11 * (1.0 - self.filesystem),
            'node_filesystem_size_bytes{instance="%s",mountpoint="/"}': 1e11,
        }
        for user, milliseconds in self.latency.items():
            values[f'steersman_probe_latency_milliseconds{{instance="%s",user="{user}"}}'] = milliseconds
        text = "".join(f"{key % name} {value}\n" for key, value in values.items())
        return text + "".join(f"{key} {value}\n" for key, value in self.series.items())


@dataclass
class Telemetry:
    """Prometheus and its exporters at work; what `nodes` says is shown within a second."""

    bin: Path
    folder: Path
    nodes: dict[str, Node]
    port: int
    exporter: int
    targets: dict[str, int]
    """Ports of what is scraped besides, by the node that it stands for."""
    prometheus: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self, passed: float) -> None:
        """Show what the nodes are like."""
        texts = self.folder / "texts"
        lines: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            if node.there:
                for line in node.lines(name, passed).splitlines():
                    lines.setdefault(line.partition("{")[0], []).append(line)
        written = texts / "nodes.tmp"
        written.write_text("".join(f"{line}\n" for group in lines.values() for line in group))
        written.rename(texts / "nodes.prom")

    def start(self, *options: str) -> None:
        """Start Prometheus, with whatever data it had."""
        command = [
            self.bin / "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=error",
            *options,
        ]
        with (self.folder / "prometheus.log").open("ab") as log:
            self.prometheus = subprocess.Popen(command, stdout=log, stderr=log, env=_environment())
        wait_for(f"{self.url}/-/ready")

    def ask(self, query: str) -> dict[str, float]:
        """What a query gives, by instance."""
        path = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{path}", timeout=10) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return {each["metric"].get("instance", ""): float(each["value"][1]) for each in found}

    def kill(self) -> None:
        """Prometheus is gone."""
        if self.prometheus is not None:
            self.prometheus.kill()
            self.prometheus.wait()
            self.prometheus = None

    def remember(self, samples: dict[str, float], age: float) -> None:
        """Put samples of series into the data of a Prometheus that does not run, as if taken so many seconds ago."""
        file = self.folder / "samples.txt"
        taken = time.time() - age
        kinds = {name.partition("{")[0] for name in samples}
        lines = [f"# TYPE {kind} gauge" for kind in sorted(kinds)]
        lines += [f"{name} {value} {taken:.3f}" for name, value in samples.items()]
        file.write_text("\n".join([*lines, "# EOF", ""]))
        _run(
            str(self.bin / "promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            str(file),
            str(self.folder / "data"),
        )

    def configuration(self, **changes: object) -> str:
        """YAML for `--telemetry`; JSON is YAML."""
        return json.dumps(
            {
                "apiVersion": "steersman.dev/v1alpha1",
                "kind": "TelemetryConfiguration",
                "prometheus": {"url": self.url, "timeoutSeconds": 2},
                "refreshSeconds": 1,
            }
            | changes
        )

    def _configure(self) -> None:
        nodes = {"job_name": "nodes", "honor_labels": True}
        nodes["static_configs"] = [{"targets": [f"127.0.0.1:{self.exporter}"]}]
        others = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": node}} for node, port in self.targets.items()
        ]
        every = f"{SCRAPE_SECONDS}s"
        content = {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": [nodes, {"job_name": "others", "static_configs": others}],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(content))


def _environment() -> dict[str, str]:
    return os.environ | {"GOMAXPROCS": "1"}


def wait_for(url: str, seconds: float = 60.0) -> None:
    """Wait until something answers there."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.1)


@contextmanager
def telemetry(
    folder: Path, nodes: dict[str, Node], machine: str = "", targets: dict[str, int] | None = None
) -> Iterator[Telemetry]:
    """Real telemetry of nodes that are as a test says.

    Args:
        folder: that does not exist yet.
        nodes: by name.
        machine: the name of a node that shows this machine; "": there is none.
        targets: ports of what is scraped besides, by the node that it stands for.
    """
    (folder / "texts").mkdir(parents=True)
    home, over = programs(), threading.Event()
    made = Telemetry(home, folder, nodes, free_port(), free_port(), dict(targets or {}))
    exporter = home / "prometheus-node-exporter"
    files = [
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={folder / 'texts'}",
    ]
    exporters = {made.exporter: files}
    if machine:
        made.targets[machine] = free_port()
        exporters[made.targets[machine]] = []
    commands = [
        [exporter, "--log.level=error", f"--web.listen-address=127.0.0.1:{port}", *options]
        for port, options in exporters.items()
    ]

    def write() -> None:
        last = time.monotonic()
        while not over.wait(WRITE_SECONDS):
            now = time.monotonic()
            made.write(now - last)
            last = now

    made.write(0.0)
    made._configure()
    writer, running = threading.Thread(target=write), []
    with (folder / "exporters.log").open("wb") as log:
        try:
            running = [subprocess.Popen(each, stdout=log, stderr=log, env=_environment()) for each in commands]
            writer.start()
            made.start()
            yield made
        finally:
            over.set()
            made.kill()
            for process in running:
                with suppress(ProcessLookupError):
                    process.kill()
                process.wait()
            if writer.ident is not None:
                writer.join()
