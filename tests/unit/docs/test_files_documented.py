"""docs/reference/files.md names the columns and metrics that are written: all of them, and no others."""

import re
from pathlib import Path

import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.envs.latency import LatencyOptions
from steersman.evaluation import results
from steersman.evaluation.criteria import parse_objectives
from steersman.evaluation.generated import run_generated
from steersman.simulation.run import Simulator
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.workload import Workload

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "files.md"


def documented(title: str) -> list[str]:
    """The names in the first cells of the tables of a section, in order."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([a-z0-9_]+)`", cell)]


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        (results.RESULTS, results.RESULTS_COLUMNS),
        (results.METRICS, results.METRICS_COLUMNS),
        (results.SUMMARY, results.SUMMARY_COLUMNS),
        (results.PARTS, results.PARTS_COLUMNS),
        (results.PLACEMENTS, results.PLACEMENTS_COLUMNS),
    ],
)
def test_documented_columns_match_written_ones(file: str, columns: tuple[str, ...]) -> None:
    assert documented(file) == list(columns)


def test_documented_timeline_columns_match_written_ones() -> None:
    names = documented(results.TIMELINE)
    for protocol, other in (("inflation", "pods_waiting"), ("timed", "pods_failed")):
        assert [name for name in names if name != other] == results.timeline_columns(protocol)  # type: ignore[arg-type]


def test_every_result_file_is_documented() -> None:
    text = PAGE.read_text()
    for file in results.COMMANDS:
        assert f"`{file}`" in text or file == results.TRAINED, file


def test_documented_metrics_match_written_ones() -> None:
    cpu = PodClass(Requests(1000, 0, gpu_count=1, gpu_milli=500))
    pods = tuple(Pod(f"p{i}", cpu, creation_time=i, deletion_time=i + 50) for i in range(20))
    workload = Workload("w", (Node("n", 64000, 1 << 40, gpu_count=2, gpu_model="A"),), pods)
    runs = [
        Simulator(workload).run("fgd", protocol=protocol, load=load)  # type: ignore[arg-type]
        for protocol, load in (("inflation", None), ("arrivals", None), ("timed", None), ("timed", 0.9))
    ]
    runs.append(Simulator(workload).run("fgd+shortest", protocol="timed"))
    small = LatencyOptions(settings=LatencySettings(nodes=3, pods=20, warmup=0.0))
    runs.append(run_generated(small, "p0", 1, parse_objectives(["latency-aware"])))
    written = dict.fromkeys(metric.name for run in runs for metric in run.metrics)
    assert sorted(documented("Metrics")) == sorted(written)
