"""Which nodes a pod's own constraints allow, rule by rule."""

import pytest

from steersman.cluster.constraints.node import (
    NodeTable,
    allowed_nodes,
    constraint_refusals,
    eligible_nodes,
    nodes_matching_term,
    restricted_names,
)
from steersman.cluster.model import Constraints, Node, NodeSelectorTerm, Requirement, Taint, Toleration

CORDON = "node.kubernetes.io/unschedulable"


def node(name="n", labels=None, taints=(), **more):
    return Node(name, 1, 1, labels=labels or {}, taints=taints, **more)


def allows(constraints, *nodes):
    return allowed_nodes(nodes, constraints).tolist()


def constraint_reasons(nodes, constraints):
    reasons = [""] * len(nodes)
    for why, refused in constraint_refusals(nodes, constraints):
        for slot in refused.nonzero()[0]:
            assert not reasons[slot]
            reasons[slot] = why
    return reasons


def term(*expressions, fields=()):
    return NodeSelectorTerm(expressions, fields)


def affinity(*terms):
    return Constraints(node_affinity=terms)


def test_pod_without_constraints_may_use_every_plain_node():
    assert allows(Constraints(), node("a"), None, node("b", {"x": "y"})) == [True, False, True]


@pytest.mark.parametrize(
    ("toleration", "allowed"),
    [
        (Toleration(), False),  # empty key and Equal compares values only, and "" is not "yes"
        (Toleration("", "Equal", "yes"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Exists", "", "NoSchedule"), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Gt", "0"), False),
        (Toleration("gpu", "Lt", "9"), False),
        (Toleration("gpu", "Nonsense", "yes"), False),
    ],
)
def test_tolerations(toleration, allowed):
    tainted = node(taints=(Taint("gpu", "yes"),))
    assert allows(Constraints(tolerations=(toleration,)), tainted) == [allowed]


def test_every_hard_taint_must_be_tolerated_and_soft_ones_need_not():
    some = Constraints(tolerations=(Toleration("a", "Exists"),))
    assert allows(
        some,
        node("1", taints=(Taint("a"),)),
        node("2", taints=(Taint("a"), Taint("b", "", "NoExecute"))),
        node("3", taints=(Taint("a"), Taint("b", "", "PreferNoSchedule"))),
    ) == [True, False, True]


@pytest.mark.parametrize(
    ("toleration", "allowed"),
    [
        (Toleration(CORDON, "Exists", "", "NoSchedule"), True),
        (Toleration(CORDON, "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration(CORDON, "Equal", ""), True),
        (Toleration(CORDON, "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_a_cordon_is_tolerated_like_its_taint(toleration, allowed):
    cordoned = node(unschedulable=True)
    assert allows(Constraints(), cordoned) == [False]
    assert allows(Constraints(tolerations=(toleration,)), cordoned) == [allowed]


def test_a_node_selector_wants_every_label_to_be_equal():
    wanted = Constraints(node_selector=(("disk", "ssd"), ("zone", "")))
    assert allows(
        wanted,
        node("1", {"disk": "ssd", "zone": ""}),
        node("2", {"disk": "ssd"}),
        node("3", {"disk": "hdd", "zone": ""}),
        node("4"),
    ) == [True, False, False, False]


@pytest.mark.parametrize(
    ("requirement", "allowed"),
    [
        (Requirement("size", "In", ("2", "x")), [True, True, False, False]),
        (Requirement("size", "NotIn", ("2", "x")), [False, False, True, True]),  # also where there is no label
        (Requirement("size", "Exists"), [True, True, True, False]),
        (Requirement("size", "DoesNotExist"), [False, False, False, True]),
        (Requirement("size", "Gt", ("2",)), [False, False, True, False]),
        (Requirement("size", "Gt", ("1",)), [True, False, True, False]),
        (Requirement("size", "Lt", ("10",)), [True, False, False, False]),
        (Requirement("size", "Gt", ("-1",)), [False] * 4),  # no label value: does not parse
        (Requirement("size", "Gt", ("1", "2")), [False] * 4),
        (Requirement("size", "Gt", ("x",)), [False] * 4),
        (Requirement("size", "In", ()), [False] * 4),
        (Requirement("size", "Exists", ("2",)), [False] * 4),
        (Requirement("size", "Nonsense", ("2",)), [False] * 4),
    ],
)
def test_operators_of_node_affinity(requirement, allowed):
    nodes = [node("1", {"size": "2"}), node("2", {"size": "x"}), node("3", {"size": "10"}), node("4")]
    assert allows(affinity(term(requirement)), *nodes) == allowed


@pytest.mark.parametrize(
    ("label", "matches"),
    [(str(2**63 - 1), True), (str(2**63), False), ("+5", True), ("0005", True), ("5.0", False), ("", False)],
)
def test_numbers_in_labels_are_64_bit_integers(label, matches):
    assert allows(affinity(term(Requirement("size", "Gt", ("4",)))), node(labels={"size": label})) == [matches]


def test_terms_are_alternatives_and_their_requirements_are_not():
    a, b = Requirement("a", "Exists"), Requirement("b", "Exists")
    nodes = [node("1", {"a": ""}), node("2", {"b": ""}), node("3", {"a": "", "b": ""}), node("4")]
    assert allows(affinity(term(a), term(b)), *nodes) == [True, True, True, False]
    assert allows(affinity(term(a, b)), *nodes) == [False, False, True, False]


def test_nothing_matches_an_empty_term_or_an_empty_list_of_terms():
    assert allows(affinity(), node()) == [False]
    assert allows(affinity(term()), node()) == [False]
    assert allows(affinity(term(), term(Requirement("x", "DoesNotExist"))), node()) == [True]
    assert allows(Constraints(node_affinity=None), node()) == [True]


def test_node_selector_and_affinity_must_both_hold():
    both = Constraints(node_selector=(("a", "1"),), node_affinity=(term(Requirement("b", "Exists")),))
    nodes = [node("1", {"a": "1", "b": ""}), node("2", {"a": "1"}), node("3", {"b": ""})]
    assert allows(both, *nodes) == [True, False, False]


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        (Requirement("metadata.name", "In", ("a",)), [True, False]),
        (Requirement("metadata.name", "NotIn", ("a",)), [False, True]),
        (Requirement("metadata.name", "In", ("a", "b")), [False, False]),  # exactly one value parses
        (Requirement("metadata.name", "Exists"), [False, False]),
        (Requirement("spec.other", "In", ("",)), [True, True]),  # other fields read as ""
        (Requirement("spec.other", "In", ("a",)), [False, False]),
    ],
)
def test_field_selectors(field, allowed):
    assert allows(affinity(term(fields=(field,))), node("a"), node("b")) == allowed


def test_node_name_and_gpu_models():
    nodes = [node("a", gpu_model="A"), node("b", gpu_model="B"), node("c")]
    assert allows(Constraints(node_name="b"), *nodes) == [False, True, False]
    assert allows(Constraints(gpu_models=("A", "Z")), *nodes) == [True, False, False]
    assert allows(Constraints(gpu_models=("Z",)), *nodes) == [False, False, False]


def test_the_first_filter_that_fails_is_the_reason():
    wanted = Constraints(node_selector=(("a", "1"),), node_name="ok", gpu_models=("A",))
    reasons = {
        "": node("ok", {"a": "1"}, gpu_model="A"),
        "node(s) were unschedulable": node("cordoned", unschedulable=True),
        "node(s) didn't match the requested node name": node("other", taints=(Taint("x"),)),
        "node(s) had untolerated taint(s)": node("ok", taints=(Taint("x"),)),
        "node(s) didn't match Pod's node affinity/selector": node("ok"),
        "node(s) didn't have the requested GPU model": node("ok", {"a": "1"}),
    }
    assert constraint_reasons([*reasons.values(), None], wanted) == [*reasons, ""]


def test_affinity_to_names_restricts_visited_nodes():
    def named(*names):
        return term(fields=tuple(Requirement("metadata.name", "In", (name,)) for name in names))

    assert restricted_names(Constraints()) is None
    assert restricted_names(affinity(named("a"), term(Requirement("x", "Exists")))) is None
    assert restricted_names(affinity(named("a"), named("b"))) == {"a", "b"}
    assert restricted_names(affinity(named("a", "b"))) == frozenset()
    elsewhere = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert constraint_reasons([node("a"), node("b", unschedulable=True)], affinity(named("a"))) == ["", elsewhere]
    assert constraint_reasons([node("a"), None], affinity(named("a", "b"))) == ["pod affinity terms conflict", ""]


def test_a_table_follows_its_nodes():
    table = NodeTable([node("a", {"x": "1"}), None])
    wanted = term(Requirement("x", "In", ("2",)))
    assert nodes_matching_term(table, wanted).tolist() == [False, False]
    table.set(1, node("b", {"x": "2"}))
    table.grow(3)
    assert nodes_matching_term(table, wanted).tolist() == [False, True, False]
    assert nodes_matching_term(table.permuted([1, 0]), wanted).tolist() == [True, False]
    table.set(1, None)
    assert nodes_matching_term(table, wanted).tolist() == [False, False, False]


def test_numeric_comparison_survives_selecting_few_nodes():
    table = NodeTable([node(str(i), {"size": str(i)}) for i in range(50)])
    wanted = affinity(term(Requirement("size", "Gt", ("30",))))
    assert allowed_nodes(table, wanted).sum() == 19
    assert allowed_nodes(table.permuted([40, 3]), wanted).tolist() == [True, False]


def test_many_values_are_looked_up_at_once():
    table = NodeTable([node(str(i), {"size": str(i)}) for i in range(50)])
    wanted = affinity(term(Requirement("size", "In", tuple(map(str, range(10, 30))))))
    assert allowed_nodes(table, wanted).nonzero()[0].tolist() == list(range(10, 30))


def test_nodes_count_if_any_pod_may_use_them():
    nodes = [node("plain"), node("tainted", taints=(Taint("gpu", "yes"),)), None, node("cordoned", unschedulable=True)]
    tolerant = Constraints(tolerations=(Toleration("gpu", "Exists"),))
    chosen = Constraints(node_selector=(("zone", "a"),))
    assert eligible_nodes(nodes, ()).tolist() == [True, False, False, False]
    assert eligible_nodes(nodes, [Constraints()] * 3).tolist() == [True, False, False, False]
    assert eligible_nodes(nodes, [chosen, tolerant]).tolist() == [True, True, False, False]
    assert not eligible_nodes(nodes, [chosen]).any()
    models = Constraints(gpu_models=("A100",))
    assert eligible_nodes(nodes, [models]).tolist() == [True, False, False, False]
    assert eligible_nodes([], ()).tolist() == []
