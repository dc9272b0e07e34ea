"""Writes the clusters of Kubernetes objects (`python -m tests.contract.make_objects`), from the policies of `make`.

One more policy is written here, whose mix tells vendors of GPUs apart.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.contract.cases import FOLDER, Json, open_as_said, policy_files, told
from tests.contract.make import POLICIES, WORKLOADS, pack
from tests.contract.objects import FILE, ask
from tests.support.objects import node_from_object

from steersman.cluster.model import GPU_MODEL_KEY, SHARED_GPUS, Pod
from steersman.cluster.objects.decoding import OWNER_KEY, pod_from_object
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY
from steersman.core.errors import InputError
from steersman.policies.policy_file import prepare_policy, write_policy
from steersman.policies.portfolios import blends
from steersman.policies.registry import policy_path
from steersman.workloads.formats.openb import embedded

SEED = 5
CLUSTERS, PODS = 16, 8
VENDORS = "vendors"
NVIDIA, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
OBJECT_POLICIES: tuple[Json, ...] = (
    *POLICIES,
    {"name": VENDORS, "file": VENDORS},
    {"name": f"fgd-{VENDORS}", "local": "fgd", "file": VENDORS},
)
SHARES = (190, 250, 470, 500, 810)

Random = np.random.Generator


def node_object(rng: Random, name: str, models: list[str]) -> Json:
    """A node without GPUs, with shared ones, with those of device plugins, or with more than are looked at."""
    kinds = {"none": 0.2, "shared": 0.2, "total": 0.1, "capacity": 0.05, "plugin": 0.2}
    kinds |= {"both": 0.1, "two": 0.1, "many": 0.05}
    kind = str(rng.choice(list(kinds), p=list(kinds.values())))
    count = int(rng.choice([1, 2, 4, 8])) if kind != "none" else 0
    allocatable = {
        "cpu": str(rng.choice(["16", "31500m", "64", "96"])),
        "memory": str(rng.choice(["64Gi", "131920432Ki", "256Gi"])),
        "pods": str(rng.choice(["110", "40", "9"])),
    }
    labels = {"rack": str(rng.choice(["a", "b"]))} if rng.random() < 0.7 else {}
    shared = {
        "none": {},
        "shared": {GPU_COUNT_KEY: str(count)},
        "total": {GPU_COUNT_KEY: str(count), GPU_MILLI_KEY: str(1000 * count)},
        "capacity": {GPU_COUNT_KEY: str(count), GPU_MILLI_KEY: "1000"},
        "plugin": {str(rng.choice([NVIDIA, AMD])): str(count)},
        "both": {GPU_COUNT_KEY: str(count), NVIDIA: str(count)},
        "two": {NVIDIA: str(count), AMD: "3"},
        "many": {NVIDIA: "80", AMD: str(count)},
    }[kind]
    if kind != "none" and rng.random() < 0.85:
        keys = ("nvidia.com/gpu.product", "amd.com/gpu.product-name") if kind in ("plugin", "two") else (GPU_MODEL_KEY,)
        labels |= {key: str(rng.choice(models)) for key in keys}
    stated = allocatable if kind == "capacity" else allocatable | shared
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": stated, "capacity": allocatable | shared},
    }


def container(rng: Random, **more: Any) -> Json:
    """A container that states both requests, one, or none."""
    asked = {"cpu": str(rng.choice(["100m", "1", "1500m", "4"])), "memory": str(rng.choice(["100M", "1Gi", "7Gi"]))}
    for key in list(asked):
        if rng.random() < 0.2:
            del asked[key]
    return {"name": f"c{rng.integers(1 << 30)}", "image": "pause", "resources": {"requests": asked}, **more}


def pod_object(rng: Random, name: str, models: list[str]) -> Json:
    """A pod of one container or two, init containers, sidecars, overhead; of an owner or not; with or without GPUs."""
    notes: dict[str, str] = {}
    spec: Json = {"containers": [container(rng) for _ in range(int(rng.integers(1, 3)))]}
    if rng.random() < 0.15:
        spec["initContainers"] = [container(rng)]
    if rng.random() < 0.15:
        spec.setdefault("initContainers", []).append(container(rng, restartPolicy="Always"))
    if rng.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    kind = str(rng.choice(["none", "share", "whole", "plugin", "parts"], p=[0.25, 0.3, 0.1, 0.3, 0.05]))
    if kind == "plugin":
        resource = str(rng.choice([NVIDIA, AMD, INTEL], p=[0.6, 0.3, 0.1]))
        count = str(rng.choice([1, 2, 9], p=[0.5, 0.4, 0.1]))
        for where in ("requests", "limits"):
            spec["containers"][0]["resources"].setdefault(where, {})[resource] = count
    elif kind != "none":
        notes |= {
            "share": {GPU_COUNT_KEY: "1", GPU_MILLI_KEY: str(rng.choice(SHARES))},
            "whole": {GPU_COUNT_KEY: str(rng.choice([1, 2]))},
            "parts": {GPU_COUNT_KEY: "2", GPU_MILLI_KEY: "250"},
        }[kind]
    if kind != "none" and rng.random() < 0.2:
        notes[GPU_MODEL_KEY] = "|".join(rng.choice(models, size=2, replace=False).tolist())
    metadata: Json = {"name": name, "namespace": str(rng.choice(["default", "other"])), "uid": name}
    owner = f"web-{rng.integers(3)}"
    if rng.random() < 0.5:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    elif rng.random() < 0.3:
        notes[OWNER_KEY] = f"ReplicaSet/{owner}"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": notes}, "spec": spec}


def running_pod(rng: Random, name: str, nodes: list[Json], models: list[str]) -> Json:
    """A pod on a node: with its devices, without, with others than there are, or with annotations without sense."""
    pod, node = pod_object(rng, name, models), nodes[int(rng.integers(len(nodes)))]
    pod["spec"]["nodeName"] = node["metadata"]["name"]
    notes = pod["metadata"]["annotations"]
    notes.pop(GPU_MODEL_KEY, None)
    if GPU_COUNT_KEY in notes:
        devices = rng.choice(8, size=int(notes[GPU_COUNT_KEY]), replace=False).tolist()
        odd = {"3": "x", "4": "1-1-1", "5": ""}.get(str(rng.integers(20)), "-".join(str(each) for each in devices))
        if rng.random() < 0.8:
            notes[GPU_INDEX_KEY] = odd
        if rng.random() < 0.08:
            notes[GPU_MILLI_KEY] = str(rng.choice(["1001", "many", "-1"]))
    if not has_its_devices(pod, nodes):
        notes.pop(OWNER_KEY, None)  # of a pod without sense the annotations are not looked at
    return pod


def has_its_devices(pod: Json, nodes: list[Json]) -> bool:
    """Whether the devices are known that a running pod holds: all others get theirs in the order in which they come."""
    counts = {each["metadata"]["name"]: node_from_object(each).gpu_count for each in nodes}
    try:
        held = pod_from_object(pod).gpu_devices
    except InputError:
        return False
    return bool(held) and max(held) < counts[pod["spec"]["nodeName"]]


def random_cluster(rng: Random, models: list[str]) -> Json:
    """A few nodes, pods that run there, and pods that each come to the same state of these."""
    nodes = [node_object(rng, f"n{i}", models) for i in range(int(rng.integers(4, 10)))]
    running = [running_pod(rng, f"r{i}", nodes, models) for i in range(int(rng.integers(4 * len(nodes))))]
    running.sort(key=lambda pod: not has_its_devices(pod, nodes))
    return {"nodes": nodes, "running": running, "pods": [pod_object(rng, f"p{i}", models) for i in range(PODS)]}


def named(pod: Pod, i: int) -> Pod:
    """The i-th pod of a trace, asking for GPUs by a name: shares by annotations, whole ones of one of two vendors."""
    requests = pod.requests
    name = SHARED_GPUS if requests.gpu_milli < 1000 else (NVIDIA, NVIDIA, AMD)[i % 3]
    requests = replace(requests, gpu_resource=name if requests.gpu_count else "")
    return replace(pod, pod_class=replace(pod.pod_class, requests=requests))


def write_vendors() -> None:
    """Write the policy whose mix tells vendors apart."""
    workload = embedded(WORKLOADS[1])
    workload = replace(workload, pods=tuple(named(pod, i) for i, pod in enumerate(workload.pods)))
    with policy_path("steersman") as shipped, TemporaryDirectory() as folder:
        file = Path(folder, "policy.safetensors")
        write_policy(file, *prepare_policy(shipped, workload, blends()[0]))
        pack(FOLDER / f"{VENDORS}.safetensors.gz", file.read_bytes())


def main() -> None:
    """Write the files."""
    write_vendors()
    rng = np.random.default_rng(SEED)
    models = sorted({node.gpu_model for node in embedded(WORKLOADS[0]).nodes} - {""})
    clusters = [random_cluster(rng, models) for _ in range(CLUSTERS)]
    with policy_files() as files:
        opened = {said["name"]: open_as_said(said, files) for said in OBJECT_POLICIES}
        for cluster in clusters:
            found = {name: ask(cluster, policy, profile) for name, (policy, profile) in opened.items()}
            kept = np.all([each.answers.clear for each in found.values()], axis=0)
            cluster["pods"] = [pod for pod, keep in zip(cluster["pods"], kept, strict=True) if keep]
            cluster["answers"] = {
                name: told(each.answers, kept) | {"ranks": np.array(each.ranks)[kept].tolist()}
                for name, each in found.items()
            }
    content = {"policies": OBJECT_POLICIES, "clusters": clusters}
    pack(FILE, json.dumps(content, separators=(",", ":")).encode())
    pods = sum(len(cluster["pods"]) for cluster in clusters)
    cases = len(OBJECT_POLICIES) * pods
    print(f"{pods} pods on {CLUSTERS} clusters, {cases} cases, {FILE.stat().st_size} bytes in {FOLDER}")


if __name__ == "__main__":
    main()
