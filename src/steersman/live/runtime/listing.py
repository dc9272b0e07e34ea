"""What a live cluster's API server lists, read once: its version, nodes, pods, and devices offered by DRA."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.claims import DeviceClass, ResourceClaim, ResourceSlice
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.cache.device_claims import CLAIMS_PATH, CLASSES_PATH, SLICES_PATH
from steersman.kubernetes.client import ApiError, Client, Listed
from steersman.kubernetes.watch import REFUSALS
from steersman.policies.kube_scheduler.minors import parse_version
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"
CORE = "v1"
_COLLECTIONS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    (CLASSES_PATH, DeviceClass),
    (SLICES_PATH, ResourceSlice),
    (CLAIMS_PATH, ResourceClaim),
)

log = structlog.get_logger("reading")


def documents(listed: Listed | Iterable[msgspec.Raw], kind: str, version: str = CORE) -> list[Document]:
    """Return the objects of a list as documents; the API omits their kind and version, so both are added."""
    items = listed.items if isinstance(listed, Listed) else listed
    return [
        Document({"apiVersion": version, "kind": kind, **msgspec.json.decode(raw)}, "the cluster", "") for raw in items
    ]


@dataclass(frozen=True, slots=True)
class DecodedObjects:
    """Valid nodes and pods of a list, and the problems of the invalid ones."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    problems: tuple[InputError, ...]
    warnings: tuple[str, ...]


def decode_objects(documents: Iterable[Document]) -> DecodedObjects:
    """Decode nodes and pods by the rules for files.

    Objects outside the model (an unregistered node, a malformed annotation) are left out with a warning, as the
    scheduler does: one bad object must not keep a command from working with the others.
    """
    objects = Objects(documents)
    expanded = objects.expanded(())
    problems = (*objects.problems(), *expanded.problems)
    return DecodedObjects(objects.nodes(), expanded.pods, problems, objects.warnings())


async def read_nodes(client: Client) -> tuple[Node, ...]:
    """List the cluster's nodes and return the valid ones. Raises SteersmanError: there is no valid node."""
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


async def list_device_offers(client: Client, nodes: Collection[str] | None = None) -> DeviceOffers:
    """Return what nodes offer by DRA: nothing where there is no DeviceClass, or a collection may not be listed."""
    found: list[list[Any]] = []
    for path, kind in _COLLECTIONS:
        try:
            listed = await client.list(path)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return DeviceOffers()
        found.append([msgspec.json.decode(raw, type=kind) for raw in listed.items])
        # Most clusters have no DeviceClass, and are spared the two large lists.
        if not found[0]:
            return DeviceOffers()
    return device_offers(found[0], found[1], found[2], nodes)


async def server_version(client: Client) -> str:
    """Return the version of the API server, such as `v1.36.3+k3s1`."""
    return version_of(await client.get("/version"))


def version_of(answer: Mapping[str, Any]) -> str:
    """Return the version in an answer to `/version`. Raises SteersmanError: it names none."""
    version = str(answer.get("gitVersion", ""))
    try:
        parse_version(version)
    except ValueError:
        problem = "does not name the version of an API server"
        raise SteersmanError(f"GET /version: the answer {problem}; correct the server of the kubeconfig") from None
    return version
