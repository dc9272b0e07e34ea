"""Nodes of a local cluster: their shapes, the Kubernetes objects that KWOK simulates, and their creation.

What is created reads back as the same nodes: the simulator's decoder turns the objects of the API into the nodes that
they were made of (except for the taints of a node that is not ready yet).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from steersman.apps.local_cluster.node_shapes import DEFAULT_PREFIX, NodeShape, is_label
from steersman.apps.local_cluster.stall_timeout import StallTimeout
from steersman.cluster.model import SHARED_GPUS, Node, Taint
from steersman.cluster.node_labels import with_standard_labels
from steersman.cluster.objects.api.decoding import node_from_json
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.manifests import Manifest, node_to_object
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import ApiError, Client
from steersman.workloads.generators.deployments import CONTROL_PLANE, CONTROL_PLANE_LABEL
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.topology import ZONE, Hierarchy, label_nodes

NODES = "/api/v1/nodes"
TYPE_LABEL = "type"
KWOK = "kwok"
KWOK_KEY = "kwok.x-k8s.io/node"
"""Annotation of nodes that KWOK simulates, and key of the taint that keeps pods off them."""
READY = "Ready"
NO_PRESSURE = {"MemoryPressure": "SufficientMemory", "DiskPressure": "NoDiskPressure", "PIDPressure": "SufficientPID"}
"""Conditions of a healthy node, and what kubelet gives for their reasons."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CLUSTER_KEY = "steersman.dev/cluster"
"""Annotation of nodes that were created for the local cluster of this name."""

MANY_PODS = 1_000_000
"""Limit of pods on a node without one, as KWOK sets it: kube-scheduler takes a missing limit for zero."""
MAX_NODES = 100_000
CONCURRENCY = 64
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.25
POLL_NODE_SECONDS = 0.001

Report = Callable[[int, int], None]


def equal_nodes(count: int, shape: NodeShape, prefix: str = DEFAULT_PREFIX, first: int = 0) -> tuple[Node, ...]:
    """Return `count` nodes of one shape, named `node-0000` and on. Raises UsageError: too few or too many.

    Args:
        count: number of nodes.
        shape: their capacity.
        prefix: of their names.
        first: number of the first one.
    """
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"--count {count}: expected 1 to {MAX_NODES} nodes")
    width = max(4, len(str(first + count - 1)))
    return tuple(shape.node(f"{prefix}-{i:0{width}}") for i in range(first, first + count))


def next_number(names: Iterable[str], prefix: str) -> int:
    """Return the number after the largest of the names with a prefix, such as 3 after `node-0002`; 0 without any."""
    numbers = (name.removeprefix(f"{prefix}-") for name in names if name.startswith(f"{prefix}-"))
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def reference_node(shape: NodeShape) -> Node:
    """Return the control-plane node of AAML's scheduler, which takes only pods that tolerate its taint."""
    node = shape.node(CONTROL_PLANE)
    return replace(node, labels={CONTROL_PLANE_LABEL: ""}, taints=(Taint(CONTROL_PLANE_LABEL),))


def prepared(nodes: Sequence[Node], hierarchy: Hierarchy | None = None, *, kwok_taint: bool = False) -> list[Node]:
    """Return the nodes as they will be in the cluster: with host names, limits of pods, racks and KWOK's taint.

    Args:
        nodes: from a file, or `equal_nodes`.
        hierarchy: racks and zones for those that state none.
        kwok_taint: whether pods must tolerate KWOK's taint.

    Raises:
        SteersmanError: Kubernetes would refuse a node.
    """
    taints = (Taint(KWOK_KEY, "fake"),) if kwok_taint else ()
    result = []
    for node in map(with_standard_labels, label_nodes(nodes, hierarchy) if hierarchy else nodes):
        _check(node)
        stated = node_to_object(node)["metadata"].get("labels", {})  # with the GPU model's
        labels = {TYPE_LABEL: KWOK, **stated}
        result.append(
            replace(
                node,
                pods=min(node.pods, MANY_PODS),
                gpu_resources=(node.gpu_resources or (SHARED_GPUS,)) if node.gpu_count else (),
                labels=labels,
                taints=(*node.taints, *(taint for taint in taints if taint not in node.taints)),
            )
        )
    return result


def label_zones(nodes: Sequence[Node], zones: int = LatencySettings().zones) -> list[Node]:
    """Return the nodes with labels of zones, in turn, unless one of them has such a label."""
    if any(ZONE in node.labels for node in nodes):
        return list(nodes)
    return [replace(node, labels={**node.labels, ZONE: f"zone-{i % zones}"}) for i, node in enumerate(nodes)]


def node_object(node: Node, cluster: str) -> Manifest:
    """Return a v1 Node that KWOK simulates.

    It is created ready, which saves the request by which KWOK would make it so; KWOK then keeps it ready.
    """
    result = node_to_object(node)
    result["metadata"]["annotations"] = {KWOK_KEY: "fake", CLUSTER_KEY: cluster}
    status = result["status"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    status["conditions"] = [
        {"type": kind, "status": "False", "reason": f"KubeletHas{reason}", **times}
        for kind, reason in NO_PRESSURE.items()
    ]
    status["conditions"].append({"type": READY, "status": "True", "reason": "KubeletReady", **times})
    status["addresses"] = [{"type": "Hostname", "address": node.name}, *status.get("addresses", ())]
    status["nodeInfo"] = {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": KWOK}
    status["phase"] = "Running"
    return result


async def create_nodes(client: Client, nodes: Sequence[Node], cluster: str, report: Report) -> None:
    """Create nodes and wait until all of them are ready and take pods.

    Args:
        client: connection to the cluster.
        nodes: as `prepared` returns them.
        cluster: name of the local cluster, by which `down` finds them.
        report: called with the number of ready nodes and of all; a created node counts half.

    Raises:
        SteersmanError: a node exists already, or nodes do not become ready.
    """
    # Workers take from the end.
    waiting = list(reversed(nodes))
    created = 0

    async def work() -> None:
        nonlocal created
        while waiting:
            node = waiting.pop()
            try:
                await client.create(NODES, node_object(node, cluster))
            except ApiError as error:
                # The other workers end, too, after their present request.
                waiting.clear()
                raise SteersmanError(f"node {node.name}: {error.message}") from None
            created += 1
            report(created // 2, len(nodes))

    await asyncio.gather(*(work() for _ in range(min(CONCURRENCY, len(nodes)))))
    await _wait_ready(client, {node.name: node for node in nodes}, report)


async def node_names(client: Client, cluster: str) -> tuple[list[str], list[str]]:
    """Return the names of all nodes, and of those that were created for a local cluster, oldest first."""
    objects = [each["metadata"] for each in map(msgspec.json.decode, (await client.list(NODES)).items)]
    own = [each for each in objects if each.get("annotations", {}).get(CLUSTER_KEY) == cluster]
    own.sort(key=lambda each: (each["creationTimestamp"], each["name"]))
    return [each["name"] for each in objects], [each["name"] for each in own]


async def delete_nodes(client: Client, cluster: str, names: Sequence[str] | None = None) -> int:
    """Delete nodes that were created for a local cluster, and return their number.

    Args:
        client: connection to the cluster.
        cluster: name of the local cluster.
        names: of nodes that were created for it; None: all of these.
    """
    names = (await node_names(client, cluster))[1] if names is None else names
    for name in names:
        try:
            await client.delete(f"{NODES}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
    return len(names)


async def _wait_ready(client: Client, nodes: dict[str, Node], report: Report) -> None:
    patience = StallTimeout(PATIENCE_SECONDS)
    while True:
        # From the server's cache, to spare the server that the nodes wait for.
        listed = map(node_from_json, (await client.list(NODES, {"resourceVersion": "0"})).items)
        ready = sum(1 for each in listed if _takes_pods(each, nodes.get(each.metadata.name)))
        report((len(nodes) + ready) // 2, len(nodes))
        # Nodes are created ready, so readiness does not show that KWOK runs; a lease does.
        if ready == len(nodes) and await _is_played(client, next(reversed(nodes))):
            return
        if patience.ends(len(nodes) - ready):
            unplayed = "; does KWOK run there?" if ready == len(nodes) else ""
            raise SteersmanError(f"{ready} of {len(nodes)} nodes are ready, and no more became so{unplayed}")
        await asyncio.sleep(max(POLL_SECONDS, POLL_NODE_SECONDS * len(nodes)))


async def _is_played(client: Client, name: str) -> bool:
    try:
        await client.get(f"{LEASES}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _takes_pods(result: NodeObject, node: Node | None) -> bool:
    if node is None or not result.is_ready:
        return False
    taints = result.spec.taints if result.spec is not None else None
    # The API server adds not-ready to every new node, and the controller manager takes it away.
    return len(taints or ()) == len(node.taints)


def _check(node: Node) -> None:
    """Raise SteersmanError if Kubernetes would refuse the node, or a decoder would read another one from it."""
    name = re.fullmatch("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", node.name)
    if name is None or len(node.name) > 63:
        raise SteersmanError(f"node {node.name!r}: a-z, 0-9, - and . inside, at most 63, make the name of a node")
    if node.gpu_model and not is_label(node.gpu_model):
        raise SteersmanError(f"node {node.name}: GPU model {node.gpu_model!r} cannot be the value of a label")
