"""Whether a real kube-scheduler with our plugins leaves what `steersman simulate` said: same pods, same order.

Scores come from our plugins alone, all nodes are scored, and nothing is preempted. All pods wait in the API before the
scheduler starts, so that it takes them in the order of their names.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.parity.cluster import listed
from tests.support.parity.scheduler import Attempt, Log
from tests.support.servers.plugin_scheduler import SCHEDULER, configuration, profile

from steersman.cluster.model import GPU_MILLI, GPU_MODEL_KEY, Node, Pod
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY
from steersman.cluster.objects.manifests import pod_to_object
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import load
from steersman.live.local_cluster.control_plane import servers
from steersman.live.runtime.tasks import run_concurrently
from steersman.simulation.arrivals import schedule
from steersman.workloads.loading import load_workload

STEERSMAN = Path(sys.executable).with_name("steersman")
OPENB = Path(__file__).parents[2] / "src" / "steersman" / "data" / "openb"
ALL_NODES, PODS = OPENB / "openb_node_list_gpu_node.csv.gz", OPENB / "openb_pod_list_default.csv.gz"
NAME = "reality"
PODS_PATH = "/api/v1/namespaces/default/pods"
RATIO, SEED = 1.3, 42
STALLED_SECONDS = 120
CONCURRENCY = 24

Decision = tuple[str, str]
"""A node and the devices there, as the annotation has them; "" for neither."""


@dataclass(frozen=True)
class Comparison:
    """What became of the pods in simulation and in a cluster.

    Attributes:
        pods: that arrived.
        simulated, real: final GPU allocation in percent.
        simulated_bound, real_bound: pods that found a place.
        same_fate, same_node, same_devices: pods of which both say the same: whether, where, and on which devices.
        fullest_device: the most milli that pods hold of any device.
        wrong: what is wrong with annotations, a line each.
        out_of_order: pods that were not taken in their turn.
        seconds: from the scheduler's start to its last decision.
    """

    pods: int
    simulated: float
    real: float
    simulated_bound: int
    real_bound: int
    same_fate: int
    same_node: int
    same_devices: int
    fullest_device: int
    wrong: tuple[str, ...]
    out_of_order: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"GPU allocation {self.simulated:.3f} % simulated, {self.real:.3f} % in the cluster; "
            f"{self.simulated_bound} and {self.real_bound} of {self.pods} pods bound, "
            f"{self.same_fate} with the same fate, {self.same_node} on the same node, {self.same_devices} on the same "
            f"devices; fullest device {self.fullest_device} milli; {self.seconds:.0f} s"
        )


@dataclass(frozen=True)
class Nodes:
    """A cluster's nodes, by the names that a simulation knows and by those in the cluster.

    A simulation ranks nodes at random, and of equal nodes the first one wins. The plugin takes the first in the
    scheduler's order, which is that of their names where they were listed. So nodes are called by their rank.

    Attributes:
        simulated, real: the node lists.
        names: name in the cluster -> name in simulation.
    """

    simulated: Path
    real: Path
    names: dict[str, str]


def some_nodes(folder: Path, every: int = 1) -> Nodes:
    """One node in `every` of openb's, so that small clusters have nodes of all kinds."""
    head, *rows = gzip.decompress(ALL_NODES.read_bytes()).decode().splitlines()
    rows = rows[::every]
    simulated, real = folder / "simulated.csv", folder / "real.csv"
    simulated.write_text("\n".join([head, *rows]) + "\n")
    plan = schedule(load_workload(simulated, PODS), "inflation", seed=SEED, ratio=RATIO, load=None)
    names, ranked = {}, []
    for rank, node in enumerate(plan.nodes.tolist()):
        name, _, rest = rows[node].partition(",")
        names[f"node-{rank:04d}"] = name
        ranked.append(f"node-{rank:04d},{rest}")
    real.write_text("\n".join([head, *ranked]) + "\n")
    return Nodes(simulated, real, names)


@contextmanager
def cluster_of(folder: Path, nodes: Nodes) -> Iterator[Path]:
    """A cluster of its own with these nodes: its kubeconfig."""
    environment = os.environ | {"STEERSMAN_STATE_DIR": str(folder / "state")}
    up: list[str | Path] = [STEERSMAN, "cluster", "up", "--name", NAME, "--nodes-from", nodes.real]
    try:
        subprocess.run(up, env=environment, check=True, capture_output=True, text=True, timeout=300)
        yield folder / "state" / "clusters" / NAME / "kubeconfig"
    finally:
        subprocess.run([STEERSMAN, "cluster", "down", "--name", NAME], env=environment, check=False, timeout=120)
        assert not servers.running(folder / "state" / "clusters" / NAME)


def compare(program: Path, kubeconfig: Path, folder: Path, nodes: Nodes, policy: str) -> Comparison:
    """Simulate, then let a kube-scheduler place the same pods in a cluster that has none.

    Args:
        program: kube-scheduler with our plugins.
        kubeconfig: of the cluster.
        folder: for what is written on the way; it must exist.
        nodes: of the cluster.
        policy: `fgd` or `steersman`, with the mix of the pods.
    """
    file = folder / "steersman.safetensors"
    workload_of = ("--nodes", nodes.simulated, "--pods", PODS)
    _steersman("fit", "policy", "--policy", "steersman", *workload_of, "--output", file)
    arguments = {"policyFile": str(file), "timeout": "5s"} | ({"policy": policy} if policy == "fgd" else {})
    workload = load_workload(nodes.simulated, PODS)
    there = {node.name: node for node in workload.nodes}
    names, simulated = _simulate(folder / "simulated", workload_of, policy if policy == "fgd" else str(file))
    by_name = {pod.name: pod for pod in workload.pods}
    arrivals = [by_name[name] for name in names]
    objects, order, seconds = asyncio.run(_place(program, kubeconfig, folder, arguments, arrivals))
    wrong: list[str] = []
    real = [_decision(each, nodes.names, there, wrong) for each in objects]
    return Comparison(
        pods=len(arrivals),
        simulated=_allocation(arrivals, simulated, workload.nodes),
        real=_allocation(arrivals, real, workload.nodes),
        simulated_bound=sum(1 for node, _ in simulated if node),
        real_bound=sum(1 for node, _ in real if node),
        same_fate=_same(simulated, real, lambda each: bool(each[0])),
        same_node=_same(simulated, real, lambda each: each[0]),
        same_devices=_same(simulated, real, lambda each: each),
        fullest_device=max(_devices(arrivals, real).values(), default=0),
        wrong=tuple(wrong),
        out_of_order=sum(1 for i, each in enumerate(order) if each != _name(i)),
        seconds=seconds,
    )


def _steersman(*arguments: object) -> None:
    done = subprocess.run([STEERSMAN, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


def _simulate(output: Path, workload: tuple[object, ...], policy: str) -> tuple[list[str], list[Decision]]:
    """The pods in the order of their arrival, and what became of each."""
    fixed = ("--seed", SEED, "--ratio", RATIO, "--protocol", "inflation")
    _steersman("simulate", *workload, "--policy", policy, *fixed, "--output", output)
    with (output / "placements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["pod"] for row in rows], [(row["node"], row["devices"]) for row in rows]


async def _place(
    program: Path, kubeconfig: Path, folder: Path, arguments: dict[str, Any], arrivals: list[Pod]
) -> tuple[list[dict[str, Any]], list[str], float]:
    """The pods as they are in the end, their names in the order in which they had their first turn, and the seconds."""
    waiting = [_waiting(pod, _name(i)) for i, pod in enumerate(arrivals)]
    async with Client(load(kubeconfig)) as client:
        await run_concurrently((partial(client.create, PODS_PATH, each) for each in waiting), CONCURRENCY)
        with _scheduling(program, kubeconfig, folder, arguments) as log:
            seconds = await _all_decided(log, len(arrivals))
            turns = [each.pod.removeprefix("default/") for each in log.events if isinstance(each, Attempt)]
        found = {each["metadata"]["name"]: each for each in await listed(client, PODS_PATH)}
    return [found[each["metadata"]["name"]] for each in waiting], list(dict.fromkeys(turns)), seconds


def _name(arrival: int) -> str:
    return f"pod-{arrival:06d}"


def _same(one: list[Decision], other: list[Decision], part: Callable[[Decision], object]) -> int:
    return sum(1 for a, b in zip(one, other, strict=True) if part(a) == part(b))


def _waiting(pod: Pod, name: str) -> dict[str, Any]:
    obj = pod_to_object(pod)
    obj["metadata"]["name"] = name
    obj["spec"]["schedulerName"] = SCHEDULER
    return obj


@contextmanager
def _scheduling(program: Path, kubeconfig: Path, folder: Path, arguments: dict[str, Any]) -> Iterator[Log]:
    """A kube-scheduler whose scores are those of Steersman alone."""
    ours = profile(arguments, "SteersmanGpuShare", alone=True)
    ours["plugins"] |= {
        "bind": {"enabled": [{"name": "SteersmanGpuShare"}]},
        "postFilter": {"disabled": [{"name": "*"}]},
    }
    settings = configuration(kubeconfig, [ours], percentageOfNodesToScore=100)
    configured, log = folder / "scheduler.json", folder / "scheduler.log"
    configured.write_text(json.dumps(settings))
    # What is watched from its beginning comes in any order; what is listed comes by name.
    listing = "--feature-gates=WatchListClient=false"
    command: list[str | Path] = [
        program,
        f"--config={configured}",
        "--secure-port=0",
        "--v=2",
        "--vmodule=schedule_one=3",
        listing,
    ]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        read = Log(log)
        try:
            yield read
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.kill()
            read.close()


async def _all_decided(log: Log, count: int) -> float:
    """Wait until every pod is bound or was found to fit nowhere; the seconds that took."""
    began = last = time.monotonic()
    known = 0
    while known < count:
        await asyncio.sleep(0.5)
        log.read()
        now = len({each.pod for each in log.events if isinstance(each, Attempt) and each.decided})
        if now > known:
            known, last = now, time.monotonic()
        assert time.monotonic() - last < STALLED_SECONDS, f"{known} of {count} pods are decided upon"
    return last - began


def _decision(obj: dict[str, Any], names: dict[str, str], nodes: dict[str, Node], wrong: list[str]) -> Decision:
    """Where a pod is, by the simulation's names; what is wrong with its annotation is added to `wrong`."""
    node, notes = names.get(obj["spec"].get("nodeName"), ""), obj["metadata"].get("annotations", {})
    index, models = notes.get(GPU_INDEX_KEY, ""), notes.get(GPU_MODEL_KEY, "")
    count = int(notes.get(GPU_COUNT_KEY, "0")) if node else 0
    devices = {int(part) for part in index.split("-")} if index else set()
    problem = ""
    if len(devices) != count or index != "-".join(map(str, sorted(devices))):
        problem = f"has the devices {index!r}, and should have {count}"
    elif devices and max(devices) >= nodes[node].gpu_count:
        problem = f"has the devices {index!r} on {node}, which has {nodes[node].gpu_count}"
    elif devices and models and nodes[node].gpu_model not in models.split("|"):
        problem = f"wants {models} and is on {node} with {nodes[node].gpu_model}"
    if problem:
        wrong.append(f"{obj['metadata']['name']}: {problem}")
    return node, index


def _devices(arrivals: list[Pod], decisions: list[Decision]) -> Counter[tuple[str, str]]:
    """Milli that pods hold of each device."""
    held: Counter[tuple[str, str]] = Counter()
    for pod, (node, index) in zip(arrivals, decisions, strict=True):
        held.update({(node, device): pod.requests.gpu_milli for device in index.split("-") if device})
    return held


def _allocation(arrivals: list[Pod], decisions: list[Decision], nodes: tuple[Node, ...]) -> float:
    """Percent of the GPUs that bound pods hold."""
    used = sum(pod.requests.gpu_total_milli for pod, (node, _) in zip(arrivals, decisions, strict=True) if node)
    return 100 * used / (GPU_MILLI * sum(node.gpu_count for node in nodes))
