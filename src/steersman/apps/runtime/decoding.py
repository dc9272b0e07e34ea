"""Nodes and pods of a live cluster, listed once and decoded by the rules for files.

Objects outside the model (an unregistered node, a malformed annotation) are left out with a warning, as the scheduler
does: one bad object must not keep a command from working with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from steersman.cluster.model import Node, Pod
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import Client, Listed
from steersman.kubernetes.objects import whole
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"
CORE = "v1"

log = structlog.get_logger("reading")


def documents(listed: Listed | Iterable[msgspec.Raw], kind: str, version: str = CORE) -> list[Document]:
    """Return the objects of a list as documents; the API omits their kind and version, so both are added."""
    items = listed.items if isinstance(listed, Listed) else listed
    return [Document({"apiVersion": version, "kind": kind, **whole(raw)}, "the cluster", "") for raw in items]


@dataclass(frozen=True, slots=True)
class DecodedObjects:
    """Valid nodes and pods of a list, and the problems of the invalid ones.

    Attributes:
        objects: the valid objects.
        nodes: the nodes among them.
        pods: the pods among them.
        problems: one error for each invalid object.
    """

    objects: Objects
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    problems: tuple[InputError, ...]


def decode_objects(result: Iterable[Document]) -> DecodedObjects:
    """Decode each document by itself, so that an invalid one does not affect the others."""
    valid, problems = list[Document](), list[InputError]()
    nodes, pods = list[Node](), list[Pod]()
    for document in result:
        try:
            objects = Objects([document])
            decoded_nodes, decoded_pods = objects.nodes(), objects.pods(())
        except InputError as problem:
            problems.append(problem)
            continue
        valid.append(document)
        nodes += decoded_nodes
        pods += decoded_pods
    return DecodedObjects(Objects(valid), tuple(nodes), tuple(pods), tuple(problems))


async def read_nodes(client: Client) -> tuple[Node, ...]:
    """List the cluster's nodes and return the valid ones.

    Raises:
        SteersmanError: there is no valid node.
    """
    decoded = decode_objects(documents(await client.list(NODES), "Node"))
    warn_ignored("nodes ignored", decoded.problems)
    if not decoded.nodes:
        raise SteersmanError(
            f"the cluster has no valid nodes: {decoded.problems[0]}" if decoded.problems else "the cluster has no nodes"
        )
    return decoded.nodes


def warn_ignored(what: str, problems: Sequence[InputError]) -> None:
    """Log how many objects are ignored, with the first problem as an example."""
    if problems:
        log.warning(what, count=len(problems), error=example(problems))


def example(problems: Sequence[InputError]) -> str:
    """Return the first problem, marked as an example if there are several."""
    return f"such as {problems[0]}" if len(problems) > 1 else str(problems[0])
