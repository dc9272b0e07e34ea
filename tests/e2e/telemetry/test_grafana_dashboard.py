"""Every query of the chart's Grafana dashboard has an answer in a Prometheus that scrapes all components."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, create, pod, scheduling
from tests.e2e.service.test_service import started
from tests.e2e.telemetry.prometheus import Node, free_port, programs, telemetry, wait_for
from tests.support.chart.helm import CHART
from tests.support.servers.plugin_scheduler import SCHEDULER, configuration, plugged, profile, scheduler_program

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

BOARD = CHART / "files" / "dashboards" / "steersman.json"
WINDOW = "15s"
WITHOUT_FAULTS = ("steersman_bind_errors_total", "steersman_service_neutral_total", "steersman_plugin_unscored_total")
"""Counters that have no series until something fails."""


def queries() -> list[str]:
    """The dashboard's queries, with the values that Grafana would put in."""
    panels = json.loads(BOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", WINDOW).replace("$namespace", "steersman") for each in found]


def port_of(running: Running) -> int:
    return next(int(line["port"]) for line in running.log() if line["event"] == "listening")


@contextmanager
def scraping(folder: Path, targets: dict[str, tuple[str, int]]) -> Iterator[str]:
    """Run a Prometheus that scrapes by scheme and port, with labels as the operator adds them; its address."""
    jobs = [
        {
            "job_name": name,
            "scheme": scheme,
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "steersman", "pod": f"{name}-0"}}
            ],
        }
        for name, (scheme, port) in targets.items()
    ]
    (folder / "prometheus.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    port = free_port()
    command = [programs() / "prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/-/ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def values(address: str, query: str) -> list[float]:
    """The finite values that a query has now."""
    path = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{address}/api/v1/query?{path}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
    return [value for each in found if math.isfinite(value := float(each["value"][1]))]


def test_each_query_has_an_answer(cluster: LocalCluster, scheduler_program: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("scheduler", "service", "plugin", "prometheus")]
    for folder in folders:
        folder.mkdir()
    expected = [each for each in queries() if not any(name in each for name in WITHOUT_FAULTS)]
    nodes = {name: Node() for name in cluster.node_names()}
    with (
        telemetry(tmp_path / "telemetry", nodes) as measured,
        started(cluster, folders[1], "--name", cluster.name, "--policy", "fgd") as service,
    ):
        (tmp_path / "telemetry.yaml").write_text(measured.configuration())
        asked = {"mode": "service", "endpoint": f"http://127.0.0.1:{port_of(service)}", "timeout": "5s"}
        settings = configuration(cluster.kubeconfig, [profile(asked)])
        options = ("--policy", "fgd", "--telemetry", str(tmp_path / "telemetry.yaml"))
        with (
            scheduling(cluster, folders[0], *options) as scheduler,
            plugged(scheduler_program, folders[2], settings) as plugin,
        ):
            targets = {
                "steersman": ("http", port_of(scheduler)),
                "steersman-service": ("http", port_of(service)),
                "steersman-plugin": ("https", plugin.port),
            }
            with scraping(folders[3], targets) as address:
                numbers, left = itertools.count(), list(expected)

                def all_answered() -> bool:
                    number = next(numbers)
                    create(
                        cluster,
                        pod(f"ours-{number}", "10m"),
                        pod(f"plugged-{number}", "10m", schedulerName=SCHEDULER),
                    )
                    left[:] = [each for each in left if not values(address, each)]
                    return not left

                try:
                    until(all_answered, 60)
                except AssertionError:
                    pytest.fail("no answer: " + "; ".join(left))
                for query in queries():
                    if query not in expected:
                        assert all(value == 0 for value in values(address, query)), query
