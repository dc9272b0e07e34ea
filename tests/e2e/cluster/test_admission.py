"""What a real API server refuses with the chart's admission policies."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import create, pod, pods
from tests.support.chart.helm import CHART, template

from steersman.cluster.model import GPU_MODEL_KEY, PLUGIN_GPUS
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY

pytestmark = pytest.mark.e2e

KEYS = (GPU_COUNT_KEY, GPU_MILLI_KEY, GPU_MODEL_KEY, GPU_INDEX_KEY)
WISH = {GPU_COUNT_KEY: "1", GPU_MILLI_KEY: "1000", "team": "a"}
TAINT = "steersman.dev/gpu-share"


@pytest.fixture
def guarded(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster whose API server has taken notice of the policies."""
    policies = yaml.safe_dump_all(template("scheduler.enabled=false", "admission.enabled=true"))
    cluster.kubectl("apply", "-f", "-", stdin=policies)
    try:
        probe = plugged_pod("probe", tolerations=[{"operator": "Exists"}])
        until(lambda: TAINT in refusal(cluster, "create", "--dry-run=server", stdin=json.dumps(probe)))
        create(cluster, pod("probe", annotations=WISH, schedulerName="nobody", nodeName=some_node(cluster)))
        until(lambda: GPU_MILLI_KEY in annotate(cluster, "probe", f"{GPU_MILLI_KEY}=7", "--dry-run=server"))
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=policies)
        cluster.must("cluster", "clean", "--name", cluster.name)


def refusal(cluster: LocalCluster, *arguments: str, stdin: str = "") -> str:
    """Return what kubectl complains of, "" if it succeeds."""
    command = [cluster.kubectl_path, f"--kubeconfig={cluster.kubeconfig}", *arguments]
    command += ["-f", "-"] if stdin else []
    done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, timeout=60)
    return done.stderr if done.returncode else ""


def annotate(cluster: LocalCluster, name: str, *arguments: str) -> str:
    return refusal(cluster, "annotate", "pod", name, "--overwrite", *arguments)


def some_node(cluster: LocalCluster) -> str:
    return cluster.node_names()[0]


def plugged_pod(name: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, schedulerName="nobody", **spec)
    amounts = {"nvidia.com/gpu": "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


def bind(cluster: LocalCluster, name: str, node: str) -> None:
    """Bind a pod with its devices, as the schedulers do."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {GPU_INDEX_KEY: "0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/default/pods/{name}/binding"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def test_gpu_annotations_of_a_bound_pod_cannot_be_changed(guarded: LocalCluster) -> None:
    create(guarded, pod("mine", annotations=WISH, schedulerName="nobody"))
    assert annotate(guarded, "mine", f"{GPU_MILLI_KEY}=900") == ""  # it waits: what it asks for is its own
    bind(guarded, "mine", some_node(guarded))
    notes = pods(guarded)["mine"]["metadata"]["annotations"]
    assert (notes[GPU_MILLI_KEY], notes[GPU_INDEX_KEY]) == ("900", "0")
    for key in KEYS:
        for change in (f"{key}=1x", f"{key}-"):
            if change == f"{GPU_MODEL_KEY}-":  # it has none
                continue
            said = annotate(guarded, "mine", change)
            assert f"{key} of a bound pod cannot be changed" in said, (change, said)
    patch = json.dumps({"metadata": {"annotations": {GPU_MILLI_KEY: "1"}}})
    said = refusal(guarded, "patch", "pod", "mine", "--subresource=status", "--type=merge", "-p", patch)
    assert "of a bound pod cannot be changed" in said or pods(guarded)["mine"]["metadata"]["annotations"] == notes
    assert annotate(guarded, "mine", "team=b") == ""
    assert pods(guarded)["mine"]["metadata"]["annotations"] == {**notes, "team": "b"}


def test_pods_of_device_plugins_do_not_tolerate_the_taint_of_shared_gpus(guarded: LocalCluster) -> None:
    for toleration, refused in (
        ({"operator": "Exists"}, True),
        ({"key": TAINT, "operator": "Exists"}, True),
        ({"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
    ):
        for made, concerned in (
            (plugged_pod("plugged", tolerations=[toleration]), True),
            (pod("sharing", annotations=WISH, schedulerName="nobody", tolerations=[toleration]), False),
        ):
            said = refusal(guarded, "create", "--dry-run=server", stdin=json.dumps(made))
            assert (TAINT in said) == (refused and concerned), (toleration, said)


def test_the_policy_names_all_device_plugins() -> None:
    text = (CHART / "templates" / "admission" / "gpu-mixing.yaml").read_text()
    assert [name for name in PLUGIN_GPUS if f'"{name}"' not in text] == []
