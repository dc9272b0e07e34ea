"""What files state and other tests do not have: gangs of Kubernetes itself, nominated nodes, finished Jobs, HAMi."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from steersman.cli.main import main
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods, Workload

NODES = """
apiVersion: v1
kind: Node
metadata: {name: a, labels: {zone: za}}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {zone: zb}}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
"""
CONTAINERS = "containers: [{name: c, resources: {requests: {cpu: '1'}}}]"


def load(folder: Path, text: str, **further: Any) -> Workload:
    (folder / "cluster.yaml").write_text(NODES + text)
    return load_workload(folder / "cluster.yaml", folder / "cluster.yaml", **further)


def group(spec: str, version: str = "v1beta1") -> str:
    return f"""
apiVersion: scheduling.k8s.io/{version}
kind: PodGroup
metadata: {{name: ring}}
spec: {spec}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  parallelism: 4
  completions: 4
  template: {{spec: {{schedulingGroup: {{podGroupName: ring}}, {CONTAINERS}}}}}
"""


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ("{schedulingPolicy: {gang: {minCount: 3}}}", 3),
        ("{schedulingPolicy: {basic: {}}}", 1),
        ("{schedulingPolicy: {gang: {minCount: 4}}, schedulingConstraints: {topology: [{key: zone}]}}", 4),
    ],
)
@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_scheduling_group_is_the_gang_of_its_pod_group(spec: str, minimum: int, version: str, tmp_path: Path) -> None:
    workload = load(tmp_path, group(spec, version))
    assert [(pod.gang, pod.gang_minimum) for pod in workload.pods] == [("ring", minimum)] * 4
    constraints = "cluster.yaml: spec.schedulingConstraints is not modelled and has no effect (PodGroup ring)"
    named = [each for each in workload.warnings if "not modelled" in each]
    assert [each.rpartition("/")[2] for each in named] == ([constraints] if "topology" in spec else [])


def test_scheduling_group_without_its_pod_group_is_named(tmp_path: Path) -> None:
    objects = group("{schedulingPolicy: {gang: {minCount: 3}}}").replace("name: ring", "name: other", 1)
    workload = load(tmp_path, objects)
    assert {pod.gang for pod in workload.pods} == {""}
    unmodelled = "spec.template.spec.schedulingGroup is not modelled and has no effect (Job train)"
    assert any(unmodelled in each for each in workload.warnings)


NOMINATED = f"""
apiVersion: v1
kind: Pod
metadata: {{name: runs, uid: r}}
spec: {{nodeName: a, {CONTAINERS}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: waits, uid: w}}
spec: {{{CONTAINERS}}}
status: {{nominatedNodeName: b}}
"""


@pytest.mark.parametrize("running", RunningPods)
def test_nominated_node_counts_or_is_named(running: RunningPods, tmp_path: Path) -> None:
    workload = load(tmp_path, NOMINATED, running=running)
    named = [each for each in workload.warnings if "nominatedNodeName" in each]
    counts = running in (RunningPods.FROM_NOW, RunningPods.PINNED, RunningPods.AS_WRITTEN)
    assert len(named) == (not counts)
    assert all(each.endswith("unless running pods stay (--from-now, --pinned): default/waits") for each in named)


def job(name: str, spec: str, status: str) -> str:
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, uid: {name}, creationTimestamp: "2026-03-01T10:00:00Z"}}
spec: {{{spec}, template: {{spec: {{priorityClassName: high, {CONTAINERS}}}}}}}
status: {{startTime: "2026-03-01T10:01:00Z", {status}}}
---
"""


COMPLETE = 'completionTime: "2026-03-01T10:31:00Z", conditions: [{type: Complete, status: "True"}]'
CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n---\n"


def test_jobs_whose_pods_are_deleted_are_a_history(tmp_path: Path) -> None:
    text = CLASS + job("one", "completions: 1", f"succeeded: 1, {COMPLETE}")
    text += job("wide", "completions: 2, parallelism: 2", f"succeeded: 2, {COMPLETE}")
    text += job("long", "completions: 3, parallelism: 1", f"succeeded: 3, {COMPLETE}")
    text += job("failed", "completions: 1", 'conditions: [{type: Failed, status: "True"}]')
    lives = load(tmp_path, text, running=RunningPods.FROM_NOW, lives=True).lives
    seconds: dict[str, list[float]] = {}
    for each in lives.ended:
        assert each.pod.priority == 7
        assert each.pod.requests.cpu_milli == 1000
        seconds.setdefault(each.pod.owner, []).append(each.ended - each.started)
    assert seconds == {"Job/one": [1800.0], "Job/wide": [1800.0] * 2, "Job/long": [600.0] * 3}
    starts = [each.started - lives.ended[0].started for each in lives.ended if each.pod.owner == "Job/long"]
    assert starts == [0.0, 600.0, 1200.0]
    assert lives.untimed == 1
    assert len(load(tmp_path, text, running=RunningPods.REPLAYED).pods) == 6


def test_a_job_that_still_has_a_pod_is_not_counted_twice(tmp_path: Path) -> None:
    pod = f"""
apiVersion: v1
kind: Pod
metadata:
  name: one-x
  creationTimestamp: "2026-03-01T10:00:00Z"
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: one, uid: one, controller: true}}]
spec: {{nodeName: a, {CONTAINERS}}}
status: {{phase: Succeeded, startTime: "2026-03-01T10:02:00Z"}}
---
"""
    text = pod + job("one", "completions: 1", f"succeeded: 1, {COMPLETE}") + NOMINATED
    ended = load(tmp_path, text, running=RunningPods.FROM_NOW, lives=True).lives.ended
    assert [(each.pod.name, each.ended - each.started) for each in ended] == [("one-x", 1740.0)]


@pytest.mark.parametrize("key", ["nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"])
def test_gpus_of_hami_by_uuid_are_named(key: str, tmp_path: Path) -> None:
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{key}: GPU-1}}}}\nspec: {{{CONTAINERS}}}\n"
    (said,) = [each for each in load(tmp_path, pod).warnings if key in each]
    assert said.endswith(f"annotation {key} is not modelled and has no effect (named by Pod p)")


CLAIMED = f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: disk}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  nodeAffinity:
    required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: zone, operator: In, values: [ZONE]}}]}}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, volumeName: disk}}
status: {{phase: Bound}}
---
apiVersion: v1
kind: Pod
metadata: {{name: db}}
spec: {{volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], {CONTAINERS}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: lost}}
spec: {{volumes: [{{name: v, persistentVolumeClaim: {{claimName: missing}}}}], {CONTAINERS}}}
"""


@pytest.mark.parametrize("zone", ["zb", "zc"])
def test_converted_pods_are_refused_by_the_same_nodes(
    zone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load(tmp_path, CLAIMED.replace("ZONE", zone))
    source, out = str(tmp_path / "cluster.yaml"), tmp_path / "out"
    assert main(["workload", "convert", "--pods", source, "--to", "yaml", "--output", str(out)]) == 0
    after = load_workload(out, out)
    refusals = [pod.constraints.volume_refusals for pod in before.pods]
    assert all(refusals)
    assert [pod.constraints.volume_refusals for pod in after.pods] == refusals
    csv = str(tmp_path / "csv")
    assert main(["workload", "convert", "--pods", source, "--to", "openb", "--lossy", "--output", csv]) == 0
    assert "pod constraints.volume_refusals (2)" in capsys.readouterr().err
    pods = [*yaml.safe_load_all((out / "pods.yaml").read_text())]
    pods[0]["metadata"]["annotations"]["steersman.dev/volume-refusals"] = "all of them"
    (out / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    (said,) = [each for each in load_workload(out, out).warnings if "left out" in each]
    assert "metadata.annotations.steersman.dev/volume-refusals: is not a list such as " in said
