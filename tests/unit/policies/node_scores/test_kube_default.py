"""kube-default against values worked by hand, kube-scheduler's own unit tests, and a slow, plain-Python scheduler."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tests.support.kube_decisions import KubeDecisions

from steersman.cluster.constraints.node import holds, tolerates
from steersman.cluster.model import (
    Constraints,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    PreferredNodeTerm,
    PreferredPodTerm,
    ProfileRules,
    Requests,
    Requirement,
    Taint,
    Toleration,
    TopologySpread,
)
from steersman.cluster.state import ClusterState
from steersman.policies.kube_scheduler.arrays import HOSTNAME, ZONE, snapshot_order
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.workloads.workload import SpreadSelectors

GI, MI = 1 << 30, 1 << 20
WEIGHT_OF = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def make_node(name, cpu=8000, memory=32 * GI, taints=(), images=None, unschedulable=False, **labels):
    named = {key.replace("host", HOSTNAME).replace("zone", ZONE): value for key, value in labels.items()}
    return Node(name, cpu, memory, labels=named, taints=taints, images=images or {}, unschedulable=unschedulable)


def make_pod(name="pod", requests=None, namespace="default", labels=None, **constraints):
    pod_class = PodClass(requests or Requests(100, 128 * MI), Constraints(**constraints))
    return Pod(name, pod_class, namespace=namespace, labels=labels or {})


def select(namespace="default", **labels):
    """A pod selector for labels; a value None means any."""
    wanted = (Requirement(key, *(("In", (value,)) if value else ("Exists",))) for key, value in labels.items())
    return PodSelector(tuple(wanted), frozenset({namespace}))


def without(name):
    return ProfileRules(disabled_filters=frozenset({name}))


class World:
    """A cluster with pods on it, and its scheduler."""

    def __init__(self, nodes, placed=(), services=(), percentage=0):
        self.state = ClusterState(nodes)
        self.kube = KubeDecisions(self.state, SpreadSelectors(tuple(services)), KubeProfile(percentage=percentage))
        for i, (slot, pod) in enumerate(placed):
            self.put(f"placed-{i}", pod, slot)

    def ids(self, pod):
        return self.state.class_id(pod.pod_class), self.state.labels_id(pod)

    def put(self, name, pod, slot):
        c, labels = self.ids(pod)
        self.state.place(name, c, slot, labels_id=labels, force=True)

    def part(self, plugin, pod, failed=()):
        """A plugin's normalised scores of the nodes; `failed` slots are not feasible for some other reason."""
        c, labels = self.ids(pod)
        mask = self.state.mask(c, labels)
        mask[list(failed)] = False
        weighted = self.kube.breakdown(c, labels, mask)[plugin]
        return [score if score < 0 else score / WEIGHT_OF[plugin] for score in weighted.tolist()]

    def scores(self, pod):
        return self.kube.scores(*self.ids(pod)).tolist()

    def choose(self, pod):
        return self.kube.choose(*self.ids(pod))

    @property
    def start(self):
        return int(self.kube.start)


# Which nodes are looked at --------------------------------------------------------------------------------------------


def flat(count, every=1):
    """Nodes without labels; those whose number `every` does not divide are cordoned."""
    return [make_node(f"n{i}", unschedulable=i % every > 0) for i in range(count)]


@pytest.mark.parametrize(
    ("nodes", "percentage", "kept"),
    [
        (99, 0, 99),  # fewer than 100: all
        (100, 0, 100),
        (217, 0, 106),  # 50 - 217 // 125 = 49 %
        (1000, 0, 420),  # 50 - 8 = 42 %
        (1213, 0, 497),  # 50 - 9 = 41 %: 497.33
        (5000, 0, 500),  # 50 - 40 = 10 %
        (5750, 0, 287),  # 50 - 46 = 4, at least 5 %
        (1213, 100, 1213),
        (1213, 1, 100),  # at least 100
        (99, 1, 99),
    ],
)
def test_nodes_to_find(nodes, percentage, kept):
    scores = World(flat(nodes), percentage=percentage).scores(make_pod())
    assert sum(score >= 0 for score in scores) == kept


def test_the_next_search_starts_where_the_last_one_stopped():
    simulator = World(flat(1000))
    pod = make_pod()
    seen = []
    for _ in range(4):
        seen.append(np.flatnonzero(np.array(simulator.scores(pod)) >= 0))
        simulator.choose(pod)
    assert seen[0].tolist() == list(range(420))
    assert seen[1].tolist() == list(range(420, 840))
    assert seen[2].tolist() == [*range(260), *range(840, 1000)]
    assert seen[3].tolist() == list(range(260, 680))
    assert simulator.start == 4 * 420 % 1000


def test_infeasible_nodes_count_as_visited_until_one_surplus_feasible_node():
    # 250 nodes: 48 % are 120. Even slots are feasible: the 120th is 238, the 121st, at 240, ends the search; visited
    # are 0..239, of which 120 failed.
    simulator = World(flat(250, every=2))
    scores = simulator.scores(make_pod())
    assert [slot for slot, score in enumerate(scores) if score >= 0] == list(range(0, 240, 2))
    assert simulator.start == 0
    simulator.choose(make_pod())
    assert simulator.start == 240
    # Next from 240: 5 to the end, then 0..228, and 230 is one too many.
    simulator.choose(make_pod())
    assert simulator.start == 230


def test_search_start_stays_if_all_nodes_are_visited():
    simulator = World(flat(99))
    simulator.choose(make_pod())
    assert simulator.start == 0
    simulator = World(flat(500))
    simulator.kube.start = 123
    assert simulator.choose(make_pod(requests=Requests(9000, GI))) == -1
    assert simulator.start == 123


def test_pod_with_named_nodes_visits_only_those():
    names = ("n7", "n300", "unknown")
    terms = tuple(NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (name,)),)) for name in names)
    simulator = World(flat(500))
    assert simulator.choose(make_pod(node_affinity=terms[1:2])) == 300
    assert simulator.start == 1  # one node visited
    assert [slot for slot, s in enumerate(simulator.scores(make_pod(node_affinity=terms))) if s >= 0] == [7, 300]
    simulator.choose(make_pod(node_affinity=terms))
    assert simulator.start == 3
    assert simulator.choose(make_pod(node_affinity=terms[2:])) == -1
    assert simulator.start == 3


def test_snapshot_order_takes_zones_in_turn():
    zones = ["a", "a", "a", "b", None, "c", "c"]
    nodes = [None if zone is None else make_node(f"n{i}", zone=zone) for i, zone in enumerate(zones)]
    assert snapshot_order(nodes, [0, 1, 2, 3, 5, 6]) == [0, 3, 5, 1, 6, 2]
    assert snapshot_order(nodes, [6, 2, 1, 3, 0, 5]) == [6, 2, 3, 5, 1, 0]


def test_zones_are_regions_and_zones_and_old_labels_win():
    old, new = "failure-domain.beta.kubernetes.io/zone", ZONE
    region = "topology.kubernetes.io/region"
    labels = [{new: "a"}, {new: "b", old: "a"}, {new: "a", old: "b"}, {new: "a", region: "r"}, {new: "a", old: ""}, {}]
    nodes = [Node(f"n{i}", 1, 1, labels=each) for i, each in enumerate(labels)]
    # Zones: a (0, 1), b (2), r/a (3), none (4, 5).
    assert snapshot_order(nodes, range(6)) == [0, 2, 3, 4, 1, 5]


# Which of them wins ---------------------------------------------------------------------------------------------------


def preferring(wins):
    """Seven nodes and a pod that prefers those in `wins`."""
    nodes = [make_node(f"n{i}", **({"best": "yes"} if i in wins else {})) for i in range(7)]
    term = NodeSelectorTerm((Requirement("best", "Exists"),))
    return World(nodes), make_pod(preferred_nodes=(PreferredNodeTerm(10, term),))


@pytest.mark.parametrize(
    ("wins", "chosen"),
    [
        (set(), 0),
        ({0, 1, 2, 3, 4, 5, 6}, 0),
        ({1, 2}, 1),
        ({2, 3}, 3),  # preorder of the heap is 0, 1, 3, 4, 2, 5, 6
        ({2, 4}, 4),
        ({2, 5, 6}, 2),
        ({5, 6}, 5),
        ({3, 4}, 3),
        ({6}, 6),
    ],
)
def test_ties_go_to_the_first_in_preorder(wins, chosen):
    simulator, pod = preferring(wins)
    assert simulator.kube.top_scorers(*simulator.ids(pod)) == (wins or set(range(7)))
    assert simulator.choose(pod) == chosen


def heap_pop(totals):
    """Index of what Go's container/heap takes off first: Init, then Pop."""
    heap = list(enumerate(totals))

    def down(i, size):
        while (child := 2 * i + 1) < size:
            if child + 1 < size and heap[child + 1][1] > heap[child][1]:
                child += 1
            if not heap[child][1] > heap[i][1]:
                return
            heap[i], heap[child] = heap[child], heap[i]
            i = child

    for i in reversed(range(len(heap) // 2)):
        down(i, len(heap))
    return heap[0][0]


def test_a_single_feasible_node_is_not_scored():
    simulator = World(flat(5, every=5))
    assert simulator.scores(make_pod()) == [0, -1, -1, -1, -1]
    assert set(simulator.kube.breakdown(*simulator.ids(make_pod()))) == set(WEIGHT_OF)
    assert simulator.choose(make_pod()) == 0
    assert simulator.kube.top_scorers(*simulator.ids(make_pod())) == {0}


def test_no_feasible_node_is_refused():
    simulator = World(flat(3))
    pod = make_pod(requests=Requests(9000, GI))
    assert simulator.choose(pod) == -1
    assert simulator.scores(pod) == [-1, -1, -1]
    assert simulator.kube.top_scorers(*simulator.ids(pod)) == frozenset()


# Totals ---------------------------------------------------------------------------------------------------------------


def test_all_plugins_add_up_with_their_weights():
    taint = Taint("soft", "", "PreferNoSchedule")
    nodes = [
        make_node("n0", images={"a:1": 500 * MI}, host="n0", zone="a", disk="ssd"),
        make_node("n1", host="n1", zone="a", taints=(taint,)),
        make_node("n2", host="n2", zone="b", disk="ssd", arch="arm"),
    ]
    terms = [NodeSelectorTerm((Requirement(key, "Exists"),)) for key in ("disk", "arch")]
    pod = make_pod(
        requests=Requests(),
        labels={"app": "web"},
        preferred_nodes=(PreferredNodeTerm(20, terms[0]), PreferredNodeTerm(30, terms[1])),
        preferred_affinity=(PreferredPodTerm(10, PodAffinityTerm(select(app="web"), ZONE)),),
        images=("a:1",),
    )
    # Two pods on n0, one on n2 (page, Ex1: 75, 100, 100 with 2, 0, 1; here zones a, a, b and pods 2, 0, 1).
    web = make_pod(requests=Requests(), labels={"app": "web"})
    simulator = World(nodes, [(0, web), (0, web), (2, web)], [("default", (("app", "web"),))])
    assert simulator.part("TaintToleration", pod) == [100, 0, 100]
    assert simulator.part("NodeAffinity", pod) == [40, 0, 100]
    assert simulator.part("ImageLocality", pod) == [14, 0, 0]
    assert simulator.part("PodTopologySpread", pod) == [75, 100, 100]
    assert simulator.part("InterPodAffinity", pod) == [100, 100, 0]  # zone a: 20, zone b: 10
    fit = simulator.part("NodeResourcesFit", pod)
    assert simulator.scores(pod) == [
        300 + 80 + fit[0] + 150 + 200 + 14,
        0 + 0 + fit[1] + 200 + 200 + 0,
        300 + 200 + fit[2] + 200 + 0 + 0,
    ]


@pytest.mark.parametrize("is_default", [True, False])
def test_terminating_pods_do_not_count_in_spread_scores_but_in_affinity(is_default):
    nodes = [make_node(name, host=name) for name in ("a", "b")]
    soft = TopologySpread(1, HOSTNAME, False, select(app="web"))
    near = PreferredPodTerm(1, PodAffinityTerm(select(app="web"), HOSTNAME))
    old = replace(make_pod(labels={"app": "web"}), terminating=True)
    services = [("default", (("app", "web"),))] if is_default else []
    world = World(nodes, [(0, old), (0, old), (1, make_pod(labels={"app": "web"}))], services)
    new = make_pod(labels={"app": "web"}, spread=() if is_default else (soft,), preferred_affinity=(near,))
    spread, affinity = (world.part(plugin, new) for plugin in ("PodTopologySpread", "InterPodAffinity"))
    assert spread[0] > spread[1]
    assert affinity == [100, 0]


# Taints, preferred nodes and images over the nodes kept ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "scores"),
    [([0, 0, 0], [100, 100, 100]), ([0, 1, 3], [100, 67, 0]), ([2, 2, 1], [0, 0, 50]), ([1, 1], [0, 0])],
)
def test_soft_taints_are_normalised_over_the_feasible_nodes(counts, scores):
    soft = [Taint(f"t{i}", "", "PreferNoSchedule") for i in range(9)]
    nodes = [make_node(f"n{i}", taints=tuple(soft[:count])) for i, count in enumerate(counts)]
    worst = make_node("infeasible", taints=tuple(soft), unschedulable=True)
    assert World([*nodes, worst]).part("TaintToleration", make_pod()) == [*scores, -1]
    tolerant = make_pod(tolerations=(Toleration("", "Exists", "", "PreferNoSchedule"),))
    assert World([*nodes, worst]).part("TaintToleration", tolerant)[:-1] == [100] * len(nodes)


@pytest.mark.parametrize(
    ("weights", "scores"),
    [([0, 30, 100], [0, 30, 100]), ([7, 3, 0], [100, 42, 0]), ([0, 0], [0, 0]), ([50, 29, 1], [100, 58, 2])],
)
def test_preferred_nodes_are_normalised_by_the_maximum(weights, scores):
    nodes = [make_node(f"n{i}", number=str(i)) for i in range(len(weights))]
    terms = [NodeSelectorTerm((Requirement("number", "In", (str(i),)),)) for i in range(len(weights))]
    preferred = tuple(PreferredNodeTerm(w, t) for w, t in zip(weights, terms, strict=True) if w)
    assert World(nodes).part("NodeAffinity", make_pod(preferred_nodes=preferred)) == scores


# PodTopologySpread: values of kube-scheduler's scoring_test.go --------------------------------------------------------

FOO, BAR, BOTH = {"foo": "x"}, {"bar": "x"}, {"foo": "x", "bar": "x"}


def soft(max_skew, key, **label):
    return TopologySpread(max_skew, key, False, select(**(label or {"foo": None})))


BAR_HOST, BAR_ZONE = soft(1, HOSTNAME, bar=None), soft(1, ZONE, bar=None)


def spread_world(of_nodes, zones=None, services=()):
    """Nodes 0.. with hostname and zone; `of_nodes` are the labels of the pods on each."""
    nodes = [make_node(f"n{i}", host=f"n{i}", **({"zone": zones[i]} if zones else {})) for i in range(len(of_nodes))]
    placed = [(slot, make_pod(labels=labels)) for slot, pods in enumerate(of_nodes) for labels in pods]
    return World(nodes, placed, services)


@pytest.mark.parametrize(
    ("counts", "max_skew", "failed", "scores"),
    [
        ([2, 1, 0, 3], 2, [], [33, 66, 100, 16]),
        ([4, 3, 2, 1], 3, [], [44, 66, 77, 100]),
        ([4, 2, 1, 3], 1, [3], [33, 83, 100, -1]),
        ([0, 0, 0], 1, [], [100, 100, 100]),
        ([1, 1, 1], 1, [], [100, 100, 100]),
    ],
)
def test_spread_by_hostname(counts, max_skew, failed, scores):
    simulator = spread_world([[FOO] * count for count in counts])
    pod = make_pod(labels=FOO, spread=(soft(max_skew, HOSTNAME),))
    assert simulator.part("PodTopologySpread", pod, failed) == scores


@pytest.mark.parametrize(
    ("of_nodes", "spread", "failed", "scores"),
    [
        ([4, 2, 1, 3], (soft(1, ZONE),), [3], [75, 75, 100, -1]),
        ([2, 1, 2, 4], (soft(1, ZONE), soft(1, HOSTNAME)), [1, 3], [100, -1, 63, -1]),
        ([[BOTH, FOO], [BOTH], [], [FOO, BOTH, FOO]], (soft(1, ZONE), BAR_ZONE), [1, 3], [85, -1, 100, -1]),
        ([[FOO], [BOTH], [], [FOO, BAR]], (soft(1, ZONE), BAR_HOST), [], [60, 20, 100, 60]),
        ([[], [BAR], [FOO], [BOTH]], (soft(1, ZONE), BAR_HOST), [], [100, 60, 40, 0]),
        ([[FOO], [BOTH], [], [FOO, BAR]], (soft(1, ZONE), BAR_HOST), [3], [50, 25, 100, -1]),
    ],
)
def test_spread_by_zone_and_hostname(of_nodes, spread, failed, scores):
    of_nodes = [[FOO] * each if isinstance(each, int) else each for each in of_nodes]
    pod = make_pod(labels=BOTH, spread=spread)
    assert spread_world(of_nodes, "1122").part("PodTopologySpread", pod, failed) == scores


def test_spread_ignores_nodes_without_the_key():
    # kube-scheduler's own: 4 pods and 1 on the nodes with hostnames, weight ln 4: 5.5 -> 6, 1.4 -> 1.
    nodes = [make_node("n0", host="n0"), make_node("n1", other="n1"), make_node("n2", host="n2")]
    placed = [(0, make_pod(labels=FOO))] * 4 + [(1, make_pod(labels=FOO))] * 2 + [(2, make_pod(labels=FOO))]
    pod = make_pod(labels=FOO, spread=(soft(1, HOSTNAME),))
    assert World(nodes, placed).part("PodTopologySpread", pod) == [16, 0, 100]
    assert World([nodes[1], make_node("n3")]).part("PodTopologySpread", pod) == [0, 0]


@pytest.mark.parametrize(("honor", "scores"), [(True, [0, 33, 100]), (False, [66, 100, 100])])
def test_spread_counts_over_the_nodes_it_includes(honor, scores):
    # Every node is feasible here, for the selector is only looked at by the spread (as in kube-scheduler's own test).
    nodes = [make_node("n0", node="a", foo="x"), make_node("n1", node="b", foo="x"), make_node("n2", node="c")]
    placed = [(slot, make_pod(labels=FOO)) for slot in (0, 0, 1, 2)]
    spread = TopologySpread(1, "node", False, select(foo="x"), honor_node_affinity=honor)
    pod = make_pod(labels=FOO, node_selector=(("foo", "x"),), spread=(spread,), profile=without("NodeAffinity"))
    simulator = World(nodes, placed)
    weighted = simulator.kube.breakdown(*simulator.ids(pod))["PodTopologySpread"]
    assert (weighted / 2).tolist() == scores


@pytest.mark.parametrize(("honor", "scores"), [(True, [0, 33, 100]), (False, [66, 100, 100])])
def test_spread_honours_taints_on_request(honor, scores):
    taint = Taint("t", "", "NoSchedule")
    nodes = [make_node("n0", node="a"), make_node("n1", node="b"), make_node("n2", node="c", taints=(taint,))]
    placed = [(slot, make_pod(labels=FOO)) for slot in (0, 0, 1, 2)]
    spread = TopologySpread(1, "node", False, select(foo="x"), honor_node_taints=honor)
    pod = make_pod(labels=FOO, spread=(spread,), profile=without("TaintToleration"))
    simulator = World(nodes, placed)
    weighted = simulator.kube.breakdown(*simulator.ids(pod))["PodTopologySpread"]
    assert (weighted / 2).tolist() == scores


# The system's default spreading ---------------------------------------------------------------------------------------

WEB = ("default", (("foo", "x"),))


@pytest.mark.parametrize(
    ("counts", "zones", "scores"),
    [
        # 2 ln 5 + 2 + 2 ln 4 + 4 = 11.99 -> 12; 2 + 2 ln 4 + 4 = 8.77 -> 9; ln 5 + 2 + ln 4 + 4 = 9.0 -> 9.
        ([2, 0, 1], "aab", [75, 100, 100]),
        ([0, 0, 0], "aab", [100, 100, 100]),
        # Nobody has a zone: hostname alone, as with max skew 3 (kube-scheduler's own test).
        ([4, 3, 2, 1], None, [44, 66, 77, 100]),
        # One zone (ln 3), hosts ln 4: 3 ln 4 + 2 + 4 ln 3 + 4 = 14.55 -> 15; ln 4 + 2 + 4 ln 3 + 4 = 11.78 -> 12.
        ([3, 1], "aa", [80, 100]),
    ],
)
def test_pods_of_a_service_are_spread_by_default(counts, zones, scores):
    simulator = spread_world([[FOO] * count for count in counts], zones, [WEB])
    assert simulator.part("PodTopologySpread", make_pod(labels=FOO)) == scores


def test_an_empty_zone_label_is_the_zone_of_nodes_without_one():
    # Zones a and "" (ln 4), hosts ln 5. The pod on n2, which has no zone, counts for n1, whose zone is "":
    # 2 + 0 + 4 = 6; 2 + ln 4 + 4 = 7.39 -> 7; ln 5 + 2 = 3.6 -> 4.
    nodes = [make_node("n0", host="n0", zone="a"), make_node("n1", host="n1", zone=""), make_node("n2", host="n2")]
    simulator = World(nodes, [(2, make_pod(labels=FOO))], [WEB])
    # max 7, min 4: (11 - 6) 100 // 7 = 71, (11 - 7) 100 // 7 = 57, 100.
    assert simulator.part("PodTopologySpread", make_pod(labels=FOO)) == [71, 57, 100]


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(labels={"foo": "y"}),
        make_pod(labels=FOO, namespace="other"),
        make_pod(),
        make_pod(labels=FOO, spread=(TopologySpread(5, ZONE, True, select(foo="x")),)),
    ],
)
def test_no_default_spreading(pod):
    # Not selected, another namespace, no labels; a hard constraint of its own turns the defaults off.
    simulator = spread_world([[FOO] * 3, [FOO], []], "abb", [WEB])
    assert simulator.part("PodTopologySpread", pod) == [0, 0, 0]


# InterPodAffinity -----------------------------------------------------------------------------------------------------

S1, S2 = {"security": "s1"}, {"security": "s2"}


def near(weight, key, **label):
    return PreferredPodTerm(weight, PodAffinityTerm(select(**label), key))


def affinity_world(of_nodes, placed):
    return World([make_node(f"n{i}", **labels) for i, labels in enumerate(of_nodes)], placed)


CHINA, INDIA, AZ1, AZ2 = {"region": "China"}, {"region": "India"}, {"az": "1"}, {"az": "2"}


def test_required_anti_affinity_refuses_and_does_not_score():
    hard = (PodAffinityTerm(select(security="s1"), "region"),)
    simulator = affinity_world([CHINA, INDIA, AZ1], [(0, make_pod(anti_affinity=hard))])
    assert simulator.part("InterPodAffinity", make_pod(labels=S1)) == [-1, 0, 0]


def test_affinity_and_anti_affinity_both_ways():
    # kube-scheduler's own: 8 for the pod's affinity on n0, -5 for its anti-affinity on n1, 8 and -5 by symmetry.
    both = {
        "preferred_affinity": (near(8, "region", security="s1"),),
        "preferred_anti_affinity": (near(5, "az", security="s2"),),
    }
    placed = [
        (0, make_pod(labels=S1)),
        (1, make_pod(labels=S2)),
        (2, make_pod(**both)),
        (3, make_pod(preferred_anti_affinity=(near(5, "az", security="s1"),))),
    ]
    simulator = affinity_world([CHINA, AZ1, INDIA, AZ2], placed)
    assert simulator.part("InterPodAffinity", make_pod(labels=S1, **both)) == [100, 0, 100, 0]


@pytest.mark.parametrize(
    ("raw", "scores"),
    [
        ([0, 50, -20], [28, 100, 0]),
        ([1, 0, 3], [33, 0, 100]),
        ([29, 0, 50], [57, 0, 100]),  # 100.0 (29 / 50) is 57.99999999999999
        ([4, 4], [0, 0]),
    ],
)
def test_affinity_is_normalised_between_minimum_and_maximum(raw, scores):
    nodes = [{"cell": str(i)} for i in range(len(raw))]
    placed = []
    for slot, weight in enumerate(raw):
        kind = "preferred_affinity" if weight > 0 else "preferred_anti_affinity"
        placed += [(slot, make_pod(**{kind: (near(abs(weight), "cell", a="b"),)}))] if weight else []
    assert affinity_world(nodes, placed).part("InterPodAffinity", make_pod(labels={"a": "b"})) == scores


# Cluster changes ------------------------------------------------------------------------------------------------------


# A slow scheduler in plain Python -------------------------------------------------------------------------------------


@dataclass
class Slow:
    """The same decisions from the objects alone."""

    nodes: list
    services: list
    percentage: int
    placed: list = field(default_factory=list)
    start: int = 0

    def on(self, node):
        return [pod for name, pod in self.placed if name == node.name]

    def matches(self, selector, pod):
        in_namespace = selector.namespaces is None or pod.namespace in selector.namespaces
        wanted = selector.requirements
        return wanted is not None and in_namespace and all(holds(each, pod.labels) for each in wanted)

    def find(self, feasible):
        total = len(self.nodes)
        p = self.percentage or max(5, 50 - total // 125)
        wanted = total if total < 100 else max(100, total * p // 100)
        kept, visited = [], 0
        for i in range(total):
            node = self.nodes[(self.start + i) % total]
            if node.name in feasible:
                if len(kept) == wanted:
                    break
                kept.append(node)
            visited += 1
        self.start = (self.start + visited) % total
        return kept

    def choose(self, pod, feasible):
        kept = self.find(feasible)
        if len(kept) < 2:
            return (kept[0].name if kept else None), {}
        totals = self.totals(pod, kept)
        return kept[heap_pop(totals)].name, dict(zip([node.name for node in kept], totals, strict=True))

    def totals(self, pod, kept):
        parts = [
            (1, [self.fit(pod, node) for node in kept]),
            (1, [self.balance(pod, node) for node in kept]),
            (3, [100 - s for s in by_maximum([self.taints(pod, node) for node in kept])]),
            (2, by_maximum([self.preferred(pod, node) for node in kept])),
            (2, self.spread(pod, kept)),
            (2, self.affinity(pod, kept)),
        ]
        return [sum(weight * part[i] for weight, part in parts) for i in range(len(kept))]

    def fit(self, pod, node):
        found = []
        for all_, asked in ((node.cpu_milli, "cpu_nonzero_milli"), (node.memory_bytes, "memory_nonzero_bytes")):
            taken = sum(getattr(p.requests, asked) for p in [*self.on(node), pod])
            found.append(0 if taken > all_ else (all_ - taken) * 100 // all_)
        return sum(found) // 2

    def balance(self, pod, node):
        def level(pods):
            cpu = min(1.0, sum(p.requests.cpu_milli for p in pods) / node.cpu_milli)
            memory = min(1.0, sum(p.requests.memory_bytes for p in pods) / node.memory_bytes)
            return int((1 - abs((cpu - memory) / 2)) * 100.0)

        if pod.requests.cpu_milli == pod.requests.memory_bytes == 0:
            return 0
        return 50 + (50 + level([*self.on(node), pod]) - level(self.on(node))) // 2

    def taints(self, pod, node):
        tolerations = pod.constraints.tolerations
        soft_ones = [t for t in node.taints if t.effect == "PreferNoSchedule"]
        return sum(not any(tolerates(each, taint) for each in tolerations) for taint in soft_ones)

    def preferred(self, pod, node):
        terms = pod.constraints.preferred_nodes
        return sum(t.weight for t in terms if all(holds(r, node.labels) for r in t.term.expressions))

    def spread(self, pod, kept):
        own = pod.constraints.spread
        if own:
            rules = [(s.topology_key, s.max_skew, s.selector) for s in own if not s.hard]
        else:
            own_labels, here = set(pod.labels.items()), [s for ns, s in self.services if ns == pod.namespace]
            pairs = {pair for each in here if set(each) <= own_labels for pair in each}
            selector = PodSelector(tuple(Requirement(k, "In", (v,)) for k, v in pairs), frozenset({pod.namespace}))
            rules = [(HOSTNAME, 3, selector), (ZONE, 5, selector)] if pairs else []
        if not rules:
            return [0] * len(kept)
        ignored = [bool(own) and any(key not in node.labels for key, _, _ in rules) for node in kept]
        raw = [0.0] * len(kept)
        for key, skew, selector in rules:
            values = {n.labels.get(key, "") for n, skip in zip(kept, ignored, strict=True) if not skip}
            size = ignored.count(False) if key == HOSTNAME else len(values)
            for i, node in enumerate(kept):
                if not ignored[i] and key in node.labels:
                    count = self.in_domain(pod, node, key, selector, rules if own else ())
                    raw[i] += count * math.log(size + 2) + (skew - 1)
        rounded = [None if skip else math.floor(x + 0.5) for x, skip in zip(raw, ignored, strict=True)]
        scored = [x for x in rounded if x is not None]
        most, least = max(scored, default=0), min(scored, default=0)
        return [0 if x is None else 100 * (most + least - x) // most if most else 100 for x in rounded]

    def in_domain(self, pod, node, key, selector, rules):
        if selector.requirements == ():
            return 0
        near_ones = [node]
        if key != HOSTNAME:
            wanted = pod.constraints.node_selector
            near_ones = [
                n
                for n in self.nodes
                if n.labels.get(key, "") == node.labels[key]
                and all(k in n.labels for k, _, _ in rules)
                and all(n.labels.get(k) == v for k, v in wanted)
            ]
        return sum(self.matches(selector, p) for n in near_ones for p in self.on(n))

    def affinity(self, pod, kept):
        sums = {}
        by_name = {node.name: node for node in self.nodes}
        for name, other in self.placed:
            labels = by_name[name].labels
            mine, theirs = pod.constraints, other.constraints
            found = [(t.weight, t.term) for t in mine.preferred_affinity if self.matches(t.term.selector, other)]
            found += [(-t.weight, t.term) for t in mine.preferred_anti_affinity if self.matches(t.term.selector, other)]
            found += [(1, t) for t in theirs.affinity if self.matches(t.selector, pod)]
            found += [(t.weight, t.term) for t in theirs.preferred_affinity if self.matches(t.term.selector, pod)]
            found += [(-t.weight, t.term) for t in theirs.preferred_anti_affinity if self.matches(t.term.selector, pod)]
            for weight, term in found:
                if term.topology_key in labels:
                    place = term.topology_key, labels[term.topology_key]
                    sums[place] = sums.get(place, 0) + weight
        raw = [sum(w for (key, value), w in sums.items() if node.labels.get(key) == value) for node in kept]
        least, most = min(raw), max(raw)
        return [int(100.0 * (float(r - least) / float(most - least))) if most > least else 0 for r in raw]


def by_maximum(raw):
    return [100 * r // max(raw) if max(raw) else 0 for r in raw]


def random_node(rng, i):
    labels = {HOSTNAME: f"n{i}"} if rng.random() < 0.9 else {}
    labels |= {ZONE: "abc"[rng.integers(3)]} if rng.random() < 0.8 else {}
    labels |= {"rack": str(rng.integers(4))} if rng.random() < 0.8 else {}
    labels |= {"disk": "ssd"} if rng.random() < 0.5 else {}
    taints = tuple(Taint(key, "", "PreferNoSchedule") for key in "ab" if rng.random() < 0.2)
    return Node(f"n{i}", 1000 * int(rng.integers(2, 9)), GI * int(rng.integers(2, 17)), labels=labels, taints=taints)


def random_selector(rng, namespace):
    kind = rng.integers(8)
    if kind == 0:
        return PodSelector((), frozenset({namespace}))
    if kind == 1:
        return PodSelector(None, frozenset({namespace}))
    key, value = "xy"[rng.integers(2)], "12"[rng.integers(2)]
    wanted = (Requirement(key, "In", (value,)),) if kind < 6 else (Requirement(key, "NotIn", (value,)),)
    return PodSelector(wanted, None if kind == 7 else frozenset({namespace}))


def random_pod(rng, i):
    namespace = ("default", "other")[rng.integers(2)]
    keys = (HOSTNAME, ZONE, "rack")

    def term():
        return PodAffinityTerm(random_selector(rng, namespace), keys[rng.integers(3)])

    def preferred():
        count = rng.integers(1, 3) if rng.random() < 0.2 else 0
        return tuple(PreferredPodTerm(int(rng.integers(1, 101)), term()) for _ in range(count))

    def spread():
        skew, key, is_hard = int(rng.integers(1, 4)), keys[rng.integers(3)], rng.random() < 0.1
        return TopologySpread(skew, key, is_hard, random_selector(rng, namespace))

    ssd = NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),))
    racks = NodeSelectorTerm((Requirement("rack", "NotIn", ("1", "2")),))
    constraints = Constraints(
        tolerations=(Toleration("a", "Exists"),) if rng.random() < 0.3 else (),
        node_selector=(("disk", "ssd"),) if rng.random() < 0.15 else (),
        preferred_nodes=tuple(
            PreferredNodeTerm(int(rng.integers(1, 101)), t) for t in (ssd, racks) if rng.random() < 0.2
        ),
        affinity=(term(),) if rng.random() < 0.03 else (),
        anti_affinity=(term(),) if rng.random() < 0.03 else (),
        preferred_affinity=preferred(),
        preferred_anti_affinity=preferred(),
        spread=tuple(spread() for _ in range(rng.integers(1, 3) if rng.random() < 0.3 else 0)),
    )
    requests = Requests(int(rng.integers(0, 4)) * 50, int(rng.integers(0, 4)) * 100 * MI)
    labels = {key: "12"[rng.integers(2)] for key in "xy" if rng.random() < 0.7}
    return Pod(f"pod-{i}", PodClass(requests, constraints), namespace=namespace, labels=labels)


@pytest.mark.parametrize("seed", range(12))
def test_decisions_match_a_slow_reference_scheduler(seed):
    rng = np.random.default_rng(seed)
    nodes = [random_node(rng, i) for i in range((6, 20, 45, 130)[seed % 4])]
    services = [("default", (("x", "1"),)), ("default", (("y", "2"),)), ("other", (("x", "1"), ("y", "1")))]
    state = ClusterState(nodes)
    pods = [random_pod(rng, i) for i in range(60)]
    for pod in pods:
        state.class_id(pod.pod_class)
        state.labels_id(pod)
    kube = KubeDecisions(state, SpreadSelectors(tuple(services)))
    slow = Slow([nodes[slot] for slot in snapshot_order(nodes, range(len(nodes)))], services, 0)
    for i, pod in enumerate(pods):
        c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
        feasible = {nodes[slot].name for slot in np.flatnonzero(state.mask(c, labels))}
        scores = kube.scores(c, labels)
        chosen, totals = slow.choose(pod, feasible)
        if totals:
            assert {nodes[slot].name: int(scores[slot]) for slot in np.flatnonzero(scores >= 0)} == totals
        slot = kube.choose(c, labels)
        assert (nodes[slot].name if slot >= 0 else None) == chosen
        assert kube.start == slow.start
        if slot >= 0:
            assert not totals or slot in {state.slots[name] for name in totals if totals[name] == max(totals.values())}
            state.place(f"{pod.name}-{i}", c, slot, labels_id=labels)
            slow.placed.append((chosen, pod))
