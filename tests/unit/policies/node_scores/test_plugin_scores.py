"""kube-scheduler's scores of one node at a time, against values worked by hand and those of its own unit tests."""

import numpy as np
import pytest
from tests.support.decision_states import described

from steersman.cluster.constraints.node import NodeTable
from steersman.cluster.model import (
    Node,
    NodeSelectorTerm,
    PodClass,
    PreferredNodeTerm,
    Requests,
    Requirement,
    Taint,
    Toleration,
)
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.policies.kube_scheduler.arrays import image_locality, images_on, preferred_weights, soft_taints
from steersman.policies.registry import resolve

MI, GI = 1 << 20, 1 << 30


RULES = "least-allocated=1,most-allocated=1,balanced-allocation=1"
LEAST, MOST, BALANCED = range(3)


def scored(allocatable, used, pod):
    """(least, most, balanced) of a pod on a node where another one runs; each given as (CPU, memory)."""
    state = ClusterState([Node("node", *allocatable)])
    if used is not None:
        state.place("other", state.class_id(PodClass(Requests(*used))), 0, force=True)
    c = state.class_id(PodClass(Requests(*pod)))
    # Also where it does not fit, which decisions never ask.
    parts = CoreDecider(described(resolve(RULES), state, ())).contributions(c, 0, 0, 0)
    return parts[:, 1].tolist()


@pytest.mark.parametrize(
    ("rule", "allocatable", "used", "pod", "score"),
    [
        # Nothing stated counts as 100m and 200MiB, twice: 3800 100 // 4000 = 95; (8192 - 400) 100 // 8192 = 95.
        (LEAST, (4000, 8 * GI), (0, 0), (0, 0), 95),
        # CPU 4500 of 4000: 0; memory (8 - 6.5) GiB of 8: 18; (0 + 18) // 2.
        (LEAST, (4000, 8 * GI), (3500, 6 * GI), (1000, 512 * MI), 9),
        # 1770 100 // 3920 = 45; (7168 - 3072 - 600) 100 // 7168 = 48; 93 // 2.
        (LEAST, (3920, 7 * GI), (1900, 3 * GI), (250, 600 * MI), 46),
        # Exactly full: 0 and 0.
        (LEAST, (4000, 8 * GI), (3000, 4 * GI), (1000, 4 * GI), 0),
        # No memory at all: the CPU's score alone, 2999 100 // 4000 = 74.
        (LEAST, (4000, 0), None, (1001, 0), 74),
        (LEAST, (0, 0), None, (0, 0), 0),
        # kube-scheduler's own test: (25 + 50) // 2 and (50 + 50) // 2.
        (LEAST, (4000, 10000), None, (3000, 5000), 37),
        (LEAST, (6000, 10000), None, (3000, 5000), 50),
        # 200 100 // 4000 = 5; 400 100 // 8192 = 4; 9 // 2.
        (MOST, (4000, 8 * GI), (0, 0), (0, 0), 4),
        # 2150 100 // 3920 = 54; 3672 100 // 7168 = 51; 105 // 2.
        (MOST, (3920, 7 * GI), (1900, 3 * GI), (250, 600 * MI), 52),
        # More than there is counts as all: (100 + 81) // 2.
        (MOST, (4000, 8 * GI), (3500, 6 * GI), (1000, 512 * MI), 90),
        (MOST, (0, 0), None, (0, 0), 0),
        # With .25, .125: 93; without 100; 50 + 43 // 2.
        (BALANCED, (4000, 8 * GI), None, (1000, GI), 71),
        # With .5, .375: 93; without .5, .125: 81; 50 + 62 // 2.
        (BALANCED, (4000, 8 * GI), (2000, GI), (0, 2 * GI), 81),
        # With 1, .25: 62; without .25, .25: 100; 50 + 12 // 2.
        (BALANCED, (4000, 8 * GI), (1000, 2 * GI), (3000, 0), 56),
        # With 1 (capped), .5: 75; without 1, .5: 75; 50 + 50 // 2.
        (BALANCED, (4000, 8 * GI), (4000, 4 * GI), (4000, 0), 75),
        # No memory on the node: balanced before and after.
        (BALANCED, (4000, 0), None, (1000, 0), 75),
        # kube-scheduler's own tests.
        (BALANCED, (4000, 10000), None, (3000, 5000), 68),
        (BALANCED, (6000, 10000), None, (3000, 5000), 75),
        (BALANCED, (10000, 20000), (3000, 0), (3000, 5000), 73),
        (BALANCED, (10000, 20000), (3000, 5000), (3000, 5000), 74),
        (BALANCED, (10000, 50000), (3000, 5000), (3000, 5000), 70),
        (BALANCED, (3000, 5000), (3000, 0), (0, 5000), 100),
        (BALANCED, (3000, 5000), None, (0, 5000), 50),
        (BALANCED, (6000, 10000), (3000, 0), (3000, 0), 62),
        (BALANCED, (6000, 10000), (3000, 5000), (3000, 0), 62),
        # A pod that requests neither is not scored.
        (BALANCED, (4000, 8 * GI), (1000, GI), (0, 0), 0),
    ],
)
def test_rules_by_requests(rule, allocatable, used, pod, score):
    assert scored(allocatable, used, pod)[rule] == score


def test_balanced_allocation_is_float_arithmetic():
    # Shares 0 and .68: (1 - .34) 100.0 is 65.99999999999999 in float64, so 65 and not 66; 50 + 15 // 2.
    assert scored((1000, 1000), None, (680, 0))[BALANCED] == 57


def images_cluster(*of_nodes):
    return [Node(f"n{i}", 1000, GI, images=images) for i, images in enumerate(of_nodes)]


@pytest.mark.parametrize(
    ("of_nodes", "wanted", "scores"),
    [
        ([{}, {}, {}], ["a:1"], [0, 0, 0]),
        # 500 MiB on 1 of 3: 174762666 bytes; (174762666 - 24117248) 100 // (1048576000 - 24117248).
        ([{"a:1": 500 * MI}, {}, {}], ["a:1"], [14, 0, 0]),
        # 500 MiB on 3 of 4 and 300 MiB on 2 of 4, two containers: 550502400 bytes of at most 2 x 1000 MiB.
        (
            [{"a:1": 500 * MI, "b:1": 300 * MI}, {"a:1": 500 * MI}, {"b:1": 300 * MI}, {"a:1": 500 * MI}],
            ["a:1", "b:1"],
            # Only a: 393216000, 369098752 100 // 2073034752 = 17; only b: 157286400, 133169152 ... = 6.
            [25, 17, 6, 17],
        ),
        ([{"a:1": 2000 * MI}] * 3, ["a:1"], [100, 100, 100]),
        # Twice the same image counts twice: 2 x 262144000 (500 MiB on 1 of 2) of at most 2 x 1000 MiB:
        # (524288000 - 24117248) 100 // 2073034752.
        ([{"a:1": 500 * MI}, {}], ["a:1", "a:1"], [24, 0]),
        # The size is what the first node said: 100 MiB on 2 of 2, (104857600 - 24117248) 100 // 1024458752.
        ([{"a:1": 100 * MI}, {"a:1": 900 * MI}], ["a:1"], [7, 7]),
        # Below 23 MiB: nothing.
        ([{"a:1": 23 * MI}, {}], ["a:1"], [0, 0]),
    ],
)
def test_image_locality(of_nodes, wanted, scores):
    nodes = images_cluster(*of_nodes)
    assert image_locality(images_on(nodes), wanted, len(wanted), len(nodes), len(nodes)).tolist() == scores


def test_image_locality_counts_nodes_and_not_slots():
    nodes = [None, *images_cluster({"a:1": 500 * MI}, {}, {})]
    assert image_locality(images_on(nodes), ["a:1"], 1, 3, 4).tolist() == [0, 14, 0, 0]


def test_image_locality_counts_images_of_volumes_like_those_of_containers():
    images = images_on(images_cluster({"model:1": 900 * MI}, {}))
    by_container = image_locality(images, ["server:1", "model:1"], 2, 2, 2).tolist()
    assert by_container == [21, 0]
    # 900 MiB from a volume and 900 MiB from a container, on one of two nodes, of at most 1000 MiB for each:
    assert image_locality(images, ["model:1", "model:1"], 2, 2, 2).tolist() == [44, 0]


def test_soft_taints():
    soft, hard = [Taint(key, "v", "PreferNoSchedule") for key in "abc"], Taint("d", "v", "NoSchedule")
    nodes = [Node("n0", 1, 1), Node("n1", 1, 1, taints=(soft[0], hard)), Node("n2", 1, 1, taints=tuple(soft)), None]
    assert soft_taints(nodes, ()).tolist() == [0, 1, 3, 0]
    assert soft_taints(nodes, [Toleration("a", "Exists")]).tolist() == [0, 0, 2, 0]
    assert soft_taints(nodes, [Toleration("a", "Equal", "v", "NoSchedule")]).tolist() == [0, 1, 3, 0]
    assert soft_taints(nodes, [Toleration("", "Exists", "", "PreferNoSchedule")]).tolist() == [0, 0, 0, 0]


def test_preferred_weights():
    nodes = [Node("n0", 1, 1, labels={"disk": "ssd", "arch": "arm"}), Node("n1", 1, 1, labels={"disk": "ssd"}), None]

    def prefers(weight, *expressions):
        return PreferredNodeTerm(weight, NodeSelectorTerm(expressions))

    ssd, arm = Requirement("disk", "In", ("ssd",)), Requirement("arch", "Exists")
    terms = [prefers(5, ssd), prefers(30, ssd, arm), prefers(50)]  # an empty preference prefers nothing
    weights = preferred_weights(NodeTable(nodes), terms)
    assert weights.tolist() == [35, 5, 0]
    assert weights.dtype == np.int64
