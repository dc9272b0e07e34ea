"""Owners of a workload's pods and locations of its nodes, as indices: owners, racks, servers."""

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
    """Indices, -1 for none.

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
    """Locations of nodes, see `Places`."""

    rack: npt.NDArray[np.int64]
    racks: int
    server: npt.NDArray[np.int64]


def places(workload: Workload) -> Places:
    """Return the places of a workload."""
    owner, owners = _numbered((pod.namespace, pod.owner) if pod.owner else None for pod in workload.pods)
    where = node_places(workload.nodes)
    return Places(owner, owners, where.rack, where.racks, where.server)


def node_places(nodes: Sequence[Node | None]) -> NodePlaces:
    """Return racks and servers by the labels `rack` and `server`; an empty slot has none."""
    labels: list[Mapping[str, str]] = [{} if node is None else node.labels for node in nodes]
    rack, racks = _numbered(each.get(RACK) for each in labels)
    server, _ = _numbered((each.get(RACK, ""), each[SERVER]) if SERVER in each else None for each in labels)
    return NodePlaces(rack, racks, server)


def _numbered(names: Iterable[Hashable | None]) -> tuple[npt.NDArray[np.int64], int]:
    """Return an index for each name, in order of first occurrence, and their number."""
    numbers: dict[Hashable, int] = {}
    result = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(result, dtype=np.int64), len(numbers)
