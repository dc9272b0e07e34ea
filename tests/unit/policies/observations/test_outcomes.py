"""The state that is told of a placement beforehand is the one that the placement leads to."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.small_clusters import SHAPES, workload

from steersman.cluster.arrays import best_devices
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.objectives import summary
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER
from steersman.policies.heuristics import RandomPolicy
from steersman.policies.live_observations import LiveObservations
from steersman.workloads.profile import typical_pods


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_outcome_is_the_state_after_the_placement(shape: str, seed: int) -> None:
    given = workload(SHAPES[shape], seed=seed)
    state = ClusterState(given.nodes)
    decider = Decider(ClusterView(state, profile=typical_pods(given.pods)), RandomPolicy("random"))
    rng, checked = np.random.default_rng(seed), 0
    on_node: dict[int, int] = {}
    for i, pod in enumerate(given.pods):
        owner_pods = OwnerPods(dict(on_node)) if i % 2 else OwnerPods({})
        query = PodQuery(state.class_id(pod.pod_class), state.labels_id(pod), owner_pods)
        nodes = decider.candidates(query)
        if not nodes.feasible.any():
            continue
        observations = decider.live.observations(CLUSTER)
        assert isinstance(observations, LiveObservations)
        observations.observe(query, nodes)
        slot = int(rng.choice(np.flatnonzero(nodes.feasible)))
        arrays_before = [np.array(array) for array in state.arrays]
        before, after = observations.outcome(query, nodes, slot)
        for array, then in zip(state.arrays, arrays_before, strict=True):
            np.testing.assert_array_equal(array, then)
        devices = int(best_devices(state.arrays, state.class_arrays, query.class_id, slot))
        state.place(f"pod-{i}", query.class_id, slot, devices, query.labels_id)
        decider.changed(slot)
        decider.follow()
        observations = decider.live.observations(CLUSTER)
        assert isinstance(observations, LiveObservations)
        observations.observe(query, nodes)
        now = observations.state()
        compared = [column for column in range(summary.COLUMNS) if column != summary.RACK_LOCALITY]
        np.testing.assert_allclose(after[compared], now[compared], rtol=1e-9, atol=1e-6)
        assert (before[summary.CPU_TAKEN] == now[summary.CPU_TAKEN]) == (pod.pod_class.requests.cpu_milli == 0)
        assert 0.0 < after[summary.RACK_LOCALITY] <= 1.0
        on_node[slot] = on_node.get(slot, 0) + 1
        checked += 1
    assert checked > 1
