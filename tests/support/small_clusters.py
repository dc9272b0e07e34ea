"""Small clusters of many shapes, and pods that fill them, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from steersman.cluster.model import (
    Constraints,
    HostPort,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    PreferredNodeTerm,
    PreferredPodTerm,
    Requests,
    Requirement,
    Taint,
    Toleration,
    TopologySpread,
)
from steersman.policies.kube_scheduler.arrays import HOSTNAME
from steersman.workloads.workload import SpreadSelectors, Workload

T = TypeVar("T")
GIB = 1 << 30
ZONE = "topology.kubernetes.io/zone"
APPS = ("web", "data")
SERVICES = SpreadSelectors((("default", (("app", "web"),)),), (("default", (Requirement("app", "In", ("data",)),)),))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cluster and its pods are like.

    Attributes:
        nodes: how many.
        devices: GPUs of a node, drawn from these.
        models: of the nodes' GPUs, drawn from these; "": none is known.
        wanted: sets of models that pods insist on, drawn from these.
        pods: how many.
        gpu_share: of the pods that ask for GPUs.
        largest: devices that a pod asks for at most.
        extended: whether there are extended resources, one of which no node has.
        terms: whether pods look at other pods, at labels and at taints.
    """

    nodes: int = 4
    devices: tuple[int, ...] = (4,)
    models: tuple[str, ...] = ("A100",)
    wanted: tuple[tuple[str, ...], ...] = ((),)
    pods: int = 40
    gpu_share: float = 0.7
    largest: int = 2
    extended: bool = False
    terms: bool = False


SHAPES = {
    "without GPUs": Shape(devices=(0,), models=("",), gpu_share=0.0, terms=True),
    "GPU pods without GPUs": Shape(devices=(0,), models=("",)),
    "one node": Shape(nodes=1, devices=(1,), pods=12),
    "two nodes": Shape(nodes=2, devices=(0, 8), largest=8, extended=True),
    "three nodes of one GPU": Shape(nodes=3, devices=(1,), wanted=((), ("A100",)), terms=True),
    "1 to 8 GPUs": Shape(nodes=5, devices=tuple(range(1, 9)), largest=8, wanted=((), ("A100",))),
    "shares alone": Shape(devices=(2, 4), largest=1, gpu_share=1.0),
    "models that nobody names": Shape(nodes=5, devices=(0, 2, 4), models=("A100", "V100", "")),
    "models that no node has": Shape(models=("A100", ""), wanted=((), ("H100",), ("H100", "A100"))),
    "many models": Shape(
        nodes=6,
        devices=(1, 2, 4),
        models=("A100", "V100", "T4", "P100", ""),
        wanted=((), ("A100", "T4"), ("V100",), ("P100",)),
        extended=True,
    ),
    "everything": Shape(
        nodes=6,
        devices=(0, 2, 4, 8),
        models=("A100", "V100", ""),
        wanted=((), ("A100",), ("H100",)),
        largest=2,
        extended=True,
        terms=True,
    ),
}


def workload(shape: Shape, seed: int) -> Workload:
    """A cluster of a shape, and pods that take more than all of it."""
    rng = np.random.default_rng(seed)
    nodes = tuple(_node(shape, f"node-{i}", rng) for i in range(shape.nodes))
    kinds = [PodClass(_requests(shape, rng), _constraints(shape, rng)) for _ in range(12)]
    # Some fit nearly everywhere, so that in every cluster something is placed.
    anywhere = Constraints(tolerations=(Toleration(operator="Exists"),))
    counts = (0, 1) if shape.gpu_share else (0,)
    kinds += [PodClass(Requests(250, GIB, gpu_count=n, gpu_milli=150 * n), anywhere) for n in counts]
    pods = []
    for i in range(shape.pods):
        app = _one(APPS, rng)
        created = float(10 * i)
        pods.append(
            Pod(
                name=f"pod-{i}",
                pod_class=_one(kinds, rng),
                labels={"app": app},
                priority=int(rng.integers(3)),
                owner=f"Job/{app}" if rng.random() < 0.7 else "",
                creation_time=created,
                deletion_time=created + float(rng.integers(1, 300)),
            )
        )
    return Workload(f"seed {seed}", nodes, tuple(pods), SERVICES if shape.terms else SpreadSelectors())


def _one(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]


def _node(shape: Shape, name: str, rng: np.random.Generator) -> Node:
    zone, devices = f"zone-{int(rng.integers(2))}", _one(shape.devices, rng)
    labels = {HOSTNAME: name, "rack": f"rack-{int(rng.integers(3))}", "server": f"server-{name}"}
    if rng.random() < 0.8:
        labels[ZONE] = zone
    return Node(
        name=name,
        cpu_milli=int(rng.integers(4, 33)) * 1000,
        memory_bytes=int(rng.integers(8, 65)) * GIB,
        pods=int(rng.integers(3, 30)),
        gpu_count=devices,
        gpu_model=_one(shape.models, rng) if devices else "",
        extended=(("example.com/disk", 3),) if shape.extended and rng.random() < 0.6 else (),
        labels=labels,
        taints=(Taint("gpu", effect=_one(("NoSchedule", "PreferNoSchedule"), rng)),) if _rarely(shape, rng) else (),
        unschedulable=shape.terms and rng.random() < 0.1,
        images={"app:1": 200 << 20} if shape.terms and rng.random() < 0.5 else {},
    )


def _rarely(shape: Shape, rng: np.random.Generator) -> bool:
    return shape.terms and rng.random() < 0.25


def _requests(shape: Shape, rng: np.random.Generator) -> Requests:
    count = int(rng.integers(1, shape.largest + 1)) if rng.random() < shape.gpu_share else 0
    milli = 1000 if count > 1 or rng.random() < 0.3 else int(rng.integers(1, 1001))
    names = ("example.com/disk", "example.com/none")
    return Requests(
        cpu_milli=int(rng.integers(0, 7)) * 500,
        memory_bytes=int(rng.integers(0, 7)) * GIB,
        gpu_count=count,
        gpu_milli=milli if count else 0,
        extended=((_one(names, rng), 1),) if shape.extended and rng.random() < 0.3 else (),
    )


def _constraints(shape: Shape, rng: np.random.Generator) -> Constraints:
    models = _one(shape.wanted, rng)
    if not shape.terms or rng.random() < 0.3:
        return Constraints(gpu_models=models)
    selector = PodSelector(_one(((Requirement("app", "In", (_one(APPS, rng),)),), (), None), rng), None)
    near = PodAffinityTerm(selector, _one((HOSTNAME, ZONE, "rack", "nowhere"), rng))
    spread = TopologySpread(
        max_skew=int(rng.integers(1, 4)),
        topology_key=_one((HOSTNAME, ZONE, "rack"), rng),
        hard=rng.random() < 0.5,
        selector=selector,
        min_domains=int(rng.integers(1, 4)),
        honor_node_taints=rng.random() < 0.5,
    )
    zone = NodeSelectorTerm((Requirement(ZONE, "In", ("zone-0",)),))
    return Constraints(
        gpu_models=models,
        tolerations=(Toleration(operator="Exists"),) if rng.random() < 0.5 else (),
        node_affinity=(zone,) if rng.random() < 0.2 else None,
        preferred_nodes=(PreferredNodeTerm(10, zone),) if rng.random() < 0.3 else (),
        host_ports=(HostPort(80),) if rng.random() < 0.2 else (),
        affinity=(near,) if rng.random() < 0.2 else (),
        anti_affinity=(near,) if rng.random() < 0.2 else (),
        preferred_affinity=(PreferredPodTerm(50, near),) if rng.random() < 0.3 else (),
        preferred_anti_affinity=(PreferredPodTerm(50, near),) if rng.random() < 0.3 else (),
        spread=(spread,) if rng.random() < 0.5 else (),
        images=("app:1",) if rng.random() < 0.5 else (),
    )
