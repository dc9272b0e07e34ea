"""What networks are shown of a cluster that lives: what an environment would show of the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node
from steersman.features import View
from steersman.objectives import summary as summed
from steersman.policies.afterstates import afterstates, mark_of
from steersman.policies.base import ScoreQuery
from steersman.policies.deciding import Cluster
from steersman.policies.encoding import OwnerArrays, Scene
from steersman.policies.observer import Observer, owner_arrays, summary_of
from steersman.policies.showing import Seen
from steersman.workloads.places import node_places


class LiveObservations:
    """What there is to see of a cluster.

    Args:
        view: what is seen.
        nodes: [N] the node in each slot.
        cluster: its arrays, which the caller keeps up to date.
    """

    def __init__(self, view: View, nodes: Sequence[Node | None], cluster: Cluster) -> None:
        self.view, self._cluster = view, cluster
        places = node_places(nodes)
        self._groups = np.stack([places.rack, places.server], axis=1).astype(np.int32)
        self._owners: OwnerArrays = owner_arrays(1, places.rack, places.racks)
        self._scene = Scene(
            cluster.nodes,
            cluster.classes,
            cluster.mix,
            cluster.fragments,
            afterstates(mark_of(cluster.mix)),
            cluster.learned.outlook,
            cluster.learned.room,
        )
        self.reset_cache()

    def reset_cache(self) -> None:
        """See `base.Observations`."""
        table = self._cluster.table
        self._observer = Observer(self.view, self._scene, self._owners, table.log, table.logged)

    def observe(self, query: ScoreQuery) -> tuple[Seen, npt.NDArray[np.int32]]:
        """See `base.Observations`."""
        owner = self._count(query.peers)
        until = self._summarise(query.waiting)
        seen = self._observer.look(query.class_id, owner, query.feasible)
        return seen._replace(nodes=seen.nodes[:until], mask=seen.mask[:until]), self._groups[:until]

    def _count(self, peers: Mapping[int, int]) -> int:
        owners = self._owners
        owners.running[0], owners.on_node[0], owners.in_rack[0] = 0, 0, 0
        for slot, count in peers.items():
            owners.running[0] += count
            owners.on_node[0, slot] = count
            if owners.rack[slot] >= 0:
                owners.in_rack[0, owners.rack[slot]] += count
        return 0 if peers else -1

    def _summarise(self, waiting: int) -> int:
        """Write the state of the cluster into the summary that is seen; how many slots there are up to the last node.

        Free slots behind that are room to grow; a free one in between counts as a node that offers nothing.
        """
        cluster, summary = self._cluster, self._observer.summary
        until = int(np.flatnonzero(cluster.nodes.allocatable.any(axis=1))[-1]) + 1
        summary[:] = summary_of(cluster.nodes, cluster.fragments.total.sum(), waiting)
        summary[summed.NODES] = until
        return until
