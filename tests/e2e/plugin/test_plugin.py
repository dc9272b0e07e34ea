"""kube-scheduler with the plugin `Steersman` in a real cluster: the policy decides, and never costs a pod its node."""

import gzip
import json
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, pod, pods
from tests.support.servers.plugin_scheduler import (
    SCHEDULER,
    Scheduler,
    configuration,
    free_port,
    plugged,
    profile,
    scheduler_program,
)

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

VECTORS = Path(__file__).resolve().parents[2] / "contract/data"
GPU_SHARE = "SteersmanGpuShare"
COUNT, MILLI, INDEX = (f"alibabacloud.com/gpu-{each}" for each in ("count", "milli", "index"))


def prepared(name: str = "steersman-default") -> bytes:
    """A policy file with a workload profile."""
    return gzip.decompress((VECTORS / f"{name}.safetensors.gz").read_bytes())


def ten_pods(cluster: LocalCluster, name: str = "web", annotations: dict[str, str] | None = None) -> None:
    """Create ten pods and wait until they are bound."""
    create(cluster, *(pod(f"{name}-{i}", annotations=annotations, schedulerName=SCHEDULER) for i in range(10)))
    until(lambda: sum(each.startswith(name) for each in bound(cluster)) == 10)


@pytest.mark.minors
def test_ten_pods_are_bound_to_the_policy_choice(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    settings = configuration(cluster.kubeconfig, [profile({"policy": "best-fit"}, alone=True)])
    with plugged(scheduler_program, tmp_path, settings) as scheduler:
        ten_pods(cluster)
        assert len(set(bound(cluster).values())) == 1
        assert scheduler.metrics("decisions_total") == {'outcome="scored"': 10}
        until(lambda: scheduler.metrics("agreement_total") == {'agrees="true"': 10})


def test_missing_policy_file_leaves_decisions_to_other_plugins(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    settings = configuration(cluster.kubeconfig, [profile({"policyFile": str(tmp_path / "none.safetensors")})])
    with plugged(scheduler_program, tmp_path, settings) as scheduler:
        ten_pods(cluster)
        assert len(set(bound(cluster).values())) == 10  # kube-scheduler's default spreads them
        assert scheduler.metrics("unscored_total") == {'reason="no-policy"': 10}
        assert scheduler.metrics("policy_reads_total") == {'result="loaded"': 0, 'result="refused"': 1}
        assert scheduler.log().count("The policy file cannot be used") == 1


def test_policy_file_may_appear_change_and_break_at_runtime(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policy.safetensors"
    settings = configuration(cluster.kubeconfig, [profile({"policyFile": str(file)})])
    whole = prepared()
    older = whole.replace(b'\\"schema\\":1', b'\\"schema\\":9', 1)
    assert older != whole
    with plugged(scheduler_program, tmp_path, settings) as scheduler:
        steps = (
            ("comes", whole, "loaded", 1),
            ("truncated", whole[: len(whole) // 2], "refused", 2),
            ("older", older, "refused", 3),
            ("replaced", prepared("mlp"), "loaded", 2),
        )
        ten_pods(cluster, "none")
        for name, content, result, times in steps:
            file.write_bytes(content)
            until(partial(read, scheduler, result, times))
            ten_pods(cluster, name)
        assert scheduler.metrics("unscored_total") == {'reason="no-policy"': 10}
        assert scheduler.metrics("decisions_total") == {'outcome="neutral"': 10, 'outcome="scored"': 40}
        assert scheduler.metrics("policy_loaded") == {"": 1}
        assert scheduler.log().count("the previous policy stays in use") == 2


def read(scheduler: Scheduler, result: str, times: int) -> bool:
    """Whether a policy file was read so often with a result."""
    return scheduler.count("policy_reads_total", f'result="{result}"') == times


@pytest.mark.minors
def test_shares_of_gpus_get_devices_that_have_room(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(prepared())
    names = [f"gpus-{i}" for i in range(3)]
    create(cluster, *(gpu_node(name) for name in names))
    try:
        args = {"policyFile": str(file), "policy": "fgd"}
        sharing = profile(args, GPU_SHARE, weight=100)
        sharing["plugins"]["bind"] = {"enabled": [{"name": GPU_SHARE}]}
        with plugged(scheduler_program, tmp_path, configuration(cluster.kubeconfig, [sharing])) as scheduler:
            wish = {COUNT: "1", MILLI: "470"}
            create(cluster, *(pod(f"share-{i}", annotations=wish, schedulerName=SCHEDULER) for i in range(14)))
            until(lambda: len(bound(cluster)) == 12)  # two on each of six devices
            used: Counter[tuple[str, str]] = Counter()
            for each in pods(cluster).values():
                if each["spec"].get("nodeName"):
                    device = each["metadata"]["annotations"][INDEX]
                    assert device in "01"
                    used[each["spec"]["nodeName"], device] += 470
            assert set(used.values()) == {940}
            assert set(scheduler.metrics("decisions_total")) <= {'outcome="scored"'}
    finally:
        cluster.must("cluster", "clean", "--name", cluster.name)
        cluster.kubectl("delete", "node", *names)


def gpu_node(name: str) -> dict[str, Any]:
    """A KWOK node with two devices."""
    resources = {"cpu": "32", "memory": "64Gi", "pods": "110", COUNT: "2", MILLI: "2000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": resources, "capacity": resources},
    }


def test_shadow_reports_and_binds_nothing(cluster: LocalCluster, scheduler_program: Path, tmp_path: Path) -> None:
    settings = configuration(cluster.kubeconfig, [profile({"mode": "shadow", "policy": "best-fit"}, alone=True)])
    with plugged(scheduler_program, tmp_path, settings) as scheduler:
        ten_pods(cluster)
        assert scheduler.metrics("unscored_total") == {'reason="shadow"': 10}
        until(lambda: sum(scheduler.metrics("agreement_total").values()) == 10)
        lines = [line for line in scheduler.log().splitlines() if "Shadow decision" in line]
        assert len(lines) == 10
        agrees = scheduler.count("agreement_total", 'agrees="true"')
        assert sum("agrees=true" in line for line in lines) == agrees
        where = bound(cluster)
        for line in lines:
            said = dict(part.split("=", 1) for part in line.split() if "=" in part)
            node = where[said["pod"].strip('"').removeprefix("default/")]
            assert said["node"].strip('"') == node
            assert (said["wanted"].strip('"') == node) == (said["agrees"] == "true")


def test_missing_service_blocks_no_pod(cluster: LocalCluster, scheduler_program: Path, tmp_path: Path) -> None:
    args = {
        "mode": "service",
        "endpoint": f"http://127.0.0.1:{free_port()}",
        "breaker": {"failures": 3, "open": "1h"},
    }
    with plugged(scheduler_program, tmp_path, configuration(cluster.kubeconfig, [profile(args)])) as scheduler:
        ten_pods(cluster)
        assert scheduler.metrics("unscored_total") == {'reason="failed"': 3, 'reason="breaker"': 7}
        until(lambda: scheduler.count("breaker_state", 'breaker="scores",state="open"') == 1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"policyfile": "p"}, 'unknown field "policyfile"'),
        (
            {"policy": "best-fit", "timeout": "soon"},
            'args.timeout: "soon" is not a duration; expected one such as 50ms or 10s',
        ),
        (
            {"policy": "fgd"},
            'args.policyFile: is missing; policy "fgd" needs the workload profile of a prepared policy file',
        ),
    ],
)
def test_invalid_args_error_names_the_field(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, args: dict[str, str], says: str
) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps(configuration(cluster.kubeconfig, [profile(args)])))
    command = [scheduler_program, f"--config={file}", "--secure-port=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert [line for line in done.stderr.replace('\\"', '"').splitlines() if says in line], done.stderr
    assert "goroutine" not in done.stderr
