"""Who answers the event loop's questions: a user's own policy, or a network, which is shown what happened since."""

from __future__ import annotations

import numpy as np

from steersman.cluster.state import ClusterState
from steersman.objectives import summary as summed
from steersman.policies.deciding import Cluster
from steersman.policies.encoding import Scene
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.observer import Observer, count_owner, owner_arrays
from steersman.policies.own import OwnPolicy
from steersman.simulation import engine
from steersman.simulation.arrivals import Schedule
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
        scene = Scene(cluster.nodes, cluster.classes, cluster.mix, cluster.fragments, outlook, room)
        self._observer = Observer(policy.view, scene, self._owners, cluster.table.log, cluster.table.logged)

    def choose(self, arrival: int) -> int:
        """The node for an arrival, which fits on some."""
        self._follow()
        self._summarise()
        c, labels = int(self._arrivals.class_id[arrival]), int(self._arrivals.labels_id[arrival])
        allowed = None if self._state.terms.idle else self._state.mask(c, labels)
        return self._policy.choose(self._observer.look(c, int(self._owner[arrival]), allowed), self._groups)

    def _follow(self) -> None:
        """Count where pods of owners came and went since the last look."""
        until = int(self._run.cursor[engine.EVENTS])
        if len(self._owners.running):
            for arrival, outcome, n in self._record.numbers[self._followed : until, : engine.SLOT + 1].tolist():
                if outcome in (engine.BOUND, engine.FINISHED):
                    count_owner(self._owners, int(self._owner[arrival]), n, 1 if outcome == engine.BOUND else -1)
        self._followed = until

    def _summarise(self) -> None:
        """Write the state of the cluster into the summary that is seen."""
        cursor, sums, out = self._run.cursor, self._run.sums, self._observer.summary
        out[summed.NODES_USED] = cursor[engine.NODES_USED]
        out[summed.CPU_SHARE] = sums[engine.CPU_SHARE]
        out[summed.CPU_SQUARE] = sums[engine.CPU_SQUARE]
        out[summed.CPU_TAKEN] = cursor[engine.CPU_USED]
        out[summed.MEMORY_TAKEN] = cursor[engine.MEMORY_USED]
        out[summed.GPU_TAKEN] = cursor[engine.GPU_USED]
        fragmented = 0.0
        for amount in sums[engine.CAUSE :].tolist():  # in the order of the environments' compiled code
            fragmented += amount
        out[summed.FRAGMENTED] = max(fragmented, 0.0)
        out[summed.WAITING] = cursor[engine.WAITING_NOW]
