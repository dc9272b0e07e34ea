"""Who a workload's pods belong to and where its nodes stand, as numbers: owners, racks, servers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node
from steersman.workloads.topology import RACK, SERVER
from steersman.workloads.workload import Workload


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Indices, -1: none.

    Attributes:
        owner: [P] of each pod's owner (a Deployment, a job), of which there are `owners`.
        rack: [N] of each node's rack, of which there are `racks`.
        server: [N] of each node's server; a server's label counts within its rack.
    """

    owner: npt.NDArray[np.int64]
    owners: int
    rack: npt.NDArray[np.int64]
    racks: int
    server: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class NodePlaces:
    """Where nodes stand, see `Places`."""

    rack: npt.NDArray[np.int64]
    racks: int
    server: npt.NDArray[np.int64]


def places(workload: Workload) -> Places:
    """The places of a workload."""
    owner, owners = _numbered((pod.namespace, pod.owner) if pod.owner else None for pod in workload.pods)
    where = node_places(workload.nodes)
    return Places(owner, owners, where.rack, where.racks, where.server)


def node_places(nodes: Sequence[Node | None]) -> NodePlaces:
    """Racks and servers by the labels `rack` and `server`; an empty slot has none."""
    labels: list[Mapping[str, str]] = [{} if node is None else node.labels for node in nodes]
    rack, racks = _numbered(each.get(RACK) for each in labels)
    server, _ = _numbered((each.get(RACK, ""), each[SERVER]) if SERVER in each else None for each in labels)
    return NodePlaces(rack, racks, server)


def _numbered(names: Iterable[Hashable | None]) -> tuple[npt.NDArray[np.int64], int]:
    """A number for each name, in the order in which they come first, and how many there are."""
    numbers: dict[Hashable, int] = {}
    found = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(found, dtype=np.int64), len(numbers)
