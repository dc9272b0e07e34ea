"""The nodes and pods of a live cluster, read once and decoded as files are.

What is none of the model (a node that has not registered yet, an annotation that makes no sense) is left out with a
warning, as by the scheduler: somebody's pod is no reason not to work with all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects import is_finished
from steersman.errors import InputError, SteersmanError
from steersman.kube.client import Client, Listed
from steersman.kube.objects import whole
from steersman.live.objects import RUN
from steersman.workloads.kubernetes import Objects
from steersman.workloads.yamlfile import Document

NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"
CORE = "v1"

log = structlog.get_logger("reading")


@dataclass(frozen=True, slots=True)
class Room:
    """What the nodes have that take pods without tolerations, and what pods hold of it already.

    Attributes:
        cpu_milli, memory_bytes, pods: of these nodes together.
        largest_cpu_milli, largest_memory_bytes: the most that one of them has.
        used: the shares of CPU, memory and pods that others' pods hold.
    """

    cpu_milli: int
    memory_bytes: int
    pods: int
    largest_cpu_milli: int
    largest_memory_bytes: int
    used: tuple[float, float, float]


def documents(listed: Listed | Iterable[msgspec.Raw], kind: str, version: str = CORE) -> list[Document]:
    """Objects of a list, in which their kind is not stated, as documents."""
    items = listed.items if isinstance(listed, Listed) else listed
    return [Document({"apiVersion": version, "kind": kind, **whole(raw)}, "the cluster", "") for raw in items]


@dataclass(frozen=True, slots=True)
class Understood:
    """What makes sense of some nodes or pods, and what is wrong with the others.

    Attributes:
        objects: those that make sense.
        nodes, pods: what they are.
        problems: of the others.
    """

    objects: Objects
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    problems: tuple[InputError, ...]


def understood(found: Iterable[Document]) -> Understood:
    """Each of them by itself, so that one without sense is no reason not to take the others."""
    kept, problems = list[Document](), list[InputError]()
    nodes, pods = list[Node](), list[Pod]()
    for document in found:
        try:
            alone = Objects([document])
            made = alone.nodes(), alone.pods(())
        except InputError as problem:
            problems.append(problem)
            continue
        kept.append(document)
        nodes += made[0]
        pods += made[1]
    return Understood(Objects(kept), tuple(nodes), tuple(pods), tuple(problems))


async def read_nodes(client: Client) -> tuple[Node, ...]:
    """The nodes that are understood. Raises SteersmanError: there is none."""
    found = understood(documents(await client.list(NODES), "Node"))
    _warn("nodes ignored", found.problems)
    if not found.nodes:
        why = f" that are understood: {found.problems[0]}" if found.problems else ""
        raise SteersmanError("the cluster has no nodes" + why)
    return found.nodes


async def read_room(client: Client) -> Room:
    """The room for pods. Raises SteersmanError: no node takes pods without tolerations."""
    usable = {node.name: node for node in await read_nodes(client) if takes_pods(node)}
    if not usable:
        raise SteersmanError("the cluster has no node that takes pods without tolerations")
    cpu, memory, places = zip(*map(_amounts, usable.values()), strict=True)
    total = sum(cpu), sum(memory), sum(places)
    held, problems = [0, 0, 0], list[InputError]()
    for document in documents(await client.list(ALL_PODS), "Pod"):
        content = document.content
        labels = content["metadata"].get("labels") or {}
        if content.get("spec", {}).get("nodeName") in usable and RUN not in labels and not is_finished(content):
            held[2] += 1
            try:
                requests = Objects([document]).pods(())[0].requests
            except InputError as problem:
                problems.append(problem)
                continue
            held[0] += requests.cpu_milli
            held[1] += requests.memory_bytes
    _warn("requests of pods ignored", problems)
    shares = [amount / max(of, 1) for amount, of in zip(held, total, strict=True)]
    return Room(*total, max(cpu), max(memory), (shares[0], shares[1], shares[2]))


def takes_pods(node: Node) -> bool:
    """Whether a node takes pods without tolerations."""
    return not node.unschedulable and all(taint.effect == "PreferNoSchedule" for taint in node.taints)


def _warn(what: str, problems: Sequence[InputError]) -> None:
    if problems:
        log.warning(what, count=len(problems), error=example(problems))


def example(problems: Sequence[InputError]) -> str:
    """One of some problems."""
    return f"such as {problems[0]}" if len(problems) > 1 else str(problems[0])


def _amounts(node: Node) -> tuple[int, int, int]:
    return node.cpu_milli, node.memory_bytes, node.pods
