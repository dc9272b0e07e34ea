"""Constraints on other pods: ports, exclusive volumes, pod (anti-)affinity and spread, as counts.

Pods count by their *labels* (namespace and labels, interned) and by their class. Every distinct selector of a class or
a policy is counted per node as pods are placed and removed, so that a check costs O(nodes), not O(pods). The rules are
kube-scheduler 1.37's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.label_index import CountedPods, LabelIndex, LabelSet
from steersman.cluster.constraints.node import MISSING, NodeTable, affinity_nodes, tolerated_nodes
from steersman.cluster.model import (
    Constraints,
    ExclusiveVolume,
    HostPort,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSelector,
    Toleration,
    TopologySpread,
)

PORT, VOLUME, AFFINITY, ANTI_AFFINITY, SPREAD, PREFERRED, SOFT_SPREAD, NO_AFFINITY, NO_SPREAD = range(9)
"""Kinds of rules. Those up to `VOLUME` are about exclusive things (ports, volumes), those up to `SPREAD` refuse nodes;
`PREFERRED` and `SOFT_SPREAD` only affect scores. `NO_AFFINITY` and `NO_SPREAD` are those of filters that the pod's
scheduler has disabled."""

PORT_FILTER, VOLUME_FILTER, AFFINITY_FILTER, SPREAD_FILTER = (
    "NodePorts",
    "VolumeRestrictions",
    "InterPodAffinity",
    "PodTopologySpread",
)
"""Filter plugins that a profile may disable (`ProfileRules.disabled_filters`); `node` has the others."""

KIND, COUNTED, KEY, OWNED, WEIGHT, SELF, MIN_DOMAINS, INCLUDED = range(8)
"""Columns of `InterPodArrays.rules`; `WEIGHT` of a spread is its `max_skew`."""
RULE_COLUMNS = 8

UNBOUNDED = 1 << 62

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SELECTOR, OWNED_KEY, OWNED_WEIGHT = range(3)
"""Columns of `InterPodArrays.owned_terms`."""

EVERY_ADDRESS = "0.0.0.0"
NOTHING = PodSelector(None, frozenset())
RBD = "rbd"


class InterPodArrays(NamedTuple):
    """Rules of classes about other pods, and the counts that they read.

    N node slots, C classes, Q rules, L label sets, S selectors, O owned terms, X exclusive things (host ports and
    volumes), K topology keys, I node filters.

    Attributes:
        rules: [Q, 8] int64, those of class c in rows `rule_start[c]` to `rule_start[c + 1]`, in the pod's own order
            within a kind. Columns:

            - `KIND`: `PORT`, `VOLUME`, `AFFINITY` and `ANTI_AFFINITY` (required), `SPREAD` (DoNotSchedule), `PREFERRED`
              (affinity or anti-affinity), `SOFT_SPREAD` (ScheduleAnyway).
            - `COUNTED`: row of `matched` that the rule reads (for `PORT` and `VOLUME`: row of `held`). A required
              affinity counts pods that match *all* of the class's required affinity terms. A spread over an empty
              selector `{}` counts no pod, and none counts terminating pods.
            - `KEY`: row of `domain`.
            - `OWNED`: row of `owned` that a pod with this rule adds to; -1 for ports, volumes
              and spreads.
            - `WEIGHT`: of `PREFERRED`, negative for anti-affinity; `max_skew` of spreads; else 0.
            - `SELF`: column of `matches` that says whether the pod itself is one of those counted.
            - `MIN_DOMAINS`: of spreads.
            - `INCLUDED`: row of `included`, the nodes over which a spread counts (its node inclusion policies).

            Columns that do not apply are 0.
        rule_start: [C + 1] int64.
        matches: [L, S] bool, whether a selector matches pods with these labels.
        matched: [S, N] int32 pods on the node that the selector matches.
        owned_terms: [O, 3] int64, distinct terms that pods own: `SELECTOR` (column of `matches`), `OWNED_KEY` (row of
            `domain`), `OWNED_WEIGHT` (score added where an incoming pod matches: `hard_affinity_weight` of the owner's
            profile for required affinity, w and -w for preferred affinity and anti-affinity, 0 for required
            anti-affinity, which refuses instead).
        owned: [O, N] int32, how often pods on the node own the term.
        owned_total: [O] int64, its sum over nodes.
        conflicts: [X, X] bool, whether two exclusive things exclude each other (ports: address, protocol, number);
            symmetric.
        held: [X, N] int32, how many pods on the node hold the exclusive thing.
        domain: [K, N] int32, number of the node's value of the topology key; -1 where it lacks the key, or is free.
        domains: [K] int64, above the highest number in the row of `domain` (some numbers may have no node).
        included: [I, N] bool, nodes that a node filter accepts; False in free slots.
    """

    rules: npt.NDArray[np.int64]
    rule_start: npt.NDArray[np.int64]
    matches: npt.NDArray[np.bool_]
    matched: npt.NDArray[np.int32]
    owned_terms: npt.NDArray[np.int64]
    owned: npt.NDArray[np.int32]
    owned_total: npt.NDArray[np.int64]
    conflicts: npt.NDArray[np.bool_]
    held: npt.NDArray[np.int32]
    domain: npt.NDArray[np.int32]
    domains: npt.NDArray[np.int64]
    included: npt.NDArray[np.bool_]


def terms_place(terms: InterPodArrays, c: int, labels: int, n: int) -> None:
    """Count a pod of class `c` with these labels on node `n`."""
    _count(terms, c, labels, n, 1)


def terms_remove(terms: InterPodArrays, c: int, labels: int, n: int) -> None:
    """Undo `terms_place` with the same arguments, exactly."""
    _count(terms, c, labels, n, -1)


def _count(terms: InterPodArrays, c: int, labels: int, n: int, sign: int) -> None:
    terms.matched[np.flatnonzero(terms.matches[labels]), n] += sign
    for kind, counted, _, owned, *_ in rules_of(terms, c).tolist():
        if kind <= VOLUME:
            terms.held[counted, n] += sign
        elif owned >= 0:
            terms.owned[owned, n] += sign
            terms.owned_total[owned] += sign


def rules_of(terms: InterPodArrays, c: int) -> Ints:
    """Return the rules of class `c`, rows of `rules`."""
    return terms.rules[terms.rule_start[c] : terms.rule_start[c + 1]]


def has_inter_pod_rules(terms: InterPodArrays, c: int, labels: int) -> bool:
    """Return whether `inter_pod_mask` could refuse a node: by a hard rule of the class, or a pod's anti-affinity."""
    return bool((rules_of(terms, c)[:, KIND] <= SPREAD).any() or _excluding(terms, labels).any())


def inter_pod_mask(terms: InterPodArrays, c: int, labels: int) -> Mask:
    """Return where no port, volume, other pod or spread refuses a pod of class `c`, [N]."""
    mask = existing_mask(terms, labels)
    for rule in rules_of(terms, c):
        if rule[KIND] <= SPREAD:
            mask &= rule_mask(terms, c, labels, rule)
    return mask


def rule_mask(terms: InterPodArrays, c: int, labels: int, rule: Ints) -> Mask:
    """Return where a rule of class `c`, one that refuses nodes, lets the pod be, [N]."""
    kind = rule[KIND]
    if kind <= VOLUME:
        return np.asarray((terms.held[terms.conflicts[rule[COUNTED]]] <= 0).all(axis=0))
    if kind == AFFINITY:
        return _affinity_mask(terms, c, labels, rule)
    if kind == ANTI_AFFINITY:
        return _without_pods(terms, terms.matched[rule[COUNTED]], rule[KEY])
    return _spread_mask(terms, c, labels, rule)


def existing_mask(terms: InterPodArrays, labels: int) -> Mask:
    """Return the nodes whose domain has no pod with a required anti-affinity that matches these labels, [N]."""
    mask = np.ones(terms.owned.shape[1], dtype=np.bool_)
    for o in np.flatnonzero(_excluding(terms, labels)):
        mask &= _without_pods(terms, terms.owned[o], terms.owned_terms[o, OWNED_KEY])
    return mask


def _excluding(terms: InterPodArrays, labels: int) -> Mask:
    """Return which owned terms are a required anti-affinity of some placed pod and match the labels, [O]."""
    is_required = terms.owned_terms[:, OWNED_WEIGHT] == 0
    return np.asarray(is_required & (terms.owned_total != 0) & terms.matches[labels, terms.owned_terms[:, SELECTOR]])


def _domain_sums(terms: InterPodArrays, counts: npt.NDArray[np.int32], key: int) -> Ints:
    """Return the sums of counts, [N], over the nodes of each domain, [D + 1]: that of domain d is number d + 1.

    The first one, of nodes without the key, is 0.
    """
    # Sums of 64-bit floats are exact here.
    sums = np.bincount(terms.domain[key] + 1, counts, terms.domains[key] + 1).astype(np.int64)
    sums[0] = 0
    return sums


def _without_pods(terms: InterPodArrays, counts: npt.NDArray[np.int32], key: int) -> Mask:
    """Return the nodes whose domain has none of the counted pods, or that have no domain, [N]."""
    return np.asarray((_domain_sums(terms, counts, key) <= 0)[terms.domain[key] + 1])


def _affinity_mask(terms: InterPodArrays, c: int, labels: int, rule: Ints) -> Mask:
    """Refuse nodes whose domain has no counted pod, or that have no domain.

    The first pod of a group, one that its own terms match while no counted pod is in a domain of any of them, may
    start it anywhere.
    """
    sums = _domain_sums(terms, terms.matched[rule[COUNTED]], rule[KEY])
    if terms.matches[labels, rule[SELF]] and not sums.any():
        others = (each for each in rules_of(terms, c) if each[KIND] == AFFINITY)
        if not any(_domain_sums(terms, terms.matched[each[COUNTED]], each[KEY]).any() for each in others):
            return np.asarray(terms.domain[rule[KEY]] >= 0)
    return np.asarray((sums != 0)[terms.domain[rule[KEY]] + 1])


def _spread_mask(terms: InterPodArrays, c: int, labels: int, rule: Ints) -> Mask:
    """Refuse nodes that lack the key, or whose domain would exceed the skew with one pod more.

    Skew is the domain's pods after placement minus the fewest in any eligible domain: one with an included node that
    has the keys of *all* hard spread rules of the class.
    """
    rules, domain, domains = rules_of(terms, c), terms.domain[rule[KEY]], terms.domains[rule[KEY]]
    keys = rules[rules[:, KIND] == SPREAD, KEY]
    counted = np.flatnonzero(terms.included[rule[INCLUDED]] & (terms.domain[keys] >= 0).all(axis=0))
    pods = np.bincount(domain[counted], terms.matched[rule[COUNTED], counted], domains).astype(np.int64)
    eligible = pods[np.bincount(domain[counted], minlength=domains) > 0]
    fewest = int(eligible.min(initial=UNBOUNDED))
    # As PodTopologySpread: with fewer domains than minDomains the global minimum is 0.
    if len(eligible) < rule[MIN_DOMAINS]:
        fewest = 0
    most = rule[WEIGHT] + fewest - terms.matches[labels, rule[SELF]]
    # PodTopologySpread counts 0 pods in a domain that is not eligible.
    return np.asarray(np.append(pods <= most, False)[domain])


Filter = tuple[tuple[tuple[str, str], ...], tuple[NodeSelectorTerm, ...] | None, tuple[Toleration, ...] | None]
"""A node filter: nodeSelector, required node affinity, and tolerations of the taints (None: taints are ignored)."""

Rule = tuple[int, int, int, int, int, int, int, int]
"""A row of `InterPodArrays.rules`."""


def _merged(selector: PodSelector) -> PodSelector:
    return selector


def _unmerged(selector: PodSelector) -> PodSelector:
    """Return what a selector counts for a pod that is placed, see `ProfileRules.merges_namespaces`."""
    return replace(selector, namespaces=None) if selector.excludes_namespaces else selector


class InterPodConstraints:
    """Numbers of label sets, selectors and topology keys, and the arrays about them.

    New classes, selectors and labels are added to the arrays together when `arrays` is next called. Label set 0 is that
    of a pod without labels in the namespace `default`. Changes of nodes must be announced by `node_changed` and `grow`.
    While `is_provisional`, new numbers will be taken back, so they are not indexed.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._labels: dict[tuple[str, frozenset[tuple[str, str]], bool], int] = {}
        self._label_sets: list[LabelSet] = []
        self._selectors: dict[CountedPods, int] = {}
        self._owned: dict[tuple[int, int, int], int] = {}
        self._exclusive: dict[HostPort | ExclusiveVolume, int] = {}
        self._keys: dict[str, int] = {}
        self._filters: dict[Filter, int] = {}
        self._rules: list[Rule] = []
        self._rule_start = [0]
        self._match_buffer = np.zeros((0, 0), dtype=np.bool_)
        self._index = LabelIndex()
        self.is_provisional = False
        self._arrays = _empty(len(table))
        self.labels_id("default", {})

    def labels_id(self, namespace: str, labels: Mapping[str, str], *, terminating: bool = False) -> int:
        """Return the number of a label set: a row of `matches`."""
        key = labels_key(namespace, labels, terminating=terminating)
        known = self._labels.get(key)
        if known is None:
            known = self._labels[key] = len(self._labels)
            self._label_sets.append(LabelSet(namespace, dict(labels), terminating))
        return known

    def selector_id(self, *selectors: PodSelector, living: bool = False) -> int:
        """Return the number of pods that match all the selectors: a row of `matched`, a column of `matches`.

        `living`: terminating pods do not count, as in topology spread.
        """
        return self._selectors.setdefault(CountedPods(selectors, living), len(self._selectors))

    def key_id(self, topology_key: str) -> int:
        """Return the number of a topology key: a row of `domain`."""
        return self._keys.setdefault(topology_key, len(self._keys))

    def included_id(self, constraints: Constraints, *, affinity: bool = True, taints: bool = False) -> int:
        """Return the number of the node filter of a spread constraint: a row of `included`.

        `affinity` honours the pod's node selector and required node affinity, `taints` the nodes' taints.
        """
        result: Filter = (
            constraints.node_selector if affinity else (),
            constraints.node_affinity if affinity else None,
            constraints.tolerations if taints else None,
        )
        return self._filters.setdefault(result, len(self._filters))

    def add_class(self, constraints: Constraints) -> None:
        """Append the rules of the next class."""
        disabled, weight = constraints.profile.disabled_filters, constraints.profile.hard_affinity_weight
        counted_by = _merged if constraints.profile.merges_namespaces else _unmerged
        rules: list[Rule] = []
        if PORT_FILTER not in disabled:
            rules += [self._exclusive_rule(PORT, port) for port in constraints.host_ports]
        if VOLUME_FILTER not in disabled:
            rules += [self._exclusive_rule(VOLUME, volume) for volume in constraints.exclusive_volumes]
        # InterPodAffinity counts only pods that match all required affinity terms; anti-affinity counts each alone.
        all_terms = tuple(counted_by(each.selector) for each in constraints.affinity)
        joint = self.selector_id(*all_terms) if all_terms else -1
        for term in constraints.affinity:
            kind = NO_AFFINITY if AFFINITY_FILTER in disabled else AFFINITY
            # An owned term of weight 0 would be a required anti-affinity.
            owned = self._owned_term(term, weight) if weight else (self.key_id(term.topology_key), -1)
            rules.append((kind, joint, *owned, 0, joint, 0, 0))
        for term in () if AFFINITY_FILTER in disabled else constraints.anti_affinity:
            counted = self.selector_id(counted_by(term.selector))
            rules.append((ANTI_AFFINITY, counted, *self._owned_term(term, 0), 0, counted, 0, 0))
        rules += [self._spread(spread, constraints) for spread in constraints.spread]
        for sign, terms in ((1, constraints.preferred_affinity), (-1, constraints.preferred_anti_affinity)):
            for preferred in terms:
                counted, weight = self.selector_id(counted_by(preferred.term.selector)), sign * preferred.weight
                rules.append((PREFERRED, counted, *self._owned_term(preferred.term, weight), weight, counted, 0, 0))
        self._rules += rules
        self._rule_start.append(len(self._rules))

    def _exclusive_rule(self, kind: int, thing: HostPort | ExclusiveVolume) -> Rule:
        number = self._exclusive.setdefault(thing, len(self._exclusive))
        return (kind, number, 0, -1, 0, 0, 0, 0)

    def _owned_term(self, term: PodAffinityTerm, weight: int) -> tuple[int, int]:
        key = self.key_id(term.topology_key)
        owned = (self.selector_id(term.selector), key, weight)
        return key, self._owned.setdefault(owned, len(self._owned))

    def _spread(self, spread: TopologySpread, constraints: Constraints) -> Rule:
        # An empty selector {} counts no pods, but does match the incoming pod itself.
        counted = self.selector_id(NOTHING if spread.selector.requirements == () else spread.selector, living=True)
        included = self.included_id(constraints, affinity=spread.honor_node_affinity, taints=spread.honor_node_taints)
        hard = NO_SPREAD if SPREAD_FILTER in constraints.profile.disabled_filters else SPREAD
        kind = hard if spread.hard else SOFT_SPREAD
        key, itself = self.key_id(spread.topology_key), self.selector_id(spread.selector, living=True)
        return (kind, counted, key, -1, spread.max_skew, itself, spread.min_domains, included)

    @property
    def label_sets(self) -> Sequence[LabelSet]:
        return self._label_sets

    @property
    def numbers(self) -> int:
        """How many rules and label sets there are."""
        return len(self._rules) + len(self._label_sets)

    @property
    def idle(self) -> bool:
        """Whether nothing needs to be counted: no class has a rule, no selector has a number."""
        return not self._rules and not self._selectors

    def arrays(self, placed: Callable[[], npt.NDArray[np.int64]]) -> InterPodArrays:
        """Return the arrays with everything new added; `placed` returns what counts for new selectors, too.

        That is labels and slots of pods, [P, 2].

        They are updated in place, and replaced when anything gets a new number, so do not keep them.
        """
        old = self._arrays
        if len(self._rule_start) > len(old.rule_start):
            self._extend_rules()
        if len(self._keys) > len(old.domain) or len(self._filters) > len(old.included):
            self._extend_nodes()
        if (len(self._label_sets), len(self._selectors)) != old.matches.shape:
            self._extend_matches(placed)
        return self._arrays

    def index(self) -> None:
        """Index label sets and selectors, unless their numbers are provisional."""
        if not self.is_provisional:
            self._index.extend(self._label_sets, self._selectors)

    def node_changed(self, slot: int) -> None:
        """Handle a new, changed or removed node in this slot, whose pods stay."""
        arrays, here = self._arrays, self._table.permuted([slot])
        # Later keys have no row yet; `_extend_nodes` reads all nodes for them.
        for row, key in enumerate(list(self._keys)[: len(arrays.domain)]):
            arrays.domain[row, slot] = here.label(key).ids[0]
            arrays.domains[row] = len(here.label(key).numbers)
        for row, each in enumerate(list(self._filters)[: len(arrays.included)]):
            arrays.included[row, slot] = _included(here, each)[0]

    def grow(self) -> None:
        """Handle free slots that were added to the table."""
        old = self._arrays
        more = len(self._table) - old.domain.shape[1]
        self._arrays = old._replace(
            matched=np.pad(old.matched, ((0, 0), (0, more))),
            owned=np.pad(old.owned, ((0, 0), (0, more))),
            held=np.pad(old.held, ((0, 0), (0, more))),
            domain=np.pad(old.domain, ((0, 0), (0, more)), constant_values=MISSING),
            included=np.pad(old.included, ((0, 0), (0, more))),
        )

    def permuted(self, table: NodeTable, order: npt.NDArray[np.int64]) -> InterPodConstraints:
        """Return a copy for `table`, the slots of this one in another order, that shares nothing mutable."""
        chosen, old = InterPodConstraints(table), self._arrays
        chosen._labels, chosen._label_sets = self._labels.copy(), self._label_sets.copy()
        chosen._selectors, chosen._owned = self._selectors.copy(), self._owned.copy()
        chosen._exclusive = self._exclusive.copy()
        chosen._keys, chosen._filters = self._keys.copy(), self._filters.copy()
        chosen._rules, chosen._rule_start = self._rules.copy(), self._rule_start.copy()
        chosen._match_buffer = old.matches  # without spare rows, so either copies before it writes
        chosen._arrays = old._replace(
            matched=old.matched.take(order, axis=1),
            owned=old.owned.take(order, axis=1),
            owned_total=old.owned_total.copy(),
            held=old.held.take(order, axis=1),
            domain=old.domain.take(order, axis=1),
            domains=old.domains.copy(),
            included=old.included.take(order, axis=1),
        )
        return chosen

    def _extend_rules(self) -> None:
        """Add rules, owned terms and exclusive things, which nobody owns or holds yet since their classes are new."""
        old, size = self._arrays, len(self._table)
        owned = np.array(list(islice(self._owned, len(old.owned), None)), dtype=np.int64).reshape(-1, 3)
        rules = np.array(self._rules[len(old.rules) :], dtype=np.int64).reshape(-1, RULE_COLUMNS)
        starts = np.array(self._rule_start[len(old.rule_start) :], dtype=np.int64)
        self._arrays = old._replace(
            rules=np.concatenate([old.rules, rules]),
            rule_start=np.concatenate([old.rule_start, starts]),
            owned_terms=np.concatenate([old.owned_terms, owned]),
            owned=_appended(old.owned, np.zeros((len(owned), size), dtype=np.int32)),
            owned_total=np.concatenate([old.owned_total, np.zeros(len(owned), dtype=np.int64)]),
        )
        if len(self._exclusive) > len(old.held):
            self._extend_exclusive()

    def _extend_exclusive(self) -> None:
        old, things = self._arrays, list(self._exclusive)
        known, alike = len(old.held), defaultdict[Hashable, list[int]](list)
        conflicts = np.zeros((len(things), len(things)), dtype=np.bool_)
        conflicts[:known, :known] = old.conflicts
        for a, thing in enumerate(things):
            others = alike[_contended(thing)]
            others.append(a)
            if a >= known:
                for b in others:
                    conflicts[a, b] = conflicts[b, a] = _conflict(thing, things[b])
        held = np.zeros((len(things) - known, len(self._table)), dtype=np.int32)
        self._arrays = old._replace(conflicts=conflicts, held=_appended(old.held, held))

    def _extend_nodes(self) -> None:
        old, size = self._arrays, len(self._table)
        columns = [self._table.label(key) for key in list(self._keys)[len(old.domain) :]]
        filters = list(self._filters)[len(old.included) :]
        domain = np.array([column.ids for column in columns], dtype=np.int32).reshape(len(columns), size)
        included = np.array([_included(self._table, each) for each in filters], dtype=np.bool_)
        sizes = np.array([len(column.numbers) for column in columns], dtype=np.int64)
        self._arrays = old._replace(
            domain=np.concatenate([old.domain, domain]),
            domains=np.concatenate([old.domains, sizes]),
            included=np.concatenate([old.included, included.reshape(len(filters), size)]),
        )

    def _extend_matches(self, placed: Callable[[], npt.NDArray[np.int64]]) -> None:
        """Add which selectors match which labels, in a buffer with spare rows, and the counts of new selectors."""
        old, selectors = self._arrays, list(self._selectors)
        labels, (known_labels, known) = len(self._label_sets), old.matches.shape
        buffer = self._match_buffer
        if buffer.shape[0] < labels or buffer.shape[1] != len(selectors):
            # Doubled, since every new label set would otherwise copy all rows.
            capacity = max(labels, 2 * buffer.shape[0] if buffer.shape[0] < labels else buffer.shape[0])
            buffer = np.zeros((capacity, len(selectors)), dtype=np.bool_)
            buffer[:known_labels, :known] = old.matches
            self._match_buffer = buffer
        if selectors:
            self.index()
        index, sets = self._index, self._label_sets
        for row in range(known_labels, labels) if known else ():
            of_indexed = index.matching(sets[row])[:known]
            buffer[row, : len(of_indexed)] = of_indexed
            buffer[row, len(of_indexed) : known] = [
                each.matcher()(sets[row]) for each in selectors[len(of_indexed) : known]
            ]
        for column, counted in enumerate(selectors[known:], known):
            buffer[: index.label_sets, column] = index.matched_by(counted)
            buffer[index.label_sets : labels, column] = list(map(counted.matcher(), sets[index.label_sets :]))
        matched = np.zeros((len(selectors) - known, len(self._table)), dtype=np.int32)
        if len(matched) and len(of_pods := placed()):
            for row, hits in enumerate(buffer[:, known:].T):
                matched[row] = np.bincount(of_pods[hits[of_pods[:, 0]], 1], minlength=len(self._table))
        self._arrays = old._replace(matches=buffer[:labels], matched=_appended(old.matched, matched))


def labels_key(
    namespace: str, labels: Mapping[str, str], *, terminating: bool = False
) -> tuple[str, frozenset[tuple[str, str]], bool]:
    """Return what distinguishes label sets."""
    return namespace, frozenset(labels.items()), terminating


def _contended(thing: HostPort | ExclusiveVolume) -> Hashable:
    """Return what two things have in common if they exclude each other."""
    return (thing.port, thing.protocol or "TCP") if isinstance(thing, HostPort) else (thing.kind, thing.disk)


def _conflict(a: HostPort | ExclusiveVolume, b: HostPort | ExclusiveVolume) -> bool:
    """Return whether pods that hold these, which are `_contended` alike, exclude each other.

    Host ports do with an address in common, a disk if it cannot be shared (VolumeRestrictions.isVolumeConflict).
    """
    if isinstance(a, HostPort) and isinstance(b, HostPort):
        addresses = {a.ip or EVERY_ADDRESS, b.ip or EVERY_ADDRESS}
        return EVERY_ADDRESS in addresses or len(addresses) == 1
    assert isinstance(a, ExclusiveVolume)
    assert isinstance(b, ExclusiveVolume)
    if a.kind == RBD and set(a.monitors).isdisjoint(b.monitors):
        return False
    return not (a.read_only and b.read_only)


def _appended(old: npt.NDArray[np.int32], new: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return rows with new ones after them: in spare rows of the same memory, since there may be many old ones."""
    size = len(old) + len(new)
    buffer = old if old.base is None else old.base
    if len(buffer) < size:
        buffer = np.zeros((2 * size, *old.shape[1:]), dtype=old.dtype)
        buffer[: len(old)] = old
    buffer[len(old) : size] = new
    return buffer[:size]


def _included(table: NodeTable, accepts: Filter) -> npt.NDArray[np.bool_]:
    """Return the nodes that a node filter accepts, [N]."""
    selector, affinity, tolerations = accepts
    included = affinity_nodes(table, selector, affinity)
    return included if tolerations is None else included & tolerated_nodes(table, tolerations)


def _empty(size: int) -> InterPodArrays:
    return InterPodArrays(
        rules=np.zeros((0, RULE_COLUMNS), dtype=np.int64),
        rule_start=np.zeros(1, dtype=np.int64),
        matches=np.zeros((0, 0), dtype=np.bool_),
        matched=np.zeros((0, size), dtype=np.int32),
        owned_terms=np.zeros((0, 3), dtype=np.int64),
        owned=np.zeros((0, size), dtype=np.int32),
        owned_total=np.zeros(0, dtype=np.int64),
        conflicts=np.zeros((0, 0), dtype=np.bool_),
        held=np.zeros((0, size), dtype=np.int32),
        domain=np.zeros((0, size), dtype=np.int32),
        domains=np.zeros(0, dtype=np.int64),
        included=np.zeros((0, size), dtype=np.bool_),
    )
