"""A command that is asked to end while it works on large files ends soon, and says so in one line."""

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.large_files import objects, table

pytestmark = pytest.mark.integration

NODES, PODS = 5_000, 20_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 20,000 distinct pods and 5,000 nodes: `w.json`, `w.yaml` and `nodes.csv` with `pods.csv`."""
    folder = tmp_path_factory.mktemp("large")
    found = objects(PODS, NODES)
    (folder / "w.json").write_text(json.dumps(found))
    # Lines of flow mappings: written at once, and read as any other YAML.
    items = "".join(f"- {json.dumps(each)}\n" for each in found["items"])
    (folder / "w.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    (folder / "pods.csv").write_text(table(PODS))
    nodes = "\n".join(f"n{i},64000,262144,{2 * (i % 5)},T4" for i in range(NODES))
    (folder / "nodes.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}\n")
    return folder


CSV = "--nodes nodes.csv --pods pods.csv"
JSON, YAML = (f"--nodes w.{suffix} --pods w.{suffix}" for suffix in ("json", "yaml"))
COMMANDS = {
    f"workload convert {YAML} --to openb --lossy --output out": (2.5,),
    f"evaluate {JSON} --policy fgd steersman --seeds 1 --protocol arrivals --jobs 1 --output out": (2.0, 6.0),
    f"simulate {CSV} --policy steersman --protocol arrivals --output out": (3.0, 5.0),
    f"fit policy {CSV} --policy steersman --output out.safetensors": (4.0,),
    f"fit policy {JSON} --output out.safetensors": (6.0,),
    f"explain {JSON} --pod p19999 --policy steersman": (5.0,),
    "train --nodes nodes.csv --workload pods.csv --algorithm evolution --output out": (5.0,),
}
"""Commands that work on the large files, and after how many seconds of CPU they are asked to end."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process: a clock is that of a machine that may be busy with other tests."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("command", "after", "number"),
    [  # some by Ctrl-C, some by kill
        (command, after, number)
        for (command, moments), number in zip(
            COMMANDS.items(), itertools.cycle((signal.SIGINT, signal.SIGTERM)), strict=False
        )
        for after in moments
    ],
)
def test_interrupted_command_ends_soon_with_large_files(
    command: str, after: float, number: signal.Signals, files: Path, tmp_path: Path
) -> None:
    for each in files.iterdir():
        (tmp_path / each.name).symlink_to(each)
    arguments = [sys.executable, "-m", "steersman", *command.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        arguments,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    ) as process:
        while (worked := cpu_seconds(process.pid)) < after:
            assert process.poll() is None, "it ended before it was asked to"
            time.sleep(0.01)
        former = resource.getrusage(resource.RUSAGE_CHILDREN)
        process.send_signal(number)
        said = process.communicate(timeout=120)[1]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.ru_utime + ended.ru_stime - former.ru_utime - former.ru_stime - worked < 2
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in said
    assert not {path.name for path in tmp_path.iterdir()} - {path.name for path in files.iterdir()}
