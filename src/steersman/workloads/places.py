"""Who a workload's pods belong to and where its nodes stand, as numbers: owners, racks, servers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


def places(workload: Workload) -> Places:
    """The places of a workload: racks and servers by the labels `rack` and `server` of its nodes."""
    owner, owners = _numbered((pod.namespace, pod.owner) if pod.owner else None for pod in workload.pods)
    rack, racks = _numbered(node.labels.get(RACK) for node in workload.nodes)
    server, _ = _numbered(
        (node.labels.get(RACK, ""), node.labels[SERVER]) if SERVER in node.labels else None for node in workload.nodes
    )
    return Places(owner, owners, rack, racks, server)


def _numbered(names: Iterable[Hashable | None]) -> tuple[npt.NDArray[np.int64], int]:
    """A number for each name, in the order in which they come first, and how many there are."""
    numbers: dict[Hashable, int] = {}
    found = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(found, dtype=np.int64), len(numbers)
