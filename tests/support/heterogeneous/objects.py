"""A GPU cluster of five node shapes and forty workloads for it, as plain Kubernetes objects drawn at random.

The GPUs are those of a device plugin (`nvidia.com/gpu`), of three models. The workloads ask for half as many GPUs again
as there are, and for nearly all CPU, so that it depends on the scheduler how many GPUs are in use in the end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
GPU, MODEL = "nvidia.com/gpu", "nvidia.com/gpu.product"
A100, V100, T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-32GB", "Tesla-T4"
POOL, EDGE = "example.com/pool", "example.com/edge"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONES, RACK_NODES = 3, 10
KEEPS_STATUS = {"kwok.x-k8s.io/status": "custom"}
"""Annotation of pods that KWOK does not run, and so does not end: those of Jobs keep their GPUs."""


@dataclass(frozen=True)
class Shape:
    """Equal nodes.

    Attributes:
        name: a prefix of theirs.
        share: of all nodes, in percent.
        cpu, memory: cores, GiB.
        gpus, model: of a node.
        pool: its label; a pool may be tainted.
    """

    name: str
    share: int
    cpu: int
    memory: int
    gpus: int = 0
    model: str = ""
    pool: str = "general"


SHAPES = (
    Shape("a100x8", 15, 96, 1024, 8, A100, "training"),
    Shape("v100x4", 25, 48, 384, 4, V100),
    Shape("t4x4", 15, 64, 256, 4, T4),
    Shape("t4x2", 20, 32, 128, 2, T4, "edge"),
    Shape("cpu", 25, 64, 256),
)
GPU_COUNTS = (*[0] * 18, *[1] * 10, *[2] * 5, *[4] * 4, *[8] * 3)
"""GPUs of a pod, of each of 40 workloads."""
POD_SHARES = {0: 0.72, 1: 0.19, 2: 0.05, 4: 0.03, 8: 0.01}
"""Of all pods by GPUs: 0.49 GPUs a pod, or 1.5 times the capacity with ten pods a node and 3.2 GPUs."""
PODS_PER_NODE = 10
KINDS = ("Deployment", "Deployment", "StatefulSet", "Job")


def draw_nodes(count: int, seed: int) -> list[Object]:
    """Return v1 Nodes of five shapes in zones and racks. Half of the A100 nodes and of the small ones are tainted.

    Args:
        count: of nodes; at 200 they have 640 GPUs.
        seed: decides which node is in which rack.
    """
    shapes = [shape for shape in SHAPES for _ in range(round(count * shape.share / 100))]
    places = list(range(len(shapes)))
    random.Random(f"nodes {seed}").shuffle(places)
    seen = dict.fromkeys(SHAPES, 0)
    found = []
    for shape, place in zip(shapes, places, strict=True):
        found.append(_node(shape, seen[shape], place // RACK_NODES))
        seen[shape] += 1
    return found


def _node(shape: Shape, number: int, rack: int) -> Object:
    name = f"{shape.name}-{number:03d}"
    labels = {HOSTNAME: name, ZONE: f"zone-{rack % ZONES}", RACK: f"rack-{rack:02d}", POOL: shape.pool, "type": "kwok"}
    offered = {"cpu": str(shape.cpu), "memory": f"{shape.memory}Gi", "pods": "110"}
    if shape.gpus:
        labels[MODEL] = shape.model
        offered[GPU] = str(shape.gpus)
    taints = []
    if number % 2 and shape.pool == "training":
        taints = [{"key": POOL, "value": "training", "effect": "NoSchedule"}]
    elif number % 2 and shape.pool == "edge":
        taints = [{"key": EDGE, "value": "", "effect": "NoSchedule"}]
    elif shape.model == V100 and number % 5 == 0:
        taints = [{"key": "example.com/old", "value": "yes", "effect": "PreferNoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"allocatable": offered, "capacity": offered},
    }


def draw_workloads(nodes: int, seed: int, scheduler: str = "") -> list[Object]:
    """Return 40 Deployments, StatefulSets and Jobs in a random order of creation.

    Args:
        nodes: of the cluster, of `draw_nodes`; for each there are some ten pods.
        seed: the same seed makes the same workloads.
        scheduler: that their pods choose; "" for the cluster's own.
    """
    rng = random.Random(f"workloads {seed}")
    replicas = _replicas(rng, nodes * PODS_PER_NODE)
    found = []
    for number, (gpus, count) in enumerate(zip(GPU_COUNTS, replicas, strict=True)):
        found.append(_controller(rng, f"{'gpu' if gpus else 'cpu'}-{number:02d}", gpus, count, nodes))
    rng.shuffle(found)
    for each in found:
        if scheduler:
            template(each)["spec"]["schedulerName"] = scheduler
    return found


def template(controller: Object) -> Object:
    """Return the template of a controller's pods."""
    found: Object = controller["spec"]["template"]
    return found


def pods_of(controller: Object) -> int:
    """Return how many pods a controller makes."""
    spec = controller["spec"]
    return int(spec["parallelism"] if controller["kind"] == "Job" else spec["replicas"])


def scaled(controllers: Sequence[Object], share: float) -> list[Object]:
    """Return the same controllers with a share of their pods, each with one pod at least."""
    found = []
    for each in controllers:
        count = max(1, round(share * pods_of(each)))
        found.append(each | {"spec": each["spec"] | _count(each["kind"], count)})
    return found


def _replicas(rng: random.Random, pods: int) -> list[int]:
    """Return the number of pods of each workload: unequal, by GPUs as in POD_SHARES."""
    weights = [rng.lognormvariate(0.0, 0.6) for _ in GPU_COUNTS]
    found = []
    for gpus, weight in zip(GPU_COUNTS, weights, strict=True):
        alike = sum(w for w, other in zip(weights, GPU_COUNTS, strict=True) if other == gpus)
        found.append(max(1, round(pods * POD_SHARES[gpus] * weight / alike)))
    return found


def _count(kind: str, count: int) -> Object:
    return {"parallelism": count, "completions": count} if kind == "Job" else {"replicas": count}


def _controller(rng: random.Random, name: str, gpus: int, count: int, nodes: int) -> Object:
    kind = rng.choice(KINDS)
    labels = {"app": name, "tier": rng.choice(("online", "batch"))}
    metadata: Object = {"labels": labels}
    spec = _pod_spec(rng, name, gpus, count, nodes)
    controller: Object = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}
    more: Object = {"selector": {"matchLabels": {"app": name}}}
    if kind == "Job":
        controller["apiVersion"] = "batch/v1"
        spec["restartPolicy"] = "Never"
        metadata["annotations"] = dict(KEEPS_STATUS)
        more = {}
    elif kind == "StatefulSet":
        more |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return controller | {"spec": {**_count(kind, count), **more, "template": {"metadata": metadata, "spec": spec}}}


def _pod_spec(rng: random.Random, name: str, gpus: int, count: int, nodes: int) -> Object:
    if gpus:
        cpu, memory = gpus * rng.choice((4, 6, 8, 10, 12)), gpus * rng.choice((16, 32, 48, 64))
    else:
        cpu = rng.choice((1, 2, 4, 4, 8))
        memory = cpu * rng.choice((2, 4, 4, 8))
    requests = {"cpu": str(cpu), "memory": f"{memory}Gi"} | ({GPU: str(gpus)} if gpus else {})
    resources = {"requests": requests} | ({"limits": {GPU: str(gpus)}} if gpus else {})
    spec: Object = {"containers": [{"name": "main", "image": "registry.example/main:1", "resources": resources}]}
    models = _models(rng, gpus)
    spec |= _node_constraints(rng, gpus, models)
    spec |= _spreading(rng, name)
    if rng.random() < 0.25 and count <= nodes // 4:
        _add_anti_affinity(rng, spec, name)
    elif rng.random() < 0.15:
        other = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": HOSTNAME}
        preferred = {PREFERRED: [{"weight": 50, "podAffinityTerm": other}]}
        spec.setdefault("affinity", {})["podAntiAffinity"] = preferred
    return spec


def _models(rng: random.Random, gpus: int) -> tuple[str, ...]:
    """Return the GPU models that a pod wants, none if any will do. Nobody asks for 8 GPUs of nodes that have 4."""
    if not gpus or gpus == 8 or rng.random() < 0.4:
        return ()
    return tuple(rng.sample((A100, V100, T4), rng.choice((1, 1, 2))))


def _node_constraints(rng: random.Random, gpus: int, models: tuple[str, ...]) -> Object:
    spec: Object = {}
    if len(models) == 1:
        spec["nodeSelector"] = {MODEL: models[0]}
    elif models:
        wanted = {"key": MODEL, "operator": "In", "values": list(models)}
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}}
    elif not gpus and rng.random() < 0.25:
        unwanted = {"key": POOL, "operator": "NotIn", "values": ["training"]}
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [unwanted]}]}}}
    elif rng.random() < 0.2:
        liked = {"key": ZONE, "operator": "In", "values": [f"zone-{rng.randrange(ZONES)}"]}
        terms = [{"weight": 10, "preference": {"matchExpressions": [liked]}}]
        spec["affinity"] = {"nodeAffinity": {PREFERRED: terms}}
    tolerations: list[Object] = []
    if gpus == 8 or A100 in models or rng.random() < 0.4:
        tolerations.append({"key": POOL, "operator": "Equal", "value": "training", "effect": "NoSchedule"})
    if rng.random() < 0.5:
        tolerations.append({"key": EDGE, "operator": "Exists"})
    return spec | ({"tolerations": tolerations} if tolerations else {})


def _spreading(rng: random.Random, name: str) -> Object:
    """Return hard spreading over zones, soft spreading over racks or nodes, both, or none."""
    selector: Object = {"labelSelector": {"matchLabels": {"app": name}}}
    found: list[Object] = []
    if rng.random() < 0.3:
        hard = {"maxSkew": rng.choice((1, 2, 5)), "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        found.append(hard | selector)
    if rng.random() < 0.3:
        soft = {"maxSkew": 1, "topologyKey": rng.choice((HOSTNAME, RACK, ZONE)), "whenUnsatisfiable": "ScheduleAnyway"}
        found.append(soft | selector)
    if len({each["topologyKey"] for each in found}) < len(found):
        found.pop()  # one constraint a key, or the API server may refuse the pair
    return {"topologySpreadConstraints": found} if found else {}


def _add_anti_affinity(rng: random.Random, spec: Object, name: str) -> None:
    """Keep the pods of a workload apart, or from the nodes of another workload's pods, which do not know of it."""
    terms: list[Object] = [{"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": HOSTNAME}]
    if rng.random() < 0.3:
        terms = [{"labelSelector": {"matchLabels": {"app": f"cpu-{rng.randrange(18):02d}"}}, "topologyKey": HOSTNAME}]
    spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: terms}
