"""Random Nodes and what they offer to volumes, as objects that the API server takes."""

from __future__ import annotations

from typing import Any

from tests.support.differential.draws import Draws
from tests.support.kubernetes import is_since

Object = dict[str, Any]

HOSTNAME, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
RACK, RANK = "example.com/rack", "example.com/rank"
TOPOLOGY_KEYS = (HOSTNAME, ZONE, RACK, REGION)
ZONES, RACKS = ("z0", "z1", "z2"), ("r0", "r1")
RANKS = ("1", "5", "007", "five", "", "9223372036854775807", "9223372036854775808", "1e3")
GPU, FPGA, HUGE, BATCH = "nvidia.com/gpu", "example.com/fpga", "hugepages-2Mi", "kubernetes.io/batch-cpu"
IMAGES = {
    "registry.example/web:1": 40 << 20,
    "registry.example/web": 260 << 20,
    "registry.example:5000/model": 900 << 20,
    "registry.example/base@sha256:" + "ab" * 32: 2200 << 20,
    "tool:latest": 20 << 20,
}
TAINT_KEYS = ("example.com/team", "example.com/spot", "node.kubernetes.io/not-ready")
TAINT_VALUES = ("", "red", "blue", "5")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def node(draws: Draws, name: str) -> Object:
    """Return a Node."""
    spec: Object = {}
    if draws.chance(6):
        spec["unschedulable"] = True
    if taints := _taints(draws, cordoned="unschedulable" in spec):
        spec["taints"] = taints
    status: Object = {"allocatable": _allocatable(draws)}
    if draws.chance(40):
        status["images"] = _images(draws)
    if is_since("1.36") and draws.chance(30):
        status["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(draws, name)},
        "spec": spec,
        "status": status,
    }


def _labels(draws: Draws, name: str) -> dict[str, str]:
    labels = {HOSTNAME: name, ZONE: draws.choice(ZONES)}
    if draws.chance(60):
        labels[RACK] = draws.choice(RACKS)
    if draws.chance(40):
        labels[RANK] = draws.choice(RANKS)
    if draws.chance(30):
        labels[REGION] = draws.choice(("west", "east"))
    for key in (HOSTNAME, ZONE):
        if draws.chance(6):
            del labels[key]
    if draws.chance(4):
        labels[BETA_ZONE] = draws.choice(("", "z0", "z1"))
    return labels


def _taints(draws: Draws, *, cordoned: bool) -> list[Object]:
    taints = []
    for key in draws.some(TAINT_KEYS, 2) if draws.chance(20) else ():
        taint = {"key": key, "effect": draws.choice(("PreferNoSchedule", "NoSchedule", "NoExecute"))}
        if value := draws.choice(TAINT_VALUES):
            taint["value"] = value
        taints.append(taint)
    if cordoned and draws.chance(70):
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    return taints


def _allocatable(draws: Draws) -> dict[str, str]:
    amounts = {
        "cpu": draws.choice(("16", "32", "8", "15500m", "32", "16", "4", "1500m", "0", "16")),
        "memory": draws.choice(("32Gi", "64Gi", "16131824Ki", "65000M", "8Gi", "32Gi", "2Gi", "500Mi", "0", "32Gi")),
        "pods": draws.choice(("110", "110", "110", "110", "110", "110", "110", "110", "4", "0")),
        "ephemeral-storage": draws.choice(("50Gi", "50Gi", "50Gi", "50Gi", "50Gi", "20Gi", "0")),
    }
    for name in ("pods", "ephemeral-storage"):
        if draws.chance(4):
            del amounts[name]  # which is 0
    for name, values in (
        (GPU, ("1", "2", "4", "8", "0")),
        (FPGA, ("1", "3", "0")),
        (HUGE, ("64Mi", "1Gi", "0")),
        (BATCH, ("1500", "0")),
    ):
        if draws.chance(25):
            amounts[name] = draws.choice(values)
    return amounts


def _images(draws: Draws) -> list[Object]:
    images = []
    for name in draws.some(tuple(IMAGES), 3):
        names = [name]
        if draws.chance(20):
            names.append(draws.choice(tuple(IMAGES)))
        images.append({"names": names, "sizeBytes": IMAGES[name] + (1 << 20 if draws.chance(10) else 0)})
    return images
