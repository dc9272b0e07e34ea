"""What several processes compute is what one computes, for learned policies of every view and in every protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.networks import network_file

from steersman.cli.main import main
from steersman.policies.features import CLUSTER, GPU, TELEMETRY, View

pytestmark = pytest.mark.integration

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},32000,131072,4,V100M32\n" for i in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
PODS += "".join(
    f"p{i},3000,4096,{i % 3},{1000 * (i % 3 > 0)},,LS,Running,{10 * i},{10 * i + 600},0\n" for i in range(30)
)
FILES = "--nodes nodes.csv --pods pods.csv"


@pytest.mark.parametrize(
    ("scene", "views"),
    [
        (f"{FILES} --protocol inflation", (CLUSTER, GPU, TELEMETRY)),
        (f"{FILES} --protocol arrivals", (GPU, TELEMETRY)),
        (f"{FILES} --protocol timed --load 1.1", (CLUSTER, TELEMETRY)),
        ("--protocol deployments", (CLUSTER, TELEMETRY)),
        ("--protocol latency", (TELEMETRY,)),
    ],
)
def test_learned_policies_decide_alike_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: str, views: tuple[View, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("pods.csv").write_text(PODS)
    policies = [network_file(tmp_path, view) for view in views]
    for jobs in "12":
        command = f"evaluate {scene} --seeds 2 --jobs {jobs} --output jobs-{jobs} --policy".split()
        assert main([*command, "kube-default", *policies]) == 0
    for name in ("metrics.csv", "summary.csv", "results.csv"):
        assert (tmp_path / "jobs-1" / name).read_bytes() == (tmp_path / "jobs-2" / name).read_bytes(), name
