"""A format of workload files is one module and one line of registration, also in an installed package of one's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.errors import raises

from steersman.core.errors import InputError, UsageError
from steersman.workloads.formats.base import WorkloadFormat
from steersman.workloads.formats.openb import embedded
from steersman.workloads.formats.registry import BUILT_IN, WRITTEN, find_format, format_of, formats

LINES = '''
"""A format of one's own: a node or pod a line."""

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.workloads.formats.base import FormatContent, WorkloadFormat


class LinesContent(FormatContent):
    def __init__(self, files):
        self.rows = [line.split() for file in files for line in file.read_text().splitlines()]

    def has_nodes(self):
        return any(row[0] == "node" for row in self.rows)

    def has_pods(self):
        return any(row[0] == "pod" for row in self.rows)

    def nodes(self):
        return [Node(name, int(cpu), 1 << 34) for kind, name, cpu in self.rows if kind == "node"]

    def pods(self, nodes):
        rows = [row for row in self.rows if row[0] == "pod"]
        return [Pod(name, PodClass(Requests(int(cpu), 1 << 20))) for _, name, cpu in rows], None


class Lines(WorkloadFormat):
    name = "lines"
    title = "lines"
    suffixes = (".lines",)

    def open(self, files):
        return LinesContent(files)

    def write(self, workload, folder, losses):
        text = [f"node {node.name} {node.cpu_milli}" for node in workload.nodes]
        text += [f"pod {pod.name} {pod.requests.cpu_milli}" for pod in workload.pods]
        (folder / "all.lines").write_text("\\n".join(text) + "\\n")
'''


def install(folder: Path, value: str = "lines_format:Lines") -> None:
    """What pip leaves of a package with the format."""
    (folder / "lines_format.py").write_text(LINES)
    info = folder / "lines_format-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines-format\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[steersman.formats]\nlines = {value}\n")


def steersman(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "steersman", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_format_of_an_installed_package_is_read_and_written_by_the_command_line(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "mine.lines").write_text("node a 4000\nnode b 8000\npod p 3000\npod q 3000\n")
    done = steersman(
        tmp_path,
        *("simulate", "--nodes", "mine.lines", "--pods", "mine.lines", "--protocol", "arrivals"),
        *("--policy", "most-allocated", "--output", "out"),
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(",")[2:4] for line in (tmp_path / "out" / "placements.csv").read_text().splitlines()[1:]]
    assert sorted(rows) == [["p", "a"], ["q", "b"]]
    for target, files in (("yaml", ["nodes.yaml", "pods.yaml"]), ("lines", ["all.lines"])):
        done = steersman(
            tmp_path,
            *("workload", "convert", "--nodes", "mine.lines", "--pods", "mine.lines", "--to", target),
            *("--output", target),
        )
        assert done.returncode == 0, done.stderr
        assert sorted(each.name for each in (tmp_path / target).iterdir()) == files
    assert (tmp_path / "lines" / "all.lines").read_text() == (tmp_path / "mine.lines").read_text()


def test_unimportable_format_does_not_affect_others(tmp_path: Path) -> None:
    install(tmp_path, "no_such_module:Lines")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,4000,4096,0,\n")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,0,0\n")
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv")
    done = steersman(tmp_path, "workload", "convert", *files, "--to", "yaml", "--output", "yaml")
    assert done.returncode == 0, done.stderr
    done = steersman(tmp_path, "workload", "convert", *files, "--to", "lines", "--output", "lines")
    assert done.returncode == 1
    assert "'lines'" in done.stderr
    assert "no_such_module" in done.stderr
    done = steersman(tmp_path, "workload", "convert", *files, "--to", "toml", "--output", "toml")
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("'toml'", *BUILT_IN, "lines"))
    assert not (tmp_path / "toml").exists()


@pytest.mark.parametrize("name", WRITTEN)
def test_every_format_round_trips(name: str, tmp_path: Path) -> None:
    from steersman.workloads.formats.registry import convert
    from steersman.workloads.loading import load_workload

    workload = embedded("default-small")
    convert(workload, name, tmp_path / name, lossy=True)
    again = load_workload(tmp_path / name, None)
    assert [node.name for node in again.nodes] == [node.name for node in workload.nodes]
    assert len(again.pods) == len(workload.pods)
    assert find_format(name).name == name
    assert name in {each.name for each in formats()}


def test_a_format_that_is_only_read_says_so(tmp_path: Path) -> None:
    from steersman.workloads.formats.registry import convert

    assert {each.name for each in formats() if type(each).write is not WorkloadFormat.write} == set(WRITTEN)
    for name in sorted(set(BUILT_IN) - set(WRITTEN)):
        with raises(UsageError, find_format(name).title):
            convert(embedded("default-small"), name, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_unknown_format_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(InputError) as unknown:
        format_of(tmp_path / "a.txt")
    assert all(each in str(unknown.value) for each in ("a.txt", ".csv", ".yaml", ".json"))
    with pytest.raises(InputError) as header:
        format_of(tmp_path / "a.csv")
    assert (header.value.where, "columns x,y" in str(header.value)) == ("line 1", True)
    with pytest.raises(UsageError):
        find_format("toml")
