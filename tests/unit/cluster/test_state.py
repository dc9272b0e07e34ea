"""ClusterState: accounting that cancels exactly, nodes that come, change and go, copies, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.cluster.arrays import CPU, EXTENDED, PODS
from steersman.cluster.constraints.reasons import reasons_by_node
from steersman.cluster.model import (
    Constraints,
    HostPort,
    Node,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    Requests,
    Requirement,
    Taint,
    TopologySpread,
)
from steersman.cluster.state import ClusterState, Placement, device_indices
from steersman.core.errors import SteersmanError

APP = PodSelector((Requirement("app", "In", ("a",)),), frozenset(("default",)))
CLASSES = (
    PodClass(Requests(1, 1)),
    PodClass(Requests(0, 0, 1, extended=(("x.io/y", 1),))),
    PodClass(Requests(1, 0, gpu_count=1, gpu_milli=300)),
    PodClass(Requests(0, 1, gpu_count=1, gpu_milli=600), Constraints(gpu_models=("A",))),
    PodClass(Requests(0, 1, gpu_count=2, gpu_milli=500)),
    PodClass(Requests(2, 2, gpu_count=2, gpu_milli=1000)),
    PodClass(Requests(1, 1), Constraints(host_ports=(HostPort(80),))),
    PodClass(Requests(1, 1), Constraints(anti_affinity=(PodAffinityTerm(APP, "zone"),))),
    PodClass(Requests(1, 1), Constraints(affinity=(PodAffinityTerm(APP, "zone"),))),
    PodClass(Requests(1, 1), Constraints(spread=(TopologySpread(1, "zone", True, APP),))),
)
LABELS = ({}, {"app": "a"}, {"app": "b"})


@st.composite
def nodes(draw, name):
    return Node(
        name,
        cpu_milli=draw(st.integers(1, 5)),
        memory_bytes=draw(st.integers(1, 5)),
        pods=draw(st.integers(1, 6)),
        ephemeral_bytes=draw(st.integers(0, 2)),
        gpu_count=draw(st.integers(0, 3)),
        gpu_model=draw(st.sampled_from(("", "A", "B", "C"))),
        extended=draw(st.sampled_from(((), (("x.io/y", 2),), (("x.io/y", 1), ("x.io/z", 1))))),
        labels=draw(st.sampled_from(({}, {"zone": "1"}, {"zone": "2"}, {"zone": "3"}))),
        taints=draw(st.sampled_from(((), (), (Taint("t"),)))),
    )


def everything(state):
    """A copy of every array, by name."""
    parts = {"nodes": state.arrays, "classes": state.class_arrays, "terms": state.term_arrays}
    return {(p, name): a.copy() for p, arrays in parts.items() for name, a in arrays._asdict().items()}


def same(before, after):
    return before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)


def with_classes(given_nodes):
    state = ClusterState(given_nodes)
    for each in CLASSES:
        state.class_id(each)
    for labels in LABELS:
        state.labels_id(Pod("", CLASSES[0], labels=labels))
    return state


def place_somewhere(state, data, name):
    """Place a random pod on a random node that is feasible, if there is one."""
    c, labels = data.draw(st.integers(0, len(CLASSES) - 1)), data.draw(st.integers(0, len(LABELS) - 1))
    feasible = np.flatnonzero(state.mask(c, labels)).tolist()
    if not feasible:
        return
    slot = data.draw(st.sampled_from(feasible))
    placement = state.place(name, c, slot, None, labels)
    requests = CLASSES[c].requests
    devices = device_indices(placement.devices)
    assert len(devices) == requests.gpu_count
    assert all(d < state.nodes[slot].gpu_count for d in devices)


def nothing_below_zero(state):
    arrays, terms = state.arrays, state.term_arrays
    assert (arrays.free >= 0).all()
    assert (arrays.free <= arrays.allocatable).all()
    assert (arrays.gpu_free >= 0).all()
    assert (arrays.gpu_free <= 1000).all()
    assert (arrays.gpu_kinds >= 0).all()
    assert (arrays.nonzero >= 0).all()
    assert all((a >= 0).all() for a in (terms.matched, terms.owned, terms.owned_total, terms.held))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_removing_placed_pods_restores_every_array(data):
    state = with_classes([data.draw(nodes(f"n{i}")) for i in range(data.draw(st.integers(1, 5)))])
    before = everything(state)
    for i in range(data.draw(st.integers(1, 15))):
        if state.placements and data.draw(st.integers(0, 3)) == 0:
            state.remove(data.draw(st.sampled_from(sorted(state.placements))))
        else:
            place_somewhere(state, data, f"p{i}")
        nothing_below_zero(state)
    for pod in data.draw(st.permutations(sorted(state.placements))):
        state.remove(pod)
    assert same(before, everything(state))


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_removed_node_with_pods_leaves_no_trace(data):
    state = with_classes([data.draw(nodes(f"n{i}")) for i in range(data.draw(st.integers(0, 3)))])
    both = (("x.io/y", 1), ("x.io/z", 1))
    widest = Node("wide", 5, 5, gpu_count=3, gpu_model="A", extended=both, labels={"zone": "1"})
    for model in "ABC":  # make room for all that may come, so that the arrays keep their shapes
        state.add_node(Node(model, 1, 1, gpu_count=1, gpu_model=model, labels={"zone": model}))
    for name in "ABC":
        state.remove_node(name)
    state.add_node(widest)
    state.remove_node("wide")
    for i in range(4):
        place_somewhere(state, data, f"p{i}")
    state.class_arrays, state.term_arrays  # noqa: B018 - so that both know all of `CLASSES`
    before, placed = everything(state), dict(state.placements)
    size = len(state.nodes)
    slot = state.add_node(data.draw(nodes("new")))
    for i in range(data.draw(st.integers(0, 4))):
        if state.mask(0)[slot]:
            state.place(f"q{i}", 0, slot)
    state.update_node(data.draw(nodes("new")))
    state.remove_node("new")
    assert state.placements == placed
    if len(state.nodes) == size:
        after = everything(state)
        domains = ("terms", "domains")
        assert (after.pop(domains) >= before.pop(domains)).all()  # numbers of values are never given twice
        assert same(before, after)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_changed_state_equals_a_fresh_one(data):
    state = with_classes([data.draw(nodes(f"n{i}")) for i in range(3)])
    for i in range(data.draw(st.integers(0, 8))):
        place_somewhere(state, data, f"p{i}")
    for name in ("n1", "n2", "n3", "n4"):
        state.update_node(data.draw(nodes(name))) if name in state.slots else state.add_node(data.draw(nodes(name)))
    made = with_classes(state.nodes[:5])
    for pod, old in state.placements.items():
        made.place(pod, old.class_id, old.slot, old.devices, old.labels_id, force=True)
    for c in range(len(CLASSES)):
        for labels in range(len(LABELS)):
            assert state.mask(c, labels)[:5].tolist() == made.mask(c, labels).tolist()
            assert not state.mask(c, labels)[5:].any()
    assert state.arrays.free[:5, :EXTENDED].tolist() == made.arrays.free[:, :EXTENDED].tolist()
    shared = min(state.arrays.gpu_free.shape[1], made.arrays.gpu_free.shape[1])
    assert state.arrays.gpu_free[:5, :shared].tolist() == made.arrays.gpu_free[:, :shared].tolist()
    assert not state.arrays.gpu_free[:, shared:].any()


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_permuted_copy_is_equivalent_and_independent(data):
    state = with_classes([data.draw(nodes(f"n{i}")) for i in range(4)])
    state.remove_node("n2")
    for i in range(6):
        place_somewhere(state, data, f"p{i}")
    before = everything(state)
    order = np.array(data.draw(st.permutations(range(4))))
    other = state.permuted(order)
    masks = [state.mask(c, 1)[order].tolist() for c in range(len(CLASSES))]
    assert [other.mask(c, 1).tolist() for c in range(len(CLASSES))] == masks
    assert {pod: other.nodes[p.slot].name for pod, p in other.placements.items()} == {
        pod: state.nodes[p.slot].name for pod, p in state.placements.items()
    }
    for pod in list(other.placements):
        other.remove(pod)
    other.add_node(Node("new", 9, 9, labels={"zone": "9"}))
    other.update_node(Node("n0", 9, 9, gpu_count=5, gpu_model="Z", labels={"zone": "8"}, extended=(("x.io/new", 1),)))
    other.class_id(PodClass(Requests(7, 7)))
    other.labels_id(Pod("", CLASSES[0], labels={"app": "c"}))
    other.mask(0)
    assert same(before, everything(state))


def test_copy_equals_the_identity_permutation():
    state = with_classes([Node("a", 9, 9), Node("b", 9, 9)])
    state.place("p", 0, 1)
    other = state.copy()
    assert same(everything(state), everything(other))
    assert other.placements == state.placements
    other.remove("p")
    assert "p" in state.placements
    assert state.arrays.free[1, CPU] == 8


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [0, -1], [0, 1, 2]])
def test_invalid_permutation_is_rejected(order):
    with raises(SteersmanError):
        ClusterState([Node("a", 1, 1), Node("b", 1, 1)]).permuted(order)


def test_slots_stay_and_free_ones_are_used_again():
    state = ClusterState([Node(name, 1, 1) for name in "abc"])
    assert state.remove_node("b") == {}
    assert [n and n.name for n in state.nodes] == ["a", None, "c"]
    assert state.add_node(Node("d", 1, 1)) == 1
    assert state.add_node(Node("e", 1, 1)) == 3
    assert len(state.nodes) == 6
    assert state.slots == {"a": 0, "c": 2, "d": 1, "e": 3}
    assert ClusterState([]).add_node(Node("only", 1, 1)) == 0


def test_the_pods_of_a_removed_node_are_returned_and_forgotten():
    state = ClusterState([Node("a", 9, 9), Node("b", 9, 9)])
    c = state.class_id(PodClass(Requests(1, 1)))
    state.place("p", c, 0)
    state.place("q", c, 1)
    assert state.remove_node("a") == {"p": Placement(c, 0, 0)}
    assert set(state.placements) == {"q"}
    state.place("p", c, 1)


def test_shrunk_node_keeps_its_pods_with_negative_free_resources():
    state = ClusterState([Node("a", 4, 4, gpu_count=2, gpu_model="A")])
    c = state.class_id(PodClass(Requests(3, 3, gpu_count=2, gpu_milli=1000)))
    other = state.class_id(PodClass(Requests(0, 0)))
    state.place("p", c, 0)
    state.update_node(Node("a", 2, 4, gpu_count=1, gpu_model="A"))
    assert state.arrays.free[0, CPU] == -1
    assert state.arrays.gpu_free[0].tolist() == [0, 0]
    assert state.mask(other)[0]  # asks for nothing that is missing
    state.update_node(Node("a", 4, 4, gpu_count=3, gpu_model="A"))
    assert state.arrays.gpu_free[0].tolist() == [0, 0, 1000]
    state.remove("p")
    assert state.arrays.free[0, CPU] == 4
    assert state.arrays.gpu_free[0].tolist() == [1000] * 3


def test_late_models_resources_and_keys_are_added():
    state = ClusterState([Node("a", 9, 9, gpu_count=1, gpu_model="B"), Node("b", 9, 9)])
    later = state.class_id(PodClass(Requests(0, 0, extended=(("x.io/y", 1),)), Constraints(gpu_models=("A",))))
    selected = state.class_id(PodClass(Requests(), Constraints(node_selector=(("new", "1"),))))
    assert not state.mask(later).any()
    assert not state.mask(selected).any()
    slot = state.add_node(Node("c", 9, 9, gpu_count=1, gpu_model="A", extended=(("x.io/y", 1),), labels={"new": "1"}))
    assert np.flatnonzero(state.mask(later)).tolist() == [slot]
    assert np.flatnonzero(state.mask(selected)).tolist() == [slot]
    assert [each.model for each in state.gpu_types] == ["B", "A"]
    assert state.arrays.gpu_model.tolist() == [0, 2, 1, 2]  # the first slot after the known types means none
    assert state.resources == ("x.io/y",)


def test_resource_taken_before_it_is_offered_is_counted_later():
    state = ClusterState([Node("a", 9, 9)])
    c = state.class_id(PodClass(Requests(extended=(("x.io/y", 2),))))
    state.place("p", c, 0, force=True)
    state.update_node(Node("a", 9, 9, extended=(("x.io/y", 3),)))
    assert state.arrays.free[0, EXTENDED] == 1
    state.remove("p")
    assert state.arrays.free[0].tolist() == state.arrays.allocatable[0].tolist()


def test_forced_placement_is_counted():
    state = ClusterState([Node("a", 1, 1, unschedulable=True)])
    c = state.class_id(PodClass(Requests(2, 2, gpu_count=2, gpu_milli=1000)))
    state.place("p", c, 0, 0b11, force=True)
    assert state.arrays.free[0, [CPU, PODS]].tolist() == [-1, state.nodes[0].pods - 1]
    state.remove("p")
    assert (state.arrays.free == state.arrays.allocatable).all()
    assert not state.arrays.gpu_kinds.any()


def refused(match, act):
    with pytest.raises(SteersmanError, match=match):
        act()


def test_invalid_changes_are_rejected():
    state = ClusterState([Node("a", 2, 2, gpu_count=2, gpu_model="A"), Node("b", 2, 2)])
    one = state.class_id(PodClass(Requests(1, 1, gpu_count=1, gpu_milli=600)))
    port = state.class_id(PodClass(Requests(), Constraints(host_ports=(HostPort(80),))))
    state.place("p", one, 0, 0b01)
    state.place("q", port, 0)
    before = everything(state)
    refused("placed already", lambda: state.place("p", one, 0))
    refused("does not fit", lambda: state.place("r", one, 1))
    refused("cannot have the devices", lambda: state.place("r", one, 0, 0b01))
    refused("cannot have the devices", lambda: state.place("r", one, 0, 0b100))
    refused("cannot have the devices", lambda: state.place("r", one, 0, 0b11))
    refused("may not run", lambda: state.place("r", port, 0))
    refused("no node in slot 7", lambda: state.place("r", one, 7, force=True))
    refused("not placed", lambda: state.remove("r"))
    refused("no node 'z'", lambda: state.remove_node("z"))
    refused("no node 'z'", lambda: state.update_node(Node("z", 1, 1)))
    refused("exists already", lambda: state.add_node(Node("a", 1, 1)))
    refused("at most 62", lambda: state.add_node(Node("z", 1, 1, gpu_count=63)))
    refused("not unique", lambda: ClusterState([Node("a", 1, 1)] * 2))
    assert same(before, everything(state))


def test_reasons_name_missing_resources():
    state = ClusterState([Node("a", 1, 5, pods=0, gpu_count=1, gpu_model="A", extended=(("x.io/y", 1),))])
    wanted = Requests(2, 6, 1, gpu_count=1, gpu_milli=1000, extended=(("x.io/y", 2), ("x.io/z", 1)))
    c = state.class_id(PodClass(wanted))
    assert reasons_by_node(state, c) == {
        "a": ("Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient x.io/y", "Insufficient x.io/z")
    }
    gpu = state.class_id(PodClass(Requests(gpu_count=2, gpu_milli=500)))
    assert reasons_by_node(state, gpu) == {"a": ("Too many pods", "Insufficient GPU")}
