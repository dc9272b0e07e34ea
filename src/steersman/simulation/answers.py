"""Who answers the event loop's questions: a user's own policy, or a network, which is shown what happened since."""

from __future__ import annotations

import numpy as np

from steersman.cluster.state import ClusterState
from steersman.policies.afterstates import afterstates, mark_of
from steersman.policies.deciding import Cluster
from steersman.policies.encoding import Scene
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.observer import Observer, owner_arrays
from steersman.policies.own import OwnPolicy
from steersman.simulation import engine
from steersman.simulation.arrivals import Schedule
from steersman.simulation.following import follow
from steersman.workloads.places import Places


class OwnAnswers:
    """A policy written in Python at work in a run."""

    def __init__(self, policy: OwnPolicy, state: ClusterState, arrivals: engine.Arrivals) -> None:
        self._policy, self._state, self._arrivals = policy, state, arrivals

    def choose(self, arrival: int) -> int:
        """The node for an arrival, which fits on some."""
        class_id = int(self._arrivals.class_id[arrival])
        return self._policy.choose(class_id, self._state.mask(class_id, int(self._arrivals.labels_id[arrival])))


class NetworkAnswers:
    """A network at work in a run: follows what happens, so that it sees what an environment would show.

    Args:
        policy: the network.
        state: the cluster of the run.
        cluster, arrivals, run, record: of the event loop.
        plan: what arrives.
        places: of the workload.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        state: ClusterState,
        cluster: Cluster,
        arrivals: engine.Arrivals,
        run: engine.Run,
        record: engine.Record,
        plan: Schedule,
        places: Places,
    ) -> None:
        self._policy, self._state, self._arrivals, self._run, self._record = policy, state, arrivals, run, record
        self._owner = places.owner[plan.pods]
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        self._owners = owner_arrays(places.owners, places.rack[plan.nodes], places.racks)
        self._followed = 0
        outlook, room = cluster.learned.outlook, cluster.learned.room
        known = afterstates(mark_of(cluster.mix))
        scene = Scene(cluster.nodes, cluster.classes, cluster.mix, cluster.fragments, known, outlook, room)
        self._observer = Observer(policy.view, scene, self._owners, cluster.table.log, cluster.table.logged)

    def choose(self, arrival: int) -> int:
        """The node for an arrival, which fits on some."""
        self._follow()
        c, labels = int(self._arrivals.class_id[arrival]), int(self._arrivals.labels_id[arrival])
        allowed = None if self._state.terms.idle else self._state.mask(c, labels)
        return self._policy.choose(self._observer.look(c, int(self._owner[arrival]), allowed), self._groups)

    def _follow(self) -> None:
        """Count where pods of owners came and went since the last look, and see how the cluster is."""
        cursor, sums, numbers, summary = self._run.cursor, self._run.sums, self._record.numbers, self._observer.summary
        follow(self._owners, self._owner, numbers, cursor, sums, self._followed, summary)
        self._followed = int(cursor[engine.EVENTS])
