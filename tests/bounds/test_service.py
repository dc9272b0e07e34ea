"""The service's kernels with every index checked, on what may be asked."""

import pytest
from tests.bounds.clusters import SHAPES, workload

from steersman.apps.service.scoring.node_scorer import NodeScorer, NodeSet
from steersman.cluster.state import ClusterState
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.registry import resolve
from steersman.workloads.profile import typical_pods


@pytest.mark.parametrize("policy", ["fgd", "kube-default", "random"])
@pytest.mark.parametrize("shape", ["one node", "everything"])
def test_service_scores_stay_in_bounds(shape, policy):
    there = workload(SHAPES[shape], seed=2)
    state = ClusterState(there.nodes)
    node_scorer = NodeScorer(Decider(ClusterView(state, profile=typical_pods(there.pods)), resolve(policy)))
    for pod in there.pods:
        query = node_scorer.query(pod)
        for asked in (None, NodeSet(["unknown"]), NodeSet(["unknown", *state.slots])):
            ranking = node_scorer.ask(query, asked)
            assert len(ranking.scores()) == len(ranking.names)
