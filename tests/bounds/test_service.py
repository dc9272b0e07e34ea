"""The service's kernels with every index checked, on what may be asked."""

import pytest
from tests.bounds.clusters import SHAPES, workload

from steersman.cluster.state import ClusterState
from steersman.policies.decider import Decider
from steersman.policies.registry import resolve
from steersman.service.opinions import NodeSet, Opinions
from steersman.workloads.mix import typical_pods


@pytest.mark.parametrize("policy", ["fgd", "kube-default", "random"])
@pytest.mark.parametrize("shape", ["one node", "everything"])
def test_opinions(shape, policy):
    there = workload(SHAPES[shape], seed=2)
    state = ClusterState(there.nodes)
    opinions = Opinions(Decider(state, resolve(policy), mix=typical_pods(there.pods)))
    for pod in there.pods:
        numbers = opinions.number(pod)
        for asked in (None, NodeSet(["unknown"]), NodeSet(["unknown", *state.slots])):
            ranking = opinions.ask(*numbers, asked, dict)
            assert len(ranking.scores()) == len(ranking.names)
