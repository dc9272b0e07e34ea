"""Nodes of a local cluster: their shapes, the Kubernetes objects that KWOK simulates, and their creation.

What is created reads back as the same nodes: the simulator's decoder turns the objects of the API into the nodes that
they were made of (except for the taints of a node that is not ready yet).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from steersman.cluster.gpu_units import with_standard_labels
from steersman.cluster.model import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS, Node, Taint
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.fields import node_from_json
from steersman.cluster.objects.manifests import Manifest, node_to_object
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.quantities import MAX_CPU_MILLI, MAX_MEMORY_BYTES, MAX_NODE_GPUS, bytes_, cpu_milli, plausible
from steersman.kubernetes.client import ApiError, Client
from steersman.live.local_cluster.cleaning import StallTimeout
from steersman.live.runtime.tasks import get_if_exists
from steersman.workloads.generators.deployments import CONTROL_PLANE, CONTROL_PLANE_LABEL
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.topology import ZONE, Hierarchy, label_nodes

EXAMPLE = "64cpu,256Gi,110pods,8gpu:A100"
DEFAULT_PREFIX = "node"  # of the names of nodes: node-0000 and on
MAX_PODS = 1_000_000
MAX_COUNTED_GPUS = 10_000
MIN_MEMORY_BYTES = 1 << 20
# The longest first: `nvidia.com/gpu` is the beginning of `nvidia.com/gpu.shared`.
_GPUS = "|".join(map(re.escape, sorted(PLUGIN_GPUS, key=len, reverse=True)))
_PART = re.compile(
    rf"(?P<amount>[0-9.]+[A-Za-z]*?)(?P<what>cpu|pods|gpu|{_GPUS})(?::(?P<model>.*))?|(?P<memory>[0-9].*)"
)
_GROUP = re.compile(r"(?:(?P<name>[^=]*)=)?(?P<shape>.*?)(?::(?P<count>[0-9]+))?", re.DOTALL)
_NODE_PREFIX = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NODES = "/api/v1/nodes"
TYPE_LABEL = "type"
KWOK = "kwok"
KWOK_KEY = "kwok.x-k8s.io/node"  # annotation of nodes that KWOK simulates, and key of the taint that keeps pods off
READY = "Ready"
NO_PRESSURE = {"MemoryPressure": "SufficientMemory", "DiskPressure": "NoDiskPressure", "PIDPressure": "SufficientPID"}
"""Conditions of a healthy node, and what kubelet gives for their reasons."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CLUSTER_KEY = "steersman.dev/cluster"  # annotation of nodes that were created for the local cluster of this name
MANY_PODS = 1_000_000  # limit of pods on a node without one, as KWOK sets it: kube-scheduler takes none for 0
MAX_NODES = 100_000
CONCURRENCY = 64
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.25
POLL_NODE_SECONDS = 0.001
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Capacity of each of some equal nodes: milli-CPU, bytes of memory, pods, GPUs, their resource name and model."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 110
    gpu_count: int = 0
    gpu_model: str = ""
    gpu_resource: str = SHARED_GPUS

    def node(self, name: str) -> Node:
        """Return a node of this shape; GPUs beyond what a bit mask holds become an extended resource."""
        node = Node(name, self.cpu_milli, self.memory_bytes, self.pods)
        if self.gpu_count > MAX_NODE_GPUS:
            labels = {GPU_MODEL_KEY: self.gpu_model} if self.gpu_model else {}
            return replace(node, extended=((self.gpu_resource, self.gpu_count),), labels=labels)
        names = (self.gpu_resource,) if self.gpu_count else ()
        return replace(node, gpu_count=self.gpu_count, gpu_model=self.gpu_model, gpu_resources=names)


def parse_shape(text: str) -> NodeShape:
    """Return the shape of a text such as `64cpu,256Gi,110pods,8gpu:A100`; pods and GPUs are optional.

    `8gpu` are GPUs that pods may share, `8nvidia.com/gpu:A100` those of a device plugin.
    """
    result: dict[str, int | str] = {}

    def take(name: str, value: int | str) -> None:
        if name in result:
            raise _wrong(text, f"{name.partition('_')[0]} is there twice")
        result[name] = value

    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or (match["model"] is not None and match["what"] in ("cpu", "pods")):
            raise _wrong(text, f"{part.strip()!r} is no part of a shape")
        if match["memory"]:
            take("memory_bytes", _memory(text, match["memory"]))
        elif match["what"] == "cpu":
            take("cpu_milli", _amount(text, cpu_milli, match["amount"], MAX_CPU_MILLI))
        elif match["what"] == "pods":
            take("pods", _count(text, match["amount"], MAX_PODS))
        else:
            is_shared = match["what"] == "gpu"
            take("gpu_count", _count(text, match["amount"], MAX_NODE_GPUS if is_shared else MAX_COUNTED_GPUS))
            if not is_shared:
                take("gpu_resource", match["what"])
            if match["model"] is not None:
                take("gpu_model", _model(text, match["model"]))
    for name, example in (("cpu_milli", "64cpu"), ("memory_bytes", "256Gi")):
        if name not in result:
            raise _wrong(text, f"{name.partition('_')[0]} is missing ({example})")
    return NodeShape(**result)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one shape: the prefix of their names, the shape, and how many; None: as many as are asked for."""

    name: str
    shape: NodeShape
    count: int | None = None


def parse_groups(texts: Sequence[str]) -> list[NodeGroup]:
    """Return the groups of texts such as `64cpu,256Gi`, `a=8cpu,32Gi` or `b=96cpu,768Gi,8gpu:A100:20` (20 of them)."""
    groups: list[NodeGroup] = []
    for text in texts:
        match = _GROUP.fullmatch(text)
        assert match is not None
        name = DEFAULT_PREFIX if match["name"] is None else match["name"].strip()
        if not _NODE_PREFIX.fullmatch(name):
            raise UsageError(
                f"--node-shape {text}: {name!r} is not a name of nodes; expected a-z, 0-9 and - inside, at most 40"
            )
        if any(name == group.name for group in groups):
            raise UsageError(
                f"--node-shape {text}: there is a shape {name!r} already; give each a name, as b={EXAMPLE}"
            )
        # Ten digits are more than any limit, and spare a conversion of thousands.
        count = None if match["count"] is None else int(match["count"][:10])
        groups.append(NodeGroup(name, parse_shape(match["shape"]), count))
    return groups


def is_label(text: str) -> bool:
    """Return whether Kubernetes accepts a text as the value of a label that is not empty."""
    return _LABEL.fullmatch(text) is not None


def _amount(text: str, parse: Callable[[str], int], quantity: str, most: int) -> int:
    try:
        amount = plausible(parse(quantity), most, quantity)
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    if not amount:
        raise _wrong(text, f"{quantity!r} is nothing")
    return amount


def _memory(text: str, quantity: str) -> int:
    amount = _amount(text, bytes_, quantity, MAX_MEMORY_BYTES)
    if amount < MIN_MEMORY_BYTES:
        raise _wrong(text, f"{quantity!r} would be {amount} bytes of memory; is the unit missing?")
    return amount


def _count(text: str, digits: str, most: int) -> int:
    if not digits.isdigit() or not 0 < int(digits[:10]) <= most:
        raise _wrong(text, f"{digits!r} is not a number from 1 to {most}")
    return int(digits)


def _model(text: str, model: str) -> str:
    if not is_label(model):
        raise _wrong(text, f"{model!r} is no GPU model that a label can hold (letters, digits and - . _ inside)")
    return model


def _wrong(text: str, problem: str) -> UsageError:
    return UsageError(f"--node-shape {text}: {problem}; {EXAMPLE} is a shape")


def equal_nodes(count: int, shape: NodeShape, prefix: str = DEFAULT_PREFIX, first: int = 0) -> tuple[Node, ...]:
    """Return `count` nodes of one shape, named `node-0000` and on. Raises UsageError: too few or too many."""
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
    """Return the nodes as they will be in the cluster: with host names, limits of pods, racks and KWOK's taint."""
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
    """Create nodes and wait until all of them are ready and take pods."""
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
    """Delete nodes that were created for a local cluster, and return their number."""
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
        if ready == len(nodes) and await get_if_exists(client, f"{LEASES}/{next(reversed(nodes))}"):
            return
        if patience.ends(len(nodes) - ready):
            unplayed = "; does KWOK run there?" if ready == len(nodes) else ""
            raise SteersmanError(f"{ready} of {len(nodes)} nodes are ready, and no more became so{unplayed}")
        await asyncio.sleep(max(POLL_SECONDS, POLL_NODE_SECONDS * len(nodes)))


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
