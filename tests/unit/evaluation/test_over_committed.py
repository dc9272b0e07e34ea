"""GPUs that are left are those of nodes that have some: what one node lacks is not taken from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.main import main

NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status: {{allocatable: {{cpu: "32", memory: 64Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}}}
---"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{{where} containers: [{{name: c, resources: {{requests: {{cpu: "1"}}, limits: {{nvidia.com/gpu: "{gpus}"}}}}}}]}}
status: {{phase: {phase}}}
---"""


def pod(name: str, gpus: int, node: str = "") -> str:
    where = f"nodeName: {node}," if node else ""
    return POD.format(name=name, gpus=gpus, where=where, phase="Running" if node else "Pending")


@pytest.mark.parametrize(
    ("nodes", "pods", "left"),
    [
        # 12 of the 8 GPUs are requested, on one node; the other's four are free.
        ({"a": 4, "b": 4}, [pod("r1", 4, "a"), pod("r2", 4, "a"), pod("r3", 4, "a"), pod("w", 8)], 4),
        # The same, and one waiting pod takes a GPU of the other node.
        ({"a": 4, "b": 4}, [pod("r1", 4, "a"), pod("r2", 4, "a"), pod("w", 1)], 3),
        # All are taken, and more.
        ({"a": 2, "b": 1}, [pod("r1", 2, "a"), pod("r2", 2, "a"), pod("r3", 1, "b"), pod("w", 4)], 0),
        ({"a": 4, "b": 4}, [pod("r1", 3, "a"), pod("w", 8)], 5),
    ],
)
def test_over_committed_nodes_take_no_gpu_of_others(
    nodes: dict[str, int], pods: list[str], left: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.yaml").write_text("".join(NODE.format(name=name, gpus=gpus) for name, gpus in nodes.items()))
    (tmp_path / "pods.yaml").write_text("".join(pods))
    files = ["--nodes", str(tmp_path / "nodes.yaml"), "--pods", str(tmp_path / "pods.yaml"), "--pinned"]
    options = ["--protocol", "arrivals", "--policy", "fgd", "--seeds", "1", "--output", str(tmp_path / "out")]
    assert main(["evaluate", *files, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "GPUs left" in line)
    row = next(line for line in lines if line.strip().startswith("fgd *"))
    end = header.index("GPUs left") + len("GPUs left")
    assert int(row[:end].split()[-1]) == left, lines
