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
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"
CORE = "v1"

log = structlog.get_logger("reading")


def documents(listed: Listed | Iterable[msgspec.Raw], kind: str, version: str = CORE) -> list[Document]:
    """Return the objects of a list as documents; the API omits their kind and version, so both are added."""
    items = listed.items if isinstance(listed, Listed) else listed
    return [
        Document({"apiVersion": version, "kind": kind, **msgspec.json.decode(raw)}, "the cluster", "") for raw in items
    ]


@dataclass(frozen=True, slots=True)
class DecodedObjects:
    """Valid nodes and pods of a list, and the problems of the invalid ones.

    Attributes:
        nodes: the valid nodes.
        pods: the valid pods.
        problems: one error for each invalid object.
        warnings: about fields that have no effect.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    problems: tuple[InputError, ...]
    warnings: tuple[str, ...]


def decode_objects(documents: Iterable[Document]) -> DecodedObjects:
    """Decode nodes and pods; an invalid one does not affect the others."""
    objects = Objects(documents)
    expanded = objects.expanded(())
    problems = (*objects.problems(), *expanded.problems)
    return DecodedObjects(objects.nodes(), expanded.pods, problems, objects.warnings())


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
