"""A decider that follows a cluster decides as one that is described as the cluster is now."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.nightly import examples

from steersman.cluster.model import Constraints, Node, PodClass, PodSelector, Requests, TopologySpread
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.provisional import provisional_numbers
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.policies.base import default_member
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView, LiveCore
from steersman.policies.heuristics import RandomPolicy
from steersman.policies.registry import resolve
from steersman.workloads.profile import typical_pods

POLICIES = ("fgd=3,best-fit=2", "greedy-forecast", "kube-default", "random")


def check(decider: Decider, query: PodQuery, view: ClusterView) -> None:
    fresh = Decider(view, decider.policy)
    expected = view.state.mask(query.class_id, query.labels_id)
    for each in (fresh, decider):
        np.testing.assert_array_equal(each.live.decider.mask(query.class_id, query.labels_id), expected)
    if decider.policy.name != "kube-default":  # its search goes on where the last one ended
        np.testing.assert_array_equal(decider.scores(query), fresh.scores(query))


@pytest.mark.parametrize("name", POLICIES)
def test_a_decider_follows_nodes_labels_classes_and_pods_of_the_moment(name: str) -> None:
    checked = 0
    for seed in range(examples(12)):
        draws, cluster = random.Random(seed), FileCluster(sequence(RandomDraws(seed), 60))
        workload = cluster.workload
        nodes, later = list(workload.nodes), list(workload.nodes[2:])
        state = ClusterState(nodes[:2])
        view = ClusterView(state, profile=typical_pods(workload.pods), selectors=lambda w=workload: w.services)
        decider, placed = Decider(view, default_member(resolve(name))), []
        for i, pod in enumerate(workload.pods):
            match draws.randrange(6):
                case 0 if later:
                    decider.changed(state.add_node(later.pop()))
                case 1 if len(state.slots) > 2:
                    gone = draws.choice(sorted(state.slots))
                    decider.changed(state.slot(gone))
                    later.append(state.nodes[state.slot(gone)])
                    state.remove_node(gone)
                    placed = [each for each in placed if each in state.placements]
                case 2:
                    node = state.nodes[state.slot(draws.choice(sorted(state.slots)))]
                    zones = {"zone": draws.choice("ab"), "topology.kubernetes.io/zone": draws.choice("cd")}
                    labels = {**node.labels, **zones}
                    decider.changed(state.update_node(replace(node, labels=labels, pods=node.pods + 1)))
                case 3 if placed:
                    decider.changed(state.remove(placed.pop(draws.randrange(len(placed)))).slot)
            if draws.random() < 0.4:
                other = draws.choice(workload.pods)
                with provisional_numbers(state):
                    asked = replace(other, labels={**other.labels, "app": f"asked-{i}"})
                    query = PodQuery(state.class_id(asked.pod_class), state.labels_id(asked))
                    guest = decider.guest()
                    check(guest, query, view)
            query = PodQuery(state.class_id(pod.pod_class), state.labels_id(pod))
            check(decider, query, view)
            choice = decider.choose(query)
            checked += 1
            if choice is not None:
                state.place(f"{i}", query.class_id, choice.slot, choice.devices, query.labels_id)
                decider.changed(choice.slot)
                placed.append(f"{i}")
    assert checked > 200


def test_a_number_that_is_taken_back_goes_to_a_topology_key_with_fewer_domains() -> None:
    state = ClusterState([Node(f"n{i}", 8000, 1 << 34, labels={"many": f"{i}", "few": "a"}) for i in range(5)])
    decider = Decider(ClusterView(state), resolve("best-fit"))

    def spread(key: str) -> PodQuery:
        terms = (TopologySpread(1, key, True, PodSelector((), None)),)
        return PodQuery(state.class_id(PodClass(Requests(100, 0), Constraints(spread=terms))))

    with provisional_numbers(state):
        assert decider.guest().choose(spread("many")) is not None
    assert decider.choose(spread("few")) is not None


def test_random_numbers_go_on_when_a_cluster_is_described_anew() -> None:
    """A node with a resource of its own needs new arrays, after which the draws go on, instead of beginning again."""
    workload = FileCluster(sequence(RandomDraws(1), 20)).workload
    first = workload.pods[0]
    anywhere = replace(first.constraints, node_name="", node_selector=(), node_affinity=None)
    free = replace(first, pod_class=replace(first.pod_class, constraints=anywhere))
    draws = {}
    for is_renewed in (False, True):
        state = ClusterState([replace(node, taints=(), unschedulable=False) for node in workload.nodes])
        decider = Decider(ClusterView(state, seed=5), RandomPolicy())
        query, slots = PodQuery(state.class_id(free.pod_class), state.labels_id(free)), []
        for i in range(30):
            if is_renewed and i == 10:
                decider.live._is_broken = True
            choice = decider.choose(query)
            slots.append(None if choice is None else choice.slot)
        draws[is_renewed] = slots
    assert draws[False] == draws[True]


def test_a_change_that_the_core_refuses_is_followed_by_a_new_description(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = FileCluster(sequence(RandomDraws(2), 20)).workload
    state = ClusterState(workload.nodes)
    decider = Decider(ClusterView(state), resolve("best-fit"))
    with monkeypatch.context() as patch:
        patch.setattr(LiveCore, "_described_numbers", lambda _: {"kept": np.zeros(3, dtype=np.int64)})
        query = PodQuery(state.class_id(workload.pods[0].pod_class), state.labels_id(workload.pods[0]))
        with pytest.raises(SteersmanError, match=r"^kept: expected 8 values, has 3$"):
            decider.choose(query)
    np.testing.assert_array_equal(decider.scores(query) > -np.inf, state.mask(query.class_id, query.labels_id))
