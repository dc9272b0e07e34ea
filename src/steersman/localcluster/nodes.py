"""Nodes for a local cluster: which ones, as Kubernetes objects that KWOK plays, and their creation.

What is created reads back as the same nodes: the simulator's decoder turns the objects of the API into the nodes that
they were made of (but for the taints of a node that is not ready yet).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from steersman.cluster.gpu_resources import SHARED_GPUS
from steersman.cluster.manifests import Manifest, node_to_object
from steersman.cluster.model import Node, Taint
from steersman.errors import SteersmanError, UsageError
from steersman.kube.client import ApiError, Client
from steersman.localcluster.patience import Patience
from steersman.localcluster.shapes import Shape, is_label
from steersman.workloads.deployments import CONTROL_PLANE, CONTROL_PLANE_LABEL
from steersman.workloads.topology import Hierarchy, label_nodes

NODES = "/api/v1/nodes"
HOSTNAME_LABEL = "kubernetes.io/hostname"
TYPE_LABEL = "type"
KWOK = "kwok"
KWOK_KEY = "kwok.x-k8s.io/node"
"""KWOK plays the nodes with this annotation. It is also the key of the taint that keeps pods off them."""
READY = "Ready"
NO_PRESSURE = {
    "MemoryPressure": "SufficientMemory",
    "DiskPressure": "NoDiskPressure",
    "PIDPressure": "SufficientPID",
}
"""Conditions of a healthy node, and what kubelet gives for their reasons."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CLUSTER_KEY = "steersman/cluster"
"""Annotation of a node that was created for the local cluster of this name."""

MANY_PODS = 1_000_000
"""What a node without a limit gets, as from KWOK: kube-scheduler takes no number of pods for zero."""
MAX_NODES = 100_000
CONCURRENCY = 64
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.25
POLL_NODE_SECONDS = 0.001

Report = Callable[[int, int], None]


def equal_nodes(count: int, shape: Shape) -> tuple[Node, ...]:
    """So many nodes of one shape: `node-0000` and on. Raises UsageError: too few or too many."""
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"--count {count}: 1 to {MAX_NODES} nodes are right")
    width = max(4, len(str(count - 1)))
    return tuple(shape.node(f"node-{i:0{width}}") for i in range(count))


def reference_node(shape: Shape) -> Node:
    """Reference A's control-plane node, which takes no pods that do not tolerate its taint."""
    node = shape.node(CONTROL_PLANE)
    return replace(node, labels={CONTROL_PLANE_LABEL: ""}, taints=(Taint(CONTROL_PLANE_LABEL),))


def prepared(nodes: Sequence[Node], hierarchy: Hierarchy | None = None, *, kwok_taint: bool = False) -> list[Node]:
    """The nodes as they will be in the cluster: host names, a number of pods, and racks and KWOK's taint if asked for.

    Args:
        nodes: from a file, or `equal_nodes`.
        hierarchy: racks and zones for those that state none.
        kwok_taint: whether pods must tolerate KWOK's taint.

    Raises:
        SteersmanError: Kubernetes would refuse a node.
    """
    taints = (Taint(KWOK_KEY, "fake"),) if kwok_taint else ()
    found = []
    for node in label_nodes(nodes, hierarchy) if hierarchy else nodes:
        _check(node)
        stated = node_to_object(node)["metadata"].get("labels", {})  # with the GPU model's
        labels = {HOSTNAME_LABEL: node.name, TYPE_LABEL: KWOK, **stated}
        found.append(
            replace(
                node,
                pods=min(node.pods, MANY_PODS),
                gpu_resources=(node.gpu_resources or (SHARED_GPUS,)) if node.gpu_count else (),
                labels=labels,
                taints=(*node.taints, *(taint for taint in taints if taint not in node.taints)),
            )
        )
    return found


def node_object(node: Node, cluster: str) -> Manifest:
    """A v1 Node that KWOK plays.

    It is ready when it is created, as KWOK would make it by one more request; KWOK then keeps it so.
    """
    found = node_to_object(node)
    found["metadata"]["annotations"] = {KWOK_KEY: "fake", CLUSTER_KEY: cluster}
    status = found["status"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    status["conditions"] = [
        {"type": kind, "status": "False", "reason": f"KubeletHas{reason}", **times}
        for kind, reason in NO_PRESSURE.items()
    ]
    status["conditions"].append({"type": READY, "status": "True", "reason": "KubeletReady", **times})
    status["addresses"] = [{"type": "Hostname", "address": node.name}]
    status["nodeInfo"] = {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": KWOK}
    status["phase"] = "Running"
    return found


async def create_nodes(client: Client, nodes: Sequence[Node], cluster: str, report: Report) -> None:
    """Create nodes and wait until all of them are ready and take pods.

    Args:
        client: of the cluster.
        nodes: as `prepared` gives them.
        cluster: the name of the local cluster, which `down` finds them by.
        report: told how many of all nodes are ready; one that is only created counts half.

    Raises:
        SteersmanError: a node is there already, or nodes do not become ready.
    """
    waiting = list(reversed(nodes))
    created = 0

    async def work() -> None:
        nonlocal created
        while waiting:
            node = waiting.pop()
            try:
                await client.create(NODES, node_object(node, cluster))
            except ApiError as error:
                waiting.clear()
                raise SteersmanError(f"node {node.name}: {error.message}") from None
            created += 1
            report(created // 2, len(nodes))

    await asyncio.gather(*(work() for _ in range(min(CONCURRENCY, len(nodes)))))
    await _wait_ready(client, {node.name: node for node in nodes}, report)


async def delete_nodes(client: Client, cluster: str) -> int:
    """Delete the nodes that were created for a local cluster; how many."""
    names = [
        found["metadata"]["name"]
        for found in map(msgspec.json.decode, (await client.list(NODES)).items)
        if found["metadata"].get("annotations", {}).get(CLUSTER_KEY) == cluster
    ]
    for name in names:
        try:
            await client.delete(f"{NODES}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
    return len(names)


def is_ready(node: Manifest) -> bool:
    """Whether a v1 Node's condition Ready is true."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each.get("type") == READY and each.get("status") == "True" for each in conditions)


async def _wait_ready(client: Client, nodes: dict[str, Node], report: Report) -> None:
    patience = Patience(PATIENCE_SECONDS)
    while True:
        # From the server's cache: its load is what the nodes wait for.
        listed = map(msgspec.json.decode, (await client.list(NODES, {"resourceVersion": "0"})).items)
        ready = sum(1 for found in listed if _takes_pods(found, nodes.get(found["metadata"]["name"])))
        report((len(nodes) + ready) // 2, len(nodes))
        if ready == len(nodes) and await _is_played(client, next(reversed(nodes))):
            return
        if patience.ends(len(nodes) - ready):
            unplayed = "; does KWOK run there?" if ready == len(nodes) else ""
            raise SteersmanError(f"{ready} of {len(nodes)} nodes are ready, and no more became so{unplayed}")
        await asyncio.sleep(max(POLL_SECONDS, POLL_NODE_SECONDS * len(nodes)))


async def _is_played(client: Client, name: str) -> bool:
    """Whether somebody renews a node's lease, without which it will not stay ready."""
    try:
        await client.get(f"{LEASES}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _takes_pods(found: Any, node: Node | None) -> bool:
    """Whether a node of ours is ready, and rid of the taint that nodes have until they are."""
    if node is None or not is_ready(found):
        return False
    return len(found.get("spec", {}).get("taints") or ()) == len(node.taints)


def _check(node: Node) -> None:
    """Raise SteersmanError if Kubernetes would refuse the node, or decode another one from it."""
    name = re.fullmatch("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", node.name)
    if name is None or len(node.name) > 63:
        raise SteersmanError(f"node {node.name!r}: a-z, 0-9, - and . inside, at most 63, make the name of a node")
    if node.gpu_model and not is_label(node.gpu_model):
        raise SteersmanError(f"node {node.name}: GPU model {node.gpu_model!r} cannot be the value of a label")
