"""Arrays of kube-scheduler's decisions: node order of the snapshot, static scores, scored resources, selectors.

Static scores are those of single nodes that do not depend on the pods there: taints, preferred nodes, images. The
arithmetic equals that of kube-scheduler 1.37 bit for bit: 64-bit integers, floats in the same order.

NodeResourcesFit and NodeResourcesBalancedAllocation score any resources. Devices in a node's mask count in milli, so
that pods may request shares; of whole devices the scores are kube-scheduler's.

Source: Kubernetes 1.37.2, pkg/scheduler/backend/cache/node_tree.go and
pkg/scheduler/framework/plugins/{tainttoleration,nodeaffinity,imagelocality,noderesources}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY
from steersman.cluster.constraints.node import NodeTable, nodes_matching_term, restricted_names, tolerates
from steersman.cluster.model import GPU_RESOURCES, Constraints, Node, PreferredNodeTerm, Toleration
from steersman.cluster.state import ClusterState
from steersman.policies.kube_scheduler.minors import COUNTED, UNCOUNTED, MinorRules
from steersman.policies.kube_scheduler.profile import (
    DEFAULT_PROFILE,
    IMAGES,
    PREFERRED_NODES,
    STATIC,
    TAINTS,
    KubeProfile,
)
from steersman.policies.kube_scheduler.spreading import DefaultSelectors
from steersman.workloads.workload import SpreadSelectors

NO_COLUMN = -1
_NATIVE = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL}


class ScoredResources(NamedTuple):
    """Resources whose use is scored, with what is offered and requested under their names.

    E entries: the resources of NodeResourcesFit, then those of NodeResourcesBalancedAllocation; none of a plugin that
    scores as by default, for which a loop over CPU and memory is faster. N node slots, K distinct constraints of
    classes (`ClassArrays.constraint`), P points.

    Attributes:
        fit: number of entries of NodeResourcesFit.
        strategy: its scoring strategy (`kube_profile.STRATEGIES`).
        balances_change: see `MinorRules`.
        entries: [E, 2] int64: column in resource matrices, `NO_COLUMN` if no node counts it; weight.
        offered: [E, N] bool, whether the devices in a node's mask are offered under this name.
        requested: [E, K] bool, whether pods with these constraints request their GPUs by this name.
        shape: [P, 2] int64: utilization in percent, score in 0..100.
    """

    fit: int
    strategy: int
    balances_change: bool
    entries: npt.NDArray[np.int64]
    offered: npt.NDArray[np.bool_]
    requested: npt.NDArray[np.bool_]
    shape: npt.NDArray[np.int64]


def scored_resources(state: ClusterState, profile: KubeProfile) -> ScoredResources:
    """Return what a profile scores of the state's nodes and classes.

    Devices and requests without a name, as in openb, count as the first GPU resource of each plugin.
    """
    fit = () if profile.fit == DEFAULT_PROFILE.fit else profile.fit.resources
    is_default = profile.minor.balances_change and profile.balanced == DEFAULT_PROFILE.balanced
    plugins = (fit, () if is_default else tuple((name, 1) for name in profile.balanced))
    columns = {name: column for column, name in enumerate(state.resources, EXTENDED)} | _NATIVE
    classes = state.class_arrays
    _, first = np.unique(classes.constraint, return_index=True)
    names_requested = [state.classes[c].requests.gpu_resource for c in first]
    entries, offered, requested = [], [], []
    for resources in plugins:
        nameless = next((name for name, _ in resources if name in GPU_RESOURCES), None)
        for name, weight in resources:
            entries.append((columns.get(name, NO_COLUMN), weight))
            is_gpu = name in GPU_RESOURCES
            offered.append([is_gpu and _offers(node, name, name == nameless) for node in state.nodes])
            requested.append([each == name or (not each and name == nameless) for each in names_requested])
    return ScoredResources(
        fit=len(fit),
        strategy=profile.fit.kind,
        balances_change=profile.minor.balances_change,
        entries=np.array(entries, dtype=np.int64).reshape(-1, 2),
        offered=np.array(offered, dtype=np.bool_).reshape(len(entries), len(state.nodes)),
        requested=np.array(requested, dtype=np.bool_).reshape(len(entries), len(first)),
        shape=np.array(profile.fit.shape, dtype=np.int64).reshape(-1, 2),
    )


def _offers(node: Node | None, name: str, is_nameless: bool) -> bool:
    if node is None or not node.gpu_count:
        return False
    return name in node.gpu_resources if node.gpu_resources else is_nameless


MAX_SCORE = 100
SOFT_EFFECT = "PreferNoSchedule"

MIN_IMAGE_BYTES = 23 << 20
MAX_IMAGE_BYTES = 1000 << 20
"""Bytes of a pod's images on a node that score 0, and bytes per container that score 100."""


class Image(NamedTuple):
    """Container image on nodes: its size in bytes as the first node reports it, and the slots that have it."""

    size: int
    slots: list[int]


def images_on(nodes: Sequence[Node | None]) -> dict[str, Image]:
    """Return the images of all nodes by name."""
    images: dict[str, Image] = {}
    for slot, node in enumerate(nodes):
        if node is not None:
            for name, size in node.images.items():
                images.setdefault(name, Image(size, [])).slots.append(slot)
    return images


def image_locality(
    images: Mapping[str, Image], names: Sequence[str], counted: int, nodes: int, slots: int
) -> npt.NDArray[np.int64]:
    """Return scores 0..100, [N], of the bytes of a pod's images on each node, weighted by their shares of nodes.

    Args:
        images: images of the nodes by name.
        names: images of all containers, init containers and volumes; an image used twice counts twice.
        counted: number of those that bound the score.
        nodes: number of nodes.
        slots: N, the number of slots, free ones included.
    """
    total = np.zeros(slots, dtype=np.int64)
    for name in names:
        image = images.get(name)
        if image is not None:
            # Scaled per image and truncated before adding, as scaledImageScore does.
            total[image.slots] += int(float(image.size) * (len(image.slots) / nodes))
    most = MAX_IMAGE_BYTES * max(counted, 1)
    excess: npt.NDArray[np.int64] = np.clip(total, MIN_IMAGE_BYTES, most) - MIN_IMAGE_BYTES
    return MAX_SCORE * excess // (most - MIN_IMAGE_BYTES)


def soft_taints(nodes: Sequence[Node | None], tolerations: Sequence[Toleration]) -> npt.NDArray[np.int64]:
    """Return the number of untolerated PreferNoSchedule taints of each node, [N]."""
    counts = np.zeros(len(nodes), dtype=np.int64)
    for slot, node in enumerate(nodes):
        for taint in node.taints if node is not None else ():
            if taint.effect == SOFT_EFFECT and not any(tolerates(toleration, taint) for toleration in tolerations):
                counts[slot] += 1
    return counts


def preferred_weights(table: NodeTable, preferred: Sequence[PreferredNodeTerm]) -> npt.NDArray[np.int64]:
    """Return the summed weights of the preferred node affinity terms that each node matches, [N]."""
    weights = np.zeros(len(table), dtype=np.int64)
    for preference in preferred:
        weights[nodes_matching_term(table, preference.term)] += preference.weight
    return weights


# Columns of `KubeArrays.constraints` after those of the static plugins.
INCLUDED_ROW, FIRST, LAST = range(STATIC, STATIC + 3)

FIND_FIRST = -1

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME_SKEW, ZONE_SKEW = 3, 5  # max skews of the system's default spread constraints, which are soft (ScheduleAnyway)

# (deprecated label, which takes precedence if present; current label)
_REGION_LABELS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


class KubeArrays(NamedTuple):
    """Inputs of kube-scheduler's decisions beside the cluster's arrays.

    N node slots, K distinct constraints of classes (`ClassArrays.constraint`), L label sets, S static rows.
    """

    nodes: int  # number of nodes
    # `percentageOfNodesToScore`; 0 adapts to the number of nodes; `FIND_FIRST` ends the search at the first feasible
    # node
    percentage: int
    ignores_existing: bool  # see `KubeProfile`
    weights: npt.NDArray[np.int64]  # [7] int64 weight of each plugin, 0 for one that does not score
    scored: ScoredResources  # the resources of NodeResourcesFit and NodeResourcesBalancedAllocation
    hostname: int  # row of `InterPodArrays.domain` for `kubernetes.io/hostname`, -1 if no pods are spread
    blank: int  # id of the zone domain of nodes without a zone
    # Slots in the order of the scheduler's snapshot, then the slots of classes that are restricted to named nodes
    lists: npt.NDArray[np.int64]
    # [K, 6] int64: for each static plugin a row of `static`, -1 if all scores are 0; `INCLUDED_ROW`, a row of
    # `InterPodArrays.included` for default spreading, -1 if there is none; `FIRST` and `LAST`, the range of `lists`
    # to search
    constraints: npt.NDArray[np.int64]
    static: npt.NDArray[np.int64]  # [S, N] int64 raw scores that do not depend on other pods
    # [L] int64 row of `InterPodArrays.matched` by which pods with these labels are spread by default, -1 if no
    # Service or similar object selects them
    default_selector: npt.NDArray[np.int64]
    # [2, 2] int64, row of `InterPodArrays.domain` and max skew of the default spread constraints
    default_spread: npt.NDArray[np.int64]


def kube_arrays(
    state: ClusterState, services: SpreadSelectors | None = None, profile: KubeProfile = DEFAULT_PROFILE
) -> KubeArrays:
    """Return the arrays for the state's nodes, classes and labels; rebuild them when any of those change.

    Selectors of default spreading are added to the state, so read `state.term_arrays` afterwards.

    Args:
        state: the cluster's state; `slots` has the nodes in the order in which the scheduler received them.
        services: selectors of default spreading.
        profile: what decides; its changes to constraints of pods were made before.
    """
    _, first = np.unique(state.class_arrays.constraint, return_index=True)
    distinct = [state.classes[c].constraints for c in first]
    # Default constraints of the profile's own are constraints of the pods by now.
    known = services if profile.default_spread is None else None
    selectors = _default_selectors(state, known or SpreadSelectors())
    spreading = bool((selectors >= 0).any()) or any(
        not spread.hard for constraints in distinct for spread in constraints.spread
    )
    hostname = state.terms.key_id(HOSTNAME) if spreading else -1
    zone = state.terms.key_id(ZONE) if spreading else -1
    rows = np.full((len(distinct), 6), -1, dtype=np.int64)
    if (selectors >= 0).any():
        # A pod with constraints of its own has no default ones.
        rows[:, INCLUDED_ROW] = [
            -1 if constraints.spread else state.terms.included_id(constraints) for constraints in distinct
        ]
    order = snapshot_order(state.nodes, state.slots.values())
    lists = _node_lists(state, distinct, order, rows)
    static = _static_rows(state, distinct, rows, profile.minor)
    zones = state.table.label(ZONE).numbers if spreading else {}
    return KubeArrays(
        nodes=len(order),
        percentage=profile.percentage if profile.scores else FIND_FIRST,
        ignores_existing=profile.ignores_existing,
        weights=np.array(profile.weights, dtype=np.int64),
        scored=scored_resources(state, profile),
        hostname=hostname,
        blank=zones.get("", len(zones)),
        lists=lists,
        constraints=rows,
        static=static,
        default_selector=selectors,
        default_spread=np.array([(hostname, HOSTNAME_SKEW), (zone, ZONE_SKEW)], dtype=np.int64),
    )


def snapshot_order(nodes: Sequence[Node | None], received: Iterable[int]) -> list[int]:
    """Return slots in the order of the scheduler's node list: round-robin over zones by appearance.

    Args:
        nodes: [N] the node in each slot.
        received: the occupied slots, in the order in which the scheduler received their nodes.
    """
    zones: dict[tuple[str, str], list[int]] = {}
    for slot in received:
        node = nodes[slot]
        assert node is not None
        zones.setdefault(_zone(node.labels), []).append(slot)
    if len(zones) == 1:
        return next(iter(zones.values()))
    order = [(turn, zone, slot) for zone, slots in enumerate(zones.values()) for turn, slot in enumerate(slots)]
    return [slot for _, _, slot in sorted(order)]


def _zone(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return region and zone; a deprecated label takes precedence if present, even if empty."""
    region, zone = (labels.get(old, labels.get(new, "")) for old, new in (_REGION_LABELS, _ZONE_LABELS))
    return region, zone


def _default_selectors(state: ClusterState, services: SpreadSelectors) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.default_selector`, [L]: for each label set the conjunction of all matching selectors."""
    known = DefaultSelectors(services)
    selectors = np.full(len(state.terms.label_sets), -1, dtype=np.int64)
    for row, (namespace, labels, _) in enumerate(state.terms.label_sets):
        selector = known.selector(namespace, labels)
        if selector is not None:
            selectors[row] = state.terms.selector_id(selector, living=True)
    return selectors


def _node_lists(
    state: ClusterState, distinct: Sequence[Constraints], order: Sequence[int], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.lists`; write the range of each constraint's nodes into `rows`."""
    lists = list(order)
    position = {slot: i for i, slot in enumerate(order)}
    for row, constraints in zip(rows, distinct, strict=True):
        names = restricted_names(constraints)
        row[FIRST] = 0 if names is None else len(lists)
        if names is not None:
            # In the order of the snapshot, in which the scheduler visits them.
            lists += sorted((state.slots[name] for name in names if name in state.slots), key=position.__getitem__)
        row[LAST] = len(order) if names is None else len(lists)
    return np.array(lists, dtype=np.int64)


def _static_rows(
    state: ClusterState, distinct: Sequence[Constraints], rows: npt.NDArray[np.int64], minor: MinorRules
) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.static`; write the row of each constraint, -1 if all scores are 0, into `rows`."""
    nodes = len(state.slots)
    images = images_on(state.nodes) if any(each.images or each.image_volumes for each in distinct) else {}
    has_soft_taints = any(
        taint.effect == SOFT_EFFECT for node in state.nodes if node is not None for taint in node.taints
    )
    row_ids: dict[object, int] = {}
    static: list[npt.NDArray[np.int64]] = []

    def row_id(plugin: int, value: object, score: Callable[[], npt.NDArray[np.int64]]) -> int:
        if (plugin, value) not in row_ids:
            scores = score()
            row_ids[plugin, value] = len(static) if scores.any() else -1
            if scores.any():
                static.append(scores)
        return row_ids[plugin, value]

    for row, constraints in zip(rows, distinct, strict=True):
        if has_soft_taints:
            tolerations = constraints.tolerations
            row[TAINTS] = row_id(TAINTS, tolerations, partial(soft_taints, state.nodes, tolerations))
        if constraints.preferred_nodes:
            terms = constraints.preferred_nodes
            row[PREFERRED_NODES] = row_id(PREFERRED_NODES, terms, partial(preferred_weights, state.table, terms))
        names = constraints.images + (() if minor.image_volumes == UNCOUNTED else constraints.image_volumes)
        if images and names:
            counted = len(names) if minor.image_volumes == COUNTED else len(constraints.images)
            score = partial(image_locality, images, names, counted, nodes, len(state.nodes))
            row[IMAGES] = row_id(IMAGES, (names, counted), score)
    return np.array(static, dtype=np.int64).reshape(len(static), len(state.nodes))
