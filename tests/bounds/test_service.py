"""The service's kernels with every index checked, on what may be asked."""

import json

import numpy as np
import pytest
from tests.bounds.clusters import SHAPES, workload

from steersman.cluster.state import ClusterState
from steersman.policies.decider import Decider
from steersman.policies.registry import resolve
from steersman.service.kernels.extending import LONGEST_SCORE, find_nodes, node_texts, write_answer
from steersman.service.opinions import NodeSet, Opinions
from steersman.workloads.mix import typical_pods

BODIES = [
    "",
    "[",
    "[]",
    '["',
    '["a',
    '["a"',
    '["a",',
    '["a","a"]',
    '["b","a"]',
    '["zz"]',
    '["a"]]',
    '"a"',
    '[""]',
    "[7]",
]


@pytest.mark.parametrize("body", BODIES)
def test_whatever_is_sent_as_names(body):
    texts = node_texts(["a", "", "b", "a-node-with-a-long-name"])
    for _ in range(2):
        slots = np.full(4, -1)
        found = find_nodes(texts, np.frombuffer(body.encode(), dtype=np.uint8), slots)
        assert not found or len(json.loads(body)) == found


@pytest.mark.parametrize("names", [["a"], ["a", "b" * 200, "c"]])
def test_answers_that_fill_all_of_their_room(names):
    rows, count = node_texts(names).rows, len(names)
    answer = np.zeros(1 + count * (rows.shape[1] + LONGEST_SCORE), dtype=np.uint8)
    assert write_answer(rows, np.arange(count), np.full(count, 10), answer)
    assert write_answer(rows, np.array([-1]), np.array([1]), answer) == 0


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
