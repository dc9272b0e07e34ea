"""GPUs that pods share, in a real kube-scheduler: the plugin SteersmanGpuShare and its annotations."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import create, pod, pods
from tests.support.servers.plugin_scheduler import Scheduler, configuration, plugged, profile, scheduler_program

from steersman.cluster.model import GPU_MODEL_KEY
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY

__all__ = ["scheduler_program"]

pytestmark = pytest.mark.e2e

Start = Callable[..., AbstractContextManager[Scheduler]]

PLUGIN = "SteersmanGpuShare"
SCHEDULER = "sharing"
NODES = {"v100-0": ("V100", 8), "v100-1": ("V100", 8), "p100-0": ("P100", 2)}
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "3s",
    "renewDeadline": "2s",
    "retryPeriod": "500ms",
    "resourceName": SCHEDULER,
    "resourceNamespace": "kube-system",
}


@pytest.fixture
def gpus(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with nodes that have GPUs."""
    create(cluster, *(gpu_node(name, model, count) for name, (model, count) in NODES.items()))
    try:
        yield cluster
    finally:
        cluster.must("cluster", "clean", "--name", cluster.name)
        cluster.kubectl("delete", "node", *NODES)


def gpu_node(name: str, model: str, count: int) -> dict[str, Any]:
    amounts = {"cpu": "96", "memory": "512Gi", "pods": "200", GPU_COUNT_KEY: str(count), GPU_MILLI_KEY: f"{count}k"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {GPU_MODEL_KEY: model, "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def sharing(name: str, count: object, milli: object = None, models: str = "", **spec: Any) -> dict[str, Any]:
    """A pod that asks for GPUs."""
    wish = {GPU_COUNT_KEY: str(count)}
    wish |= {} if milli is None else {GPU_MILLI_KEY: str(milli)}
    wish |= {GPU_MODEL_KEY: models} if models else {}
    return pod(name, cpu="100m", annotations=wish, **{"schedulerName": SCHEDULER, **spec})


@pytest.fixture
def scheduling(gpus: LocalCluster, scheduler_program: Path, tmp_path: Path) -> Start:
    """Starts a scheduler that is at work, or stands by; `bind` False leaves a part of its profile out."""

    @contextmanager
    def start(*arguments: str, bind: bool = True, **more: Any) -> Iterator[Scheduler]:
        ours = profile(None, PLUGIN, name=SCHEDULER)
        if bind:
            ours["plugins"]["bind"] = {"enabled": [{"name": PLUGIN}]}
        settings = configuration(gpus.kubeconfig, [ours], podMaxBackoffSeconds=1, **more)
        with plugged(scheduler_program, tmp_path, settings, *arguments) as running:
            yield running
            assert "panic" not in running.log()

    return start


def kill(scheduler: Scheduler) -> None:
    scheduler.process.kill()
    scheduler.process.wait()


def held(cluster: LocalCluster) -> dict[tuple[str, int], int]:
    """Milli of each device that pods hold, by their annotations: all of them are there and are devices of the node."""
    found: Counter[tuple[str, int]] = Counter()
    for each in pods(cluster).values():
        notes, node = each["metadata"].get("annotations", {}), each["spec"].get("nodeName")
        if not node:
            continue
        if notes.get(GPU_COUNT_KEY, "0") == "0":
            assert GPU_INDEX_KEY not in notes, each
            continue
        devices = [int(part) for part in notes[GPU_INDEX_KEY].split("-")]
        assert len(set(devices)) == int(notes[GPU_COUNT_KEY]), notes
        assert max(devices) < NODES[node][1], notes
        found.update({(node, device): int(notes.get(GPU_MILLI_KEY, 1000)) for device in devices})
    assert all(milli <= 1000 for milli in found.values()), found
    return found


def where(cluster: LocalCluster) -> dict[str, str]:
    return {name: each["spec"]["nodeName"] for name, each in pods(cluster).items() if each["spec"].get("nodeName")}


def why(cluster: LocalCluster, name: str) -> str:
    conditions: list[dict[str, str]] = pods(cluster)[name]["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


@pytest.mark.minors
def test_pods_share_devices_of_the_models_they_accept(gpus: LocalCluster, scheduling: Start) -> None:
    with scheduling():
        create(
            gpus,
            *(sharing(f"half-{i}", 1, 500, "P100") for i in range(2)),
            sharing("whole", 1, models="P100"),
            sharing("many", 8, 1000),
            sharing("either", 4, 300, "P100|V100"),
            pod("plain", schedulerName=SCHEDULER),
            sharing("none", 0),
        )
        until(lambda: len(where(gpus)) == 7)
        found, devices = where(gpus), held(gpus)
        assert {found[f"half-{i}"] for i in range(2)} | {found["whole"]} == {"p100-0"}
        assert (devices["p100-0", 0], devices["p100-0", 1]) == (1000, 1000)
        assert {found["many"], found["either"]} == {"v100-0", "v100-1"}
        create(gpus, sharing("late", 1, 1, "P100"), sharing("wide", 9), sharing("unknown", 1, 1, "H100"))
        others = len(gpus.objects("nodes")) - len(NODES)
        until(lambda: why(gpus, "late"))
        assert f"{others + 3} node(s) didn't have so many GPUs" in (until_said(gpus, "wide"))
        assert "3 node(s) didn't have the GPU model" in until_said(gpus, "unknown")
        said = until_said(gpus, "late")
        assert "1 Insufficient GPU" in said
        assert "2 node(s) didn't have the GPU model" in said
        assert not {"late", "wide", "unknown"} & set(where(gpus))


def until_said(cluster: LocalCluster, name: str) -> str:
    until(lambda: why(cluster, name))
    return why(cluster, name)


def test_invalid_request_waits_with_a_reason_until_corrected(gpus: LocalCluster, scheduling: Start) -> None:
    with scheduling():
        odd = {
            "word": sharing("word", "one"),
            "milli": sharing("milli", 1, 1001),
            "model": sharing("model", 1, 10, "A||B"),
            "nothing": sharing("nothing", 2, 0),
            "index": sharing("index", 1, 10),
        }
        odd["index"]["metadata"]["annotations"][GPU_INDEX_KEY] = "0-1"
        create(gpus, *odd.values(), sharing("fine", 1, 10))
        until(lambda: where(gpus).keys() == {"fine"})
        for name, field in zip(
            odd, (GPU_COUNT_KEY, GPU_MILLI_KEY, GPU_MODEL_KEY, GPU_MILLI_KEY, GPU_INDEX_KEY), strict=True
        ):
            assert f"metadata.annotations['{field}']" in until_said(gpus, name)
        gpus.kubectl("annotate", "pod", "milli", f"{GPU_MILLI_KEY}=1000", "--overwrite")
        until(lambda: where(gpus).keys() == {"fine", "milli"})
        assert sorted(held(gpus).values()) == [10, 1000]


@pytest.mark.parametrize("queued", ["false", "true"])
def test_a_waiting_pod_gets_the_devices_of_one_that_leaves(gpus: LocalCluster, scheduling: Start, queued: str) -> None:
    with scheduling(f"--feature-gates=SchedulerAsyncAPICalls={queued}"):
        create(gpus, *(sharing(f"share-{i}", 1, 600, "P100") for i in range(3)), pod("plain", schedulerName=SCHEDULER))
        until(lambda: len(where(gpus)) == 3)
        (waiting,) = pods(gpus).keys() - where(gpus).keys()
        until_said(gpus, waiting)
        gpus.kubectl("delete", "pod", "plain", "--grace-period=0", "--force")
        gone = next(name for name in where(gpus) if name.startswith("share"))
        gpus.kubectl("delete", "pod", gone, "--grace-period=0", "--force")
        until(lambda: waiting in where(gpus), 20)
        assert sorted(held(gpus).values()) == [600, 600]


def test_killed_scheduler_recounts_from_annotations(gpus: LocalCluster, scheduling: Start) -> None:
    wanted = [sharing(f"burst-{i:03}", 1, 50 + 10 * (i % 11), "V100") for i in range(150)]
    create(gpus, *wanted)
    with scheduling(clientConnection={"kubeconfig": str(gpus.kubeconfig), "qps": 20, "burst": 40}) as first:
        until(lambda: len(where(gpus)) > 20)
        kill(first)
    early = where(gpus)
    assert len(early) < len(wanted)
    devices = held(gpus)
    with scheduling():
        until(lambda: len(where(gpus)) == len(wanted))
    later = held(gpus)
    assert sum(later.values()) == sum(50 + 10 * (i % 11) for i in range(150))
    assert early.items() <= where(gpus).items()
    assert all(later[device] >= milli for device, milli in devices.items())


def test_new_leader_knows_allocated_devices(gpus: LocalCluster, scheduling: Start) -> None:
    with (
        scheduling(leaderElection=ELECTION) as first,
        scheduling(leaderElection=ELECTION) as second,
    ):
        create(gpus, *(sharing(f"early-{i}", 1, 400, "P100") for i in range(3)))
        until(lambda: len(where(gpus)) == 3)
        kill(first if "acquired lease" in first.log() else second)
        create(gpus, *(sharing(f"late-{i}", 1, 400, "P100") for i in range(2)))
        until(lambda: len(where(gpus)) == 4)
        assert sorted(held(gpus).values()) == [800, 800]


def test_profile_without_the_plugin_leaves_shared_gpus_alone(gpus: LocalCluster, scheduling: Start) -> None:
    with scheduling(bind=False):
        create(gpus, sharing("share", 1, 500), pod("plain", schedulerName=SCHEDULER))
        until(lambda: "plain" in where(gpus))
        assert f"does not bind by {PLUGIN}; enable it at bind, too" in until_said(gpus, "share")


def test_pod_of_higher_priority_preempts_devices(gpus: LocalCluster, scheduling: Start) -> None:
    with scheduling():
        create(gpus, *(sharing(f"small-{i}", 1, 600, "P100") for i in range(2)))
        until(lambda: len(where(gpus)) == 2)
        create(gpus, sharing("urgent", 1, 500, "P100", priorityClassName="system-cluster-critical"))
        until(lambda: "urgent" in where(gpus))
        assert len(where(gpus)) == 2
        assert sorted(held(gpus).values()) == [500, 600]


DRIVER = "gpu.example.com"


@pytest.fixture
def device_class(gpus: LocalCluster) -> Iterator[str]:
    """A DeviceClass that serves nvidia.com/gpu, and a node of which a driver offers one device; the node's name."""
    nodes = gpus.objects("nodes")
    node = next(each["metadata"]["name"] for each in nodes if each["metadata"]["name"] not in NODES)
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    create(
        gpus,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [selector], "extendedResourceName": "nvidia.com/gpu"},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "one"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]},
        },
    )
    try:
        yield node
    finally:
        gpus.kubectl("delete", "deviceclass,resourceslice", "--all")


def test_gpus_of_a_device_class_are_left_to_dynamic_resources(
    gpus: LocalCluster, scheduling: Start, device_class: str
) -> None:
    amounts = {"cpu": "100m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    wanted = [pod(f"claimed-{i}", schedulerName=SCHEDULER) for i in range(2)]
    for each in wanted:
        each["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    with scheduling():
        create(gpus, *wanted)
        until(lambda: len(where(gpus)) == 1)
        assert set(where(gpus).values()) == {device_class}
        (waiting,) = {"claimed-0", "claimed-1"} - set(where(gpus))
        assert "GPU" not in until_said(gpus, waiting)  # none of ours refuses it
        assert not any(GPU_INDEX_KEY in each["metadata"].get("annotations", {}) for each in pods(gpus).values())
