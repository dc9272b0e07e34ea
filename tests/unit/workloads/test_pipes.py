"""Files of nodes and pods by their content: pipes, the standard input, and names without a known suffix."""

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.errors import raises

import steersman
from steersman.core.errors import InputError
from steersman.workloads.formats.registry import format_of
from steersman.workloads.loading import load_nodes, load_workload

NODE = """{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-0"},
 "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}}"""
POD = """{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p-0"},
 "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}"""
CONTENTS = {
    "yaml": "# a comment\n\nkind: Node\napiVersion: v1\nmetadata: {name: n-0}\nstatus: {allocatable: {cpu: 8}}\n",
    "openb": "sn,cpu_milli,memory_mib,gpu,model\nn-0,8000,4096,0,\n",
    "jobs": "submit;duration;cpu\n0;1-02:00:00;1\n",
    "swf": "1 0 3 60 4 -1 -1 4 600 -1 1 1 1 -1 1 -1 -1 -1\n",
}


def through(text: str) -> Path:
    """A pipe that holds the text, as `<(command)` of a shell names it."""
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    return Path(f"/dev/fd/{reader}")


def command(text: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steersman", *arguments],
        cwd=folder,
        env=os.environ,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pipe_holds_nodes_and_pods() -> None:
    both = through(f"{NODE}\n{POD}")
    workload = load_workload(both, both)
    assert ([node.name for node in workload.nodes], [pod.name for pod in workload.pods]) == (["n-0"], ["p-0"])
    assert workload.name == both.name
    assert load_workload(both, None).pods == workload.pods
    array = through(f"[{NODE}, {POD}]")
    assert steersman.load_workload(array).nodes == workload.nodes


def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "cluster"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(f"[{NODE}, {POD}]".encode()),))
    writer.start()
    workload = load_workload(pipe, pipe)
    writer.join()
    assert (len(workload.nodes), len(workload.pods), workload.name) == (1, 1, "cluster")


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("name", ["nodes", "nodes.txt", "nodes.csv.bak"])
def test_a_file_without_a_known_suffix_is_recognised(kind: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    for content in (CONTENTS[kind].encode(), gzip.compress(CONTENTS[kind].encode()), CONTENTS[kind].encode("utf-16")):
        file.write_bytes(content)
        assert format_of(file).name == kind
    assert format_of(through(CONTENTS[kind])).name == kind
    if kind in ("yaml", "openb"):
        assert [node.name for node in load_nodes(file)] == ["n-0"]


def test_unknown_content_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("dear diary\n")
    with raises(InputError, "no format has its content"):
        format_of(tmp_path / "diary")
    (tmp_path / "x").write_bytes(b"\x7fELF\xff\xfe")
    with raises(InputError, "is not UTF-8 text"):
        load_nodes(tmp_path / "x")
    (tmp_path / "nothing").write_text("")
    with raises(InputError, "is empty"):
        load_nodes(tmp_path / "nothing")


def test_commands_read_the_standard_input(tmp_path: Path) -> None:
    arguments = ("--protocol", "arrivals", "--policy", "kube-default", "--output")
    for i, options in enumerate((("--nodes", "-", "--pods", "-"), ("--pods", "/dev/stdin"))):
        done = command(f"{NODE}\n{POD}", "simulate", *options, *arguments, str(i), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        placed = (tmp_path / str(i) / "placements.csv").read_text().splitlines()
        assert placed[1].split(",")[2:4] == ["p-0", "n-0"]
    done = command("", "simulate", "--nodes", "-", "--pods", "-", *arguments, "none", folder=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "error: /dev/stdin: is empty")
    (tmp_path / "cluster").write_text(NODE + POD.replace("p-0", "old"))
    for pod, text in (("-", POD), ("/dev/stdin", f"[{POD}]")):
        done = command(text, "wait", "--pods", "cluster", "--pod", pod, "--rollouts", "1", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "p-0" in done.stdout
