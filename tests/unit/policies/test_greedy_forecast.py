"""`greedy-forecast`: a built-in policy that takes the node where what is expected to be lost grows least."""

import numpy as np
import pytest

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import GPU
from steersman.policies.greedy_forecast import NAME
from steersman.policies.registry import resolve
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import typical_pods
from steersman.workloads.workload import Workload


@pytest.fixture(scope="module")
def workload() -> Workload:
    whole = embedded("gpushare40")
    return Workload("few", whole.nodes[::30], whole.pods[::20])


def test_greedy_forecast_minimises_growth_of_forecasts(workload):
    state = ClusterState(workload.nodes)
    decider = Decider(ClusterView(state, profile=typical_pods(workload.pods)), resolve(NAME))
    column = GPU.node_column
    for i, pod in enumerate(workload.pods[:150]):
        c = state.class_id(pod.pod_class)
        scores = decider.scores(PodQuery(c))
        rows = decider.live.decider.features(c)
        growth = (rows[:, column("filled_idle_change")] + rows[:, column("gpu_filled_idle_change")]) / 2
        if pod.requests.gpu_count == 1 and pod.requests.gpu_milli < 1000:
            growth += rows[:, column("lost_planned_change")] / 2
        fits = np.isfinite(scores)
        np.testing.assert_allclose(-scores[fits], growth[fits], rtol=1e-6, atol=1e-6)
        choice = decider.choose(PodQuery(c))
        if choice is not None:
            state.place(f"{i}", c, choice.slot, choice.devices)
            decider.changed(choice.slot)
    assert len(state.placements) > 80
