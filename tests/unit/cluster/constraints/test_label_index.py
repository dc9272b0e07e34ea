"""Indexed matches are those of trying each selector on each label set, and their cost does not grow with pods."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.cluster.constraints.label_index import CountedPods, LabelIndex, LabelSet
from steersman.cluster.constraints.node import holds
from steersman.cluster.model import (
    Constraints,
    ExclusiveVolume,
    HostPort,
    Node,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    Requests,
    Requirement,
)
from steersman.cluster.provisional import provisional_numbers
from steersman.cluster.state import ClusterState

KEYS, VALUES, NAMESPACES = st.sampled_from("abc"), st.sampled_from(("", "x", "y", "z")), st.sampled_from("mn")
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(("In", "NotIn")), st.lists(VALUES, max_size=3).map(tuple)),
    st.builds(Requirement, KEYS, st.sampled_from(("Exists", "DoesNotExist"))),
)
SELECTORS = st.builds(
    PodSelector,
    st.one_of(st.none(), st.lists(REQUIREMENTS, max_size=3).map(tuple)),
    st.one_of(st.none(), st.frozensets(NAMESPACES)),
)
COUNTED = st.builds(CountedPods, st.lists(SELECTORS, max_size=2).map(tuple), st.booleans())
LABEL_SETS = st.builds(LabelSet, NAMESPACES, st.dictionaries(KEYS, VALUES), st.booleans())


@given(st.lists(COUNTED, max_size=6), st.lists(LABEL_SETS, max_size=8), st.data())
def test_index_agrees_with_trying_every_selector(
    counted: list[CountedPods], labels: list[LabelSet], data: st.DataObject
) -> None:
    index = LabelIndex()
    first = data.draw(st.integers(0, len(counted))), data.draw(st.integers(0, len(labels)))
    index.extend(labels[: first[1]], counted[: first[0]])
    index.extend(labels, counted)
    assert (index.label_sets, index.selectors) == (len(labels), len(counted))
    for each in counted:
        assert list(map(each.matcher(), labels)) == [plain_match(each, pods) for pods in labels]
        assert index.matched_by(each).tolist() == [plain_match(each, pods) for pods in labels]
    for pods in labels:
        assert index.matching(pods).tolist() == [plain_match(each, pods) for each in counted]


def plain_match(counted: CountedPods, pods: LabelSet) -> bool:
    """Twin of `CountedPods.matcher`, requirement by requirement."""
    return not (counted.living and pods.terminating) and all(
        selector.requirements is not None
        and (selector.namespaces is None or pods.namespace in selector.namespaces)
        and all(holds(requirement, pods.labels) for requirement in selector.requirements)
        for selector in counted.selectors
    )


STEPS = st.lists(st.tuples(st.sampled_from(("labels", "selector")), st.booleans(), LABEL_SETS, COUNTED), max_size=12)


@given(STEPS)
def test_counts_are_plain_ones_after_any_history(steps: list[tuple[str, bool, LabelSet, CountedPods]]) -> None:
    state = ClusterState([Node("a", 9000, 1 << 40), Node("b", 9000, 1 << 40)])
    plain = state.class_id(PodClass(Requests(cpu_milli=1)))
    state.terms.selector_id(PodSelector((), None))  # something is counted from the beginning

    def check() -> None:
        arrays, sets = state.term_arrays, state.terms.label_sets
        expected = [[plain_match(each, pods) for each in state.terms._selectors] for pods in sets]
        assert arrays.matches.tolist() == expected
        for s, each in enumerate(state.terms._selectors):
            on = [placed.slot for placed in state.placements.values() if plain_match(each, sets[placed.labels_id])]
            assert arrays.matched[s].tolist() == [on.count(0), on.count(1)]

    for i, (kind, is_provisional, labels, counted) in enumerate(steps):
        with provisional_numbers(state) if is_provisional else nullcontext():
            if kind == "labels":
                number = state.terms.labels_id(labels.namespace, labels.labels, terminating=labels.terminating)
                if not is_provisional:
                    state.place(f"pod {i}", plain, i % 2, 0, number)
            else:
                state.terms.selector_id(*counted.selectors, living=counted.living)
            check()
            # More than once in a block: what was new before is still not indexed.
            state.terms.selector_id(*counted.selectors, living=not counted.living)
            state.terms.labels_id("other", labels.labels)
            check()
        check()


THINGS = st.one_of(
    st.builds(HostPort, st.integers(1, 3), st.sampled_from(("TCP", "UDP")), st.sampled_from(("0.0.0.0", "1.1.1.1"))),
    st.builds(
        ExclusiveVolume,
        st.sampled_from(("rbd", "gcePersistentDisk")),
        st.tuples(st.sampled_from("de")),
        st.frozensets(st.sampled_from("rs")).map(tuple),
        st.booleans(),
    ),
)


@given(st.lists(THINGS, unique=True, min_size=1, max_size=8))
def test_exclusive_things_conflict_whether_together_or_one_by_one(things: list[HostPort | ExclusiveVolume]) -> None:
    things.sort(key=lambda each: isinstance(each, ExclusiveVolume))  # as a class has them
    expected = [[_excludes(a, b) for b in things] for a in things]
    for parts in ([things], [[each] for each in things]):
        state = ClusterState([Node("a", 9000, 1 << 40)])
        for part in parts:
            ports = tuple(each for each in part if isinstance(each, HostPort))
            volumes = tuple(each for each in part if isinstance(each, ExclusiveVolume))
            state.class_id(PodClass(Requests(), Constraints(host_ports=ports, exclusive_volumes=volumes)))
            arrays = state.term_arrays
        assert arrays.conflicts.tolist() == expected


def _excludes(a: HostPort | ExclusiveVolume, b: HostPort | ExclusiveVolume) -> bool:
    """Plain twin of the rules of NodePorts and VolumeRestrictions."""
    if isinstance(a, HostPort) and isinstance(b, HostPort):
        return (a.port, a.protocol) == (b.port, b.protocol) and ("0.0.0.0" in (a.ip, b.ip) or a.ip == b.ip)
    if isinstance(a, HostPort) or isinstance(b, HostPort) or (a.kind, a.disk) != (b.kind, b.disk):
        return False
    shares_no_monitor = a.kind == "rbd" and not set(a.monitors) & set(b.monitors)
    return not shares_no_monitor and not (a.read_only and b.read_only)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[CountedPods]:
    """Collect the selectors that are tried on one label set."""
    tried: list[CountedPods] = []
    plain = CountedPods.matcher

    def matcher(self: CountedPods) -> Callable[[LabelSet], bool]:
        match = plain(self)

        def counted(pods: LabelSet) -> bool:
            tried.append(self)
            return match(pods)

        return counted

    monkeypatch.setattr(CountedPods, "matcher", matcher)
    return tried


@pytest.mark.parametrize("is_provisional", [False, True])
def test_trials_of_selectors_do_not_grow_with_pods(trials: list[CountedPods], *, is_provisional: bool) -> None:
    costs = []
    for others in (10, 200):
        state = ClusterState([Node("a", 9_000_000, 1 << 40, pods=1000, labels={"kubernetes.io/hostname": "a"})])
        for i in range(others):
            near = (_term("NotIn", f"x{i}"), _term("In", f"y{i}"))
            c = state.class_id(PodClass(Requests(cpu_milli=1), Constraints(affinity=near)))
            state.place(f"pod {i}", c, 0, 0, state.terms.labels_id("default", {"app": f"app{i}"}), force=True)
        trials.clear()
        with provisional_numbers(state) if is_provisional else nullcontext():
            terms = tuple(_term("NotIn", *(f"z{i}-{j}" for j in range(20))) for i in range(10))
            c = state.class_id(PodClass(Requests(cpu_milli=1), Constraints(anti_affinity=terms)))
            assert not state.mask(c, state.terms.labels_id("default", {"app": "new"})).any()
        costs.append(len(trials))
    assert costs[0] == costs[1]


def _term(operator: str, *values: str) -> PodAffinityTerm:
    selector = PodSelector((Requirement("app", operator, values),), frozenset(("default",)))
    return PodAffinityTerm(selector, "kubernetes.io/hostname")
