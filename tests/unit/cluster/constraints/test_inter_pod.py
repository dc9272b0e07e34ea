"""Hard constraints against a slow oracle: kube-scheduler's filters in plain Python, over nodes and pods alone."""

import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from steersman.cluster.constraints import reasons as explaining
from steersman.cluster.constraints.inter_pod import (
    COUNTED,
    KIND,
    MIN_DOMAINS,
    OWNED_KEY,
    OWNED_WEIGHT,
    PREFERRED,
    SELECTOR,
    SOFT_SPREAD,
    WEIGHT,
    InterPodArrays,
    has_inter_pod_rules,
)
from steersman.cluster.model import (
    Constraints,
    ExclusiveVolume,
    HostPort,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    PreferredPodTerm,
    Requests,
    Requirement,
    Taint,
    Toleration,
    TopologySpread,
)
from steersman.cluster.state import ClusterState, device_indices

# The oracle -----------------------------------------------------------------------------------------------------------


@dataclass
class Bound:
    pod: Pod
    node: str
    devices: tuple[int, ...] = ()


@dataclass
class World:
    """What the oracle knows: nodes by name, and every pod with its node."""

    nodes: dict[str, Node] = field(default_factory=dict)
    bound: list[Bound] = field(default_factory=list)

    def on(self, name):
        return [b for b in self.bound if b.node == name]


def label_holds(requirement, labels):
    key, values = requirement.key, requirement.values
    if requirement.operator == "In":
        return labels.get(key) in values if key in labels else False
    if requirement.operator == "NotIn":
        return key not in labels or labels[key] not in values
    if requirement.operator == "Exists":
        return key in labels
    if requirement.operator == "DoesNotExist":
        return key not in labels
    if not re.fullmatch(r"-?\d+", labels.get(key, "")):
        return False
    number, bound = int(labels[key]), int(values[0])
    return number > bound if requirement.operator == "Gt" else number < bound


def selects(selector, pod):
    if selector.requirements is None:
        return False
    in_namespace = selector.namespaces is None or pod.namespace in selector.namespaces
    return in_namespace and all(label_holds(r, pod.labels) for r in selector.requirements)


def term_matches(term, node):
    if not term.expressions and not term.fields:
        return False
    if any(value.startswith("-") for r in term.expressions for value in r.values):
        return False  # no label value: the term does not parse
    named = all(node.name in f.values if f.operator == "In" else node.name not in f.values for f in term.fields)
    return named and all(label_holds(r, node.labels) for r in term.expressions)


def node_affinity_matches(constraints, node):
    if any(node.labels.get(key) != value for key, value in constraints.node_selector):
        return False
    return constraints.node_affinity is None or any(term_matches(t, node) for t in constraints.node_affinity)


def tolerated(tolerations, taint):
    return any(
        t.effect in ("", taint.effect)
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == taint.value))
        for t in tolerations
    )


def taints_tolerated(constraints, node):
    hard = [t for t in node.taints if t.effect in ("NoSchedule", "NoExecute")]
    return all(tolerated(constraints.tolerations, t) for t in hard)


def static_reason(constraints, node):
    terms = constraints.node_affinity
    if terms and all(any(f.operator == "In" for f in t.fields) for t in terms):
        names = set()
        for t in terms:
            names |= set.intersection(*(set(f.values) for f in t.fields if f.operator == "In"))
        if not names:
            return "pod affinity terms conflict"
        if node.name not in names:
            return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    if node.unschedulable and not tolerated(constraints.tolerations, cordon):
        return "node(s) were unschedulable"
    if constraints.node_name not in ("", node.name):
        return "node(s) didn't match the requested node name"
    if not taints_tolerated(constraints, node):
        return "node(s) had untolerated taint(s)"
    if not node_affinity_matches(constraints, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if constraints.gpu_models and node.gpu_model not in constraints.gpu_models:
        return "node(s) didn't have the requested GPU model"
    return ""


def ports_free(simulator, pod, node):
    for wanted in pod.constraints.host_ports:
        for used in (port for b in simulator.on(node.name) for port in b.pod.constraints.host_ports):
            same = (wanted.port, wanted.protocol) == (used.port, used.protocol)
            if same and (wanted.ip == used.ip or "0.0.0.0" in (wanted.ip, used.ip)):
                return False
    return True


def volume_free(simulator, pod, node):
    for wanted in pod.constraints.exclusive_volumes:
        for used in (volume for b in simulator.on(node.name) for volume in b.pod.constraints.exclusive_volumes):
            same = (wanted.kind, wanted.disk) == (used.kind, used.disk)
            if wanted.kind == "rbd":
                same &= any(monitor in used.monitors for monitor in wanted.monitors)
            if same and not (wanted.read_only and used.read_only):
                return False
    return True


def shortages(simulator, pod, node):
    here, want = simulator.on(node.name), pod.requests
    found = []
    if len(here) + 1 > node.pods:
        found.append("Too many pods")
    for name, attribute in (("cpu", "cpu_milli"), ("memory", "memory_bytes"), ("ephemeral-storage", "ephemeral_bytes")):
        used = sum(getattr(b.pod.requests, attribute) for b in here)
        amount = getattr(want, attribute)
        if amount and amount > getattr(node, attribute) - used:
            found.append(f"Insufficient {name}")
    for name, amount in want.extended:
        used = sum(dict(b.pod.requests.extended).get(name, 0) for b in here)
        if amount > 0 and amount > dict(node.extended).get(name, 0) - used:
            found.append(f"Insufficient {name}")
    free = [1000] * node.gpu_count
    for b in here:
        for d in b.devices:
            if d < node.gpu_count:
                free[d] -= b.pod.requests.gpu_milli
    if sum(left >= want.gpu_milli for left in free) < want.gpu_count:
        found.append("Insufficient GPU")
    return found


def spread_reason(simulator, pod, node):
    hard = [c for c in pod.constraints.spread if c.hard]
    for c in hard:
        domains = {}
        for other in simulator.nodes.values():
            if not all(each.topology_key in other.labels for each in hard):
                continue
            if c.honor_node_affinity and not node_affinity_matches(pod.constraints, other):
                continue
            if c.honor_node_taints and not taints_tolerated(pod.constraints, other):
                continue
            value = other.labels[c.topology_key]
            living = [b.pod for b in simulator.on(other.name) if not b.pod.terminating]
            is_empty = c.selector.requirements == ()
            count = 0 if is_empty else sum(selects(c.selector, each) for each in living)
            domains[value] = domains.get(value, 0) + count
        fewest = min(domains.values(), default=0)
        if len(domains) < c.min_domains:
            fewest = 0
        if c.topology_key not in node.labels:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        if domains.get(node.labels[c.topology_key], 0) + selects(c.selector, pod) - fewest > c.max_skew:
            return "node(s) didn't match pod topology spread constraints"
    return ""


def pod_affinity_reason(simulator, pod, node):
    def near(b, key):
        other = simulator.nodes[b.node]
        return key in node.labels and key in other.labels and node.labels[key] == other.labels[key]

    own = pod.constraints.affinity
    counted = [b for b in simulator.bound if all(selects(t.selector, b.pod) for t in own)]
    satisfied = all(any(near(b, t.topology_key) for b in counted) for t in own)
    if own and not satisfied:
        started = any(t.topology_key in simulator.nodes[b.node].labels for b in counted for t in own)
        has_keys = all(t.topology_key in node.labels for t in own)
        if started or not has_keys or not all(selects(t.selector, pod) for t in own):
            return "node(s) didn't match pod affinity rules"
    mine = [(t, b) for b in simulator.bound for t in pod.constraints.anti_affinity]
    if any(selects(t.selector, b.pod) and near(b, t.topology_key) for t, b in mine):
        return "node(s) didn't match pod anti-affinity rules"
    theirs = [(t, b) for b in simulator.bound for t in b.pod.constraints.anti_affinity]
    if any(selects(t.selector, pod) and near(b, t.topology_key) for t, b in theirs):
        return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def reasons(simulator, pod, node):
    """Why kube-scheduler's filters refuse the node; empty if they do not."""
    static = static_reason(pod.constraints, node)
    if static:
        return (static,)
    if not ports_free(simulator, pod, node):
        return ("node(s) didn't have free ports for the requested pod ports",)
    short = shortages(simulator, pod, node)
    if short:
        return tuple(short)
    if not volume_free(simulator, pod, node):
        return ("node(s) had no available disk",)
    dynamic = spread_reason(simulator, pod, node) or pod_affinity_reason(simulator, pod, node)
    if not dynamic and not set(pod.constraints.node_features) <= set(node.features):
        dynamic = "node(s) didn't match Pod's required features"
    return (dynamic,) if dynamic else ()


# Small universes, so that constraints meet ---------------------------------------------------------------------------

KEYS = ("zone", "rack", "host")
NAMES = tuple(f"n{i}" for i in range(6))
TAINTS = (Taint("gpu", "yes"), Taint("gpu", "no", "NoExecute"), Taint("soft", "", "PreferNoSchedule"), Taint("", "yes"))


def some(strategy, most=2):
    return st.lists(strategy, max_size=most, unique=True).map(tuple)


def rarely(strategy, otherwise=()):
    return st.one_of(st.just(otherwise), st.just(otherwise), strategy)


@st.composite
def nodes(draw, name, *, theme=""):
    labels = {key: draw(st.sampled_from(("a", "b"))) for key in KEYS[:2] if draw(st.integers(0, 5))}
    if draw(st.integers(0, 7)):
        labels["host"] = name
    if draw(st.booleans()):
        labels["size"] = draw(st.sampled_from(("1", "2", "3", "big")))
    if theme:
        taints = TAINTS[:1] if theme == "spread" and draw(st.booleans()) else ()
        return Node(name, 9, 9, pods=9, labels=labels, taints=taints)
    return Node(
        name,
        cpu_milli=draw(st.sampled_from((3, 5))),
        memory_bytes=draw(st.sampled_from((4, 9))),
        pods=draw(st.sampled_from((2, 5))),
        gpu_count=draw(st.sampled_from((0, 1, 2))),
        gpu_model=draw(st.sampled_from(("", "A", "B"))),
        extended=draw(st.sampled_from(((), (("x.io/y", 2),)))),
        labels=labels,
        taints=draw(rarely(some(st.sampled_from(TAINTS)))),
        unschedulable=draw(st.integers(0, 5)) == 0,
        features=draw(some(st.sampled_from(("A", "B")))),
    )


requests = st.builds(
    Requests,
    cpu_milli=st.sampled_from((0, 1)),
    memory_bytes=st.sampled_from((0, 1, 2)),
    extended=rarely(st.sampled_from(((("x.io/y", 1),), (("x.io/z", 1),)))),
) | st.builds(Requests, gpu_count=st.sampled_from((1, 2)), gpu_milli=st.sampled_from((300, 600, 1000)))

tolerations = st.sampled_from(
    (
        Toleration(operator="Exists"),
        Toleration("gpu", "Equal", "yes"),
        Toleration("gpu", "", "no", "NoExecute"),
        Toleration("gpu", "Exists", "", "NoSchedule"),
        Toleration("gpu", "Gt", "0"),
        Toleration("", "Equal", "yes"),
        Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"),
    )
)
node_requirements = st.sampled_from(
    (
        Requirement("zone", "In", ("a", "c")),
        Requirement("zone", "NotIn", ("a",)),
        Requirement("rack", "Exists"),
        Requirement("rack", "DoesNotExist"),
        Requirement("size", "Gt", ("1",)),
        Requirement("size", "Lt", ("2",)),
        Requirement("size", "Gt", ("-1",)),
    )
)
field_requirements = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from(("In", "NotIn")),
    st.sampled_from(NAMES[:3]).map(lambda n: (n,)),
)
node_terms = st.builds(NodeSelectorTerm, some(node_requirements), rarely(some(field_requirements)))
label_requirements = st.sampled_from(
    (
        Requirement("app", "In", ("a",)),
        Requirement("app", "In", ("a", "b")),
        Requirement("app", "NotIn", ("a",)),
        Requirement("tier", "Exists"),
        Requirement("tier", "DoesNotExist"),
    )
)
requirement_lists = st.one_of(st.none(), some(label_requirements), some(label_requirements), some(label_requirements))
keys = st.sampled_from(KEYS)
pod_terms = st.builds(
    PodAffinityTerm,
    st.builds(PodSelector, requirement_lists, st.sampled_from((frozenset("x"), frozenset("y"), frozenset("xy"), None))),
    keys,
)
addresses = st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2"))
ports = st.builds(HostPort, st.sampled_from((80, 81)), st.sampled_from(("TCP", "UDP")), addresses)
kinds, disks = st.sampled_from(("iscsi", "gcePersistentDisk")), st.sampled_from((("a",), ("b",)))
monitors = some(st.sampled_from(("m0", "m1", "m2")))
volumes = st.builds(ExclusiveVolume, kinds, disks, st.just(()), st.booleans())
volumes |= st.builds(ExclusiveVolume, st.just("rbd"), st.just(("rbd", "image")), monitors, st.booleans())


def spreads(namespace):
    return st.builds(
        TopologySpread,
        st.sampled_from((1, 2)),
        keys,
        st.integers(0, 3).map(bool),
        st.builds(PodSelector, requirement_lists, st.just(frozenset((namespace,)))),
        st.sampled_from((1, 1, 2, 3)),
        st.booleans(),
        st.booleans(),
    )


@st.composite
def pods(draw, name, *, theme=""):
    """A pod with constraints of all kinds, or of one (`theme`), so that pods often meet over the same."""
    namespace = draw(st.sampled_from("xy"))
    labels = {"app": draw(st.sampled_from("ab"))} if draw(st.integers(0, 3)) else {}
    if draw(st.booleans()):
        labels["tier"] = "1"

    def static(strategy, otherwise=()):
        return otherwise if theme else draw(rarely(strategy, otherwise))

    def dynamic(kind, items):
        if theme:
            return draw(some(items, 3 if kind == "spread" else 2)) if theme == kind else ()
        return draw(rarely(some(items)))

    preferred = st.builds(PreferredPodTerm, st.sampled_from((1, 5)), pod_terms)
    constraints = Constraints(
        gpu_models=static(some(st.sampled_from(("A", "B", "C")))),
        node_name=static(st.sampled_from(("", "", NAMES[0])), ""),
        tolerations=static(some(tolerations)) if theme != "spread" else draw(rarely(some(tolerations))),
        node_selector=static(some(st.sampled_from((("zone", "a"), ("rack", "b"))), 1)),
        node_affinity=static(some(node_terms), None) if theme != "spread" else draw(rarely(some(node_terms), None)),
        host_ports=dynamic("ports", ports),
        exclusive_volumes=dynamic("volumes", volumes),
        node_features=static(some(st.sampled_from(("A", "B")), 1)),
        affinity=dynamic("affinity", pod_terms),
        anti_affinity=dynamic("anti-affinity", pod_terms),
        preferred_affinity=dynamic("", preferred),
        preferred_anti_affinity=dynamic("", preferred),
        spread=dynamic("spread", spreads(namespace)),
    )
    return Pod(name, PodClass(Requests() if theme else draw(requests), constraints), namespace, labels)


class Both:
    """The state and the oracle's world, kept in step."""

    def __init__(self, first):
        self.state = ClusterState(first)
        self.simulator = World({node.name: node for node in first})
        self.count = 0

    def ids(self, pod):
        return self.state.class_id(pod.pod_class), self.state.labels_id(pod)

    def agree(self, pod):
        """Both say the same about every node, and so does a copy in another order; returns the feasible nodes."""
        c, labels = self.ids(pod)
        expected = {name: reasons(self.simulator, pod, node) for name, node in self.simulator.nodes.items()}
        mask = self.state.mask(c, labels)
        found = {node.name: bool(mask[slot]) for slot, node in enumerate(self.state.nodes) if node is not None}
        assert found == {name: not why for name, why in expected.items()}
        assert not any(mask[slot] for slot, node in enumerate(self.state.nodes) if node is None)
        assert explaining.reasons_by_node(self.state, c, labels) == {name: why for name, why in expected.items() if why}
        backwards = self.state.permuted(np.arange(len(mask))[::-1])
        assert (backwards.mask(c, labels) == mask[::-1]).all()
        return [name for name, ok in found.items() if ok]

    def place(self, pod, name, *, force=False, terminating=False):
        self.count += 1
        placed = replace(pod, name=f"{pod.name}-{self.count}", terminating=terminating)
        c, labels = self.ids(placed)
        placement = self.state.place(placed.name, c, self.state.slots[name], None, labels, force=force)
        self.simulator.bound.append(Bound(placed, name, device_indices(placement.devices)))

    def remove(self, i):
        self.state.remove(self.simulator.bound.pop(i).pod.name)

    def set_node(self, node):
        (self.state.update_node if node.name in self.simulator.nodes else self.state.add_node)(node)
        self.simulator.nodes[node.name] = node

    def drop_node(self, name):
        gone = self.state.remove_node(name)
        assert set(gone) == {b.pod.name for b in self.simulator.on(name)}
        self.simulator.bound = [b for b in self.simulator.bound if b.node != name]
        del self.simulator.nodes[name]


@pytest.mark.parametrize("theme", ["", "ports", "volumes", "affinity", "anti-affinity", "spread"])
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_masks_and_reasons_match_the_oracle_after_any_history(theme, data):
    both = Both([data.draw(nodes(name, theme=theme)) for name in NAMES[: data.draw(st.integers(1, 5))]])
    pool = [data.draw(pods(f"p{i}", theme=theme)) for i in range(data.draw(st.integers(1, 4)))]
    for _ in range(data.draw(st.integers(1, 12))):
        act = data.draw(st.sampled_from(("place",) * 6 + ("force", "remove", "node", "drop")))
        pod = data.draw(st.sampled_from(pool))
        if act == "node":
            both.set_node(data.draw(nodes(data.draw(st.sampled_from(NAMES)), theme=theme)))
        elif act == "drop" and len(both.simulator.nodes) > 1:
            both.drop_node(data.draw(st.sampled_from(sorted(both.simulator.nodes))))
        elif act == "remove" and both.simulator.bound:
            both.remove(data.draw(st.integers(0, len(both.simulator.bound) - 1)))
        elif act == "force" and not pod.requests.gpu_count:
            dying = data.draw(st.booleans())
            both.place(pod, data.draw(st.sampled_from(sorted(both.simulator.nodes))), force=True, terminating=dying)
        elif feasible := both.agree(pod):
            both.place(pod, data.draw(st.sampled_from(feasible)))
    for pod in pool:
        both.agree(pod)
        check_score_counts(both, pod)


def check_score_counts(both, pod):
    """What scores are made of: pods that the pod's soft terms count, and what placed pods' terms think of the pod."""
    c, labels = both.ids(pod)
    terms: InterPodArrays = both.state.term_arrays
    rules = terms.rules[terms.rule_start[c] : terms.rule_start[c + 1]]
    soft = [(t.term.selector, t.weight) for t in pod.constraints.preferred_affinity]
    soft += [(t.term.selector, -t.weight) for t in pod.constraints.preferred_anti_affinity]
    spread = [s for s in pod.constraints.spread if not s.hard]
    assert [rule[WEIGHT] for rule in rules if rule[KIND] == PREFERRED] == [weight for _, weight in soft]
    assert [rule[MIN_DOMAINS] for rule in rules if rule[KIND] == SOFT_SPREAD] == [s.min_domains for s in spread]
    for node, slot in both.state.slots.items():
        here = [b.pod for b in both.simulator.on(node)]
        counted = [terms.matched[rule[COUNTED], slot] for rule in rules if rule[KIND] == PREFERRED]
        assert counted == [sum(selects(selector, other) for other in here) for selector, _ in soft]
        counted = [terms.matched[rule[COUNTED], slot] for rule in rules if rule[KIND] == SOFT_SPREAD]
        selectors = [s.selector if s.selector.requirements else PodSelector(None, None) for s in spread]
        living = [other for other in here if not other.terminating]
        assert counted == [sum(selects(selector, other) for other in living) for selector in selectors]
        for key in KEYS:
            matching = terms.matches[labels, terms.owned_terms[:, SELECTOR]]
            of_key = terms.owned_terms[:, OWNED_KEY] == both.state.terms.key_id(key)
            found = (terms.owned[:, slot] * terms.owned_terms[:, OWNED_WEIGHT] * matching * of_key).sum()
            assert found == sum(opinion(other.constraints, key, pod) for other in here)


def opinion(constraints, key, pod):
    """The score that a placed pod's terms over a topology key add for an incoming pod."""
    terms = [(t, 1) for t in constraints.affinity]
    terms += [(t.term, t.weight) for t in constraints.preferred_affinity]
    terms += [(t.term, -t.weight) for t in constraints.preferred_anti_affinity]
    return sum(weight for t, weight in terms if t.topology_key == key and selects(t.selector, pod))


# The rules, one by one -----------------------------------------------------------------------------------------------


def selector(*requirements, namespaces=("default",)):
    return PodSelector(requirements, frozenset(namespaces))


ANYWHERE = Constraints()
APP = selector(Requirement("app", "In", ("a",)))


def cluster(*zones):
    """Nodes n0, n1, ... in these zones (None: no label), each its own host."""
    labels = [{"host": f"n{i}"} | ({"zone": zone} if zone else {}) for i, zone in enumerate(zones)]
    return ClusterState([Node(each["host"], 9, 9, labels=each) for each in labels])


def put(state, slot, constraints=ANYWHERE, **labels):
    pod = Pod(f"pod-{len(state.placements)}", PodClass(Requests(), constraints), labels=labels)
    state.place(pod.name, state.class_id(pod.pod_class), slot, None, state.labels_id(pod), force=True)


def feasible(state, constraints, namespace="default", **labels):
    pod = Pod("incoming", PodClass(Requests(), constraints), namespace, labels)
    return np.flatnonzero(state.mask(state.class_id(pod.pod_class), state.labels_id(pod))).tolist()


@pytest.mark.parametrize(
    ("used", "wanted", "free"),
    [
        (HostPort(80), HostPort(80), False),
        (HostPort(80), HostPort(81), True),
        (HostPort(80), HostPort(80, "UDP"), True),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), True),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80), False),
        (HostPort(80), HostPort(80, ip="10.0.0.1"), False),
        (HostPort(80, "UDP"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, ip="::"), HostPort(80, ip="10.0.0.1"), True),  # "::" is an address like any other
        (HostPort(80, "", ""), HostPort(80), False),  # as the API server would have filled in
    ],
)
def test_host_ports_exclude_the_same_number_and_protocol_on_a_common_address(used, wanted, free):
    state = cluster("a")
    put(state, 0, Constraints(host_ports=(used,)))
    assert feasible(state, Constraints(host_ports=(wanted,))) == ([0] if free else [])


def test_a_pods_own_host_ports_do_not_exclude_each_other():
    both = Constraints(host_ports=(HostPort(80), HostPort(80, ip="10.0.0.1")))
    assert feasible(cluster("a"), both) == [0]


def spread(skew=1, key="zone", selector=APP, hard=True, **more):
    return Constraints(spread=(TopologySpread(skew, key, hard, selector, **more),))


def near(*keys, selector=APP):
    return Constraints(affinity=tuple(PodAffinityTerm(selector, key) for key in keys))


NEAR_ZONE, OF_ZONE = near("zone"), PodAffinityTerm(APP, "zone")
BOTH_LABELS = Constraints(affinity=(OF_ZONE, PodAffinityTerm(selector(Requirement("tier", "In", ("1",))), "zone")))
PREFERRED_ZONE = (PreferredPodTerm(100, OF_ZONE),)
PREFERS = Constraints(preferred_affinity=PREFERRED_ZONE, preferred_anti_affinity=PREFERRED_ZONE)
EMPTY, NIL = selector(), PodSelector(None, frozenset(("default",)))
THREE = ((0, "a"), (1, "a"), (2, "a"))
RULES = [
    # Zones of nodes (-: none), slots and labels of placed pods, what the pod wants, its labels, where it may be.
    ("aab-", [(1, "a")], NEAR_ZONE, "", [0, 1]),  # a matching pod is in the domain
    ("a-", [], NEAR_ZONE, "a", [0]),  # the first pod of a group needs only the topology key
    ("a-", [], NEAR_ZONE, "b", []),  # it is not of the group
    ("a-", [(1, "a")], NEAR_ZONE, "a", [0]),  # the group has not started as long as its pods have no domain
    ("aab", [(1, "a")], NEAR_ZONE, "a", [0, 1]),  # later pods follow the first
    ("aab", [(1, "a")], near("host", "zone"), "a", [1]),
    ("ab", [(0, "a"), (0, "1")], BOTH_LABELS, "", []),  # nobody matches all terms at once
    ("ab", [(0, "a"), (0, "1")], BOTH_LABELS, "a1", [0, 1]),  # so a pod that does may start
    ("ab", [(0, "a"), (0, "1"), (1, "a1")], BOTH_LABELS, "", [1]),
    ("aab-", [(0, "a"), (3, "a")], Constraints(anti_affinity=(OF_ZONE,)), "", [2, 3]),  # no node without the key
    ("a-", [(0, "a")], PREFERS, "a", [0, 1]),  # preferred terms exclude nothing
    ("aab-", THREE, spread(), "a", [2]),  # the skew is against the emptiest domain
    ("aab-", THREE, spread(2), "a", [0, 1, 2]),
    ("aab-", THREE, spread(), "b", [0, 1, 2]),  # the pod itself is not counted
    ("aab-", THREE, spread(hard=False), "a", [0, 1, 2, 3]),
    ("ab", THREE[:2], spread(min_domains=2), "a", [0, 1]),
    ("ab", THREE[:2], spread(min_domains=3), "a", []),  # as long as there are fewer, the minimum is zero
    ("ab", [(0, "")], spread(selector=EMPTY), "", [0, 1]),  # it matches the pod, and counts none
    ("ab", [(0, "")], spread(selector=EMPTY, min_domains=3), "", [0, 1]),
    ("ab", [(0, "")], spread(selector=NIL), "", [0, 1]),
]


def labels_of(text):
    """Return the labels that letters (app) and digits (tier) stand for."""
    return {"tier" if each.isdigit() else "app": each for each in text}


@pytest.mark.parametrize(("zones", "placed", "constraints", "own", "slots"), RULES)
def test_rules_about_pods_of_other_nodes(zones, placed, constraints, own, slots):
    state = cluster(*(None if zone == "-" else zone for zone in zones))
    for slot, labels in placed:
        put(state, slot, **labels_of(labels))
    assert feasible(state, constraints, **labels_of(own)) == slots


def test_anti_affinity_of_placed_pods_excludes_matching_pods():
    state = cluster("a", "a", "b", None)
    put(state, 0, Constraints(anti_affinity=(PodAffinityTerm(APP, "zone"),)))
    assert feasible(state, ANYWHERE, app="a") == [2, 3]
    assert feasible(state, ANYWHERE, app="b") == [0, 1, 2, 3]
    assert feasible(state, ANYWHERE, "elsewhere", app="a") == [0, 1, 2, 3]
    state.remove("pod-0")
    assert feasible(state, ANYWHERE, app="a") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("chosen", "refused"),
    [
        (PodSelector((), frozenset(("default",))), [0]),  # empty: every pod of the namespace
        (PodSelector((), None), [0, 1]),  # of all namespaces
        (PodSelector(None, None), []),  # nil: none
    ],
)
def test_empty_and_nil_selectors_and_namespaces(chosen, refused):
    state = cluster("a", "b", "c")
    put(state, 0)
    other = Pod("other", PodClass(Requests()), "elsewhere")
    state.place("other", state.class_id(other.pod_class), 1, None, state.labels_id(other))
    allowed = feasible(state, Constraints(anti_affinity=(PodAffinityTerm(chosen, "host"),)))
    assert sorted({0, 1, 2} - set(allowed)) == refused


def test_domains_that_the_pods_node_selector_excludes_do_not_count_unless_ignored():
    state = ClusterState([Node(f"n{i}", 9, 9, labels={"zone": z, "disk": d}) for i, (z, d) in enumerate(("ax", "by"))])
    put(state, 0, app="a")
    constraints = Constraints(node_selector=(("disk", "x"),), spread=spread().spread)
    assert feasible(state, constraints, app="a") == [0]
    ignored = Constraints(node_selector=(("disk", "x"),), spread=spread(honor_node_affinity=False).spread)
    assert feasible(state, ignored, app="a") == []


def test_domains_with_taints_count_unless_taints_are_honoured():
    taints = (Taint("x"), Taint("y", "", "NoExecute"), Taint("z", "", "PreferNoSchedule"))
    by_zone = {"a": taints[2:], "b": taints[:2]}
    state = ClusterState([Node(zone, 9, 9, labels={"zone": zone}, taints=each) for zone, each in by_zone.items()])
    put(state, 0, app="a")
    assert feasible(state, spread(), app="a") == []
    assert feasible(state, spread(honor_node_taints=True), app="a") == [0]
    tolerations = (Toleration("x", "Exists"), Toleration("y", "Exists"))
    tolerant = replace(spread(honor_node_taints=True), tolerations=tolerations)
    assert feasible(state, tolerant, app="a") == [1]


def test_cordoned_node_is_a_domain():
    state = ClusterState([Node(z, 9, 9, labels={"zone": z}, unschedulable=z == "b") for z in "ab"])
    put(state, 0, app="a")
    assert feasible(state, spread(honor_node_taints=True), app="a") == []


def test_only_nodes_with_the_keys_of_all_hard_spreads_are_domains():
    state = ClusterState([Node("n0", 9, 9, labels={"zone": "a", "rack": "r"}), Node("n1", 9, 9, labels={"zone": "b"})])
    put(state, 0, app="a")
    two = Constraints(spread=spread().spread + spread(9, "rack").spread)
    assert feasible(state, two, app="a") == [0]  # zone b is none, for n1 has no rack
    soft = Constraints(spread=spread().spread + spread(9, "rack", hard=False).spread)
    assert feasible(state, soft, app="a") == [1]


def test_reason_distinguishes_a_missing_key_from_skew():
    state = cluster("a", "b", None)
    put(state, 0, app="a")
    pod = Pod("x", PodClass(Requests(), spread()), labels={"app": "a"})
    text = "node(s) didn't match pod topology spread constraints"
    found = explaining.reasons_by_node(state, state.class_id(pod.pod_class), state.labels_id(pod))
    assert found == {"n0": (text,), "n2": (f"{text} (missing required label)",)}


def test_late_selectors_count_existing_pods():
    state = cluster("a", "b")
    put(state, 0, app="a")
    put(state, 0, app="b")
    row = state.terms.selector_id(APP)
    assert state.term_arrays.matched[row].tolist() == [1, 0]
    put(state, 1, app="a")
    assert state.term_arrays.matched[row].tolist() == [1, 1]


def test_pod_without_constraints_is_checked_only_against_anti_affinity():
    state = cluster("a", "b")
    plain = state.class_id(PodClass(Requests()))
    assert state.terms.idle
    put(state, 0, Constraints(anti_affinity=(PodAffinityTerm(APP, "zone"),)))
    matched = state.labels_id(Pod("x", PodClass(Requests()), labels={"app": "a"}))
    assert not has_inter_pod_rules(state.term_arrays, plain, 0)
    assert has_inter_pod_rules(state.term_arrays, plain, matched)
