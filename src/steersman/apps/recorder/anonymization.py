"""Anonymize a workload: each name and label value becomes a hash, the same one wherever it stands.

What schedulers read stays: which names and values are equal, resources, GPU models, keys of labels and taints, and
numbers that pods compare (`Gt`, `Lt`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from steersman.cluster.model import (
    MODEL_LABELS,
    Constraints,
    ExclusiveVolume,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSelector,
    Requirement,
    TopologySpread,
)
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.orders.order import recurring_owner
from steersman.workloads.workload import SpreadSelectors, Workload

DIGEST_BYTES = 8
COMPARING = ("Gt", "Lt")


def anonymised(workload: Workload, secret: str) -> Workload:
    """Return the workload without names.

    Args:
        workload: nodes, pods, selectors.
        secret: key of the hashes; with the same one, snapshots of one cluster can be compared. Whoever has it can guess
            names.
    """
    mask = _Mask(secret, set(_compared(workload.pods)))
    return Workload(
        workload.name,
        tuple(map(mask.node, workload.nodes)),
        tuple(map(mask.pod, workload.pods)),
        mask.services(workload.services),
        workload.warnings,
    )


def _compared(pods: Iterable[Pod]) -> Iterator[str]:
    for constraints in {pod.pod_class: pod.constraints for pod in pods}.values():
        preferred = (each.term for each in constraints.preferred_nodes)
        for term in (*(constraints.node_affinity or ()), *preferred):
            yield from (each.key for each in term.expressions if each.operator in COMPARING)


class _Mask:
    """Replacement of names and values by hashes, except the values of labels with the keys `compared`."""

    def __init__(self, secret: str, compared: set[str]) -> None:
        self.key = hashlib.blake2b(secret.encode()).digest()
        self.kept = compared | set(MODEL_LABELS)

    def text(self, text: str) -> str:
        """Return the hash of a name or value; the empty value stays."""
        if not text:
            return ""
        return "x" + hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES, key=self.key).hexdigest()

    def owner(self, name: str) -> str:
        """Return the hash of a controller's name. Runs of a CronJob stay runs of one owner, with other numbers."""
        recurring = recurring_owner(name)
        if recurring == name:
            return self.text(name)
        number = int(self.text(name).removeprefix("x"), 16) % 10**12
        return f"{self.text(recurring)}-{number:012}"

    def value(self, key: str, value: str) -> str:
        return value if key in self.kept else self.text(value)

    def pairs(self, labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((key, self.value(key, value)) for key, value in labels)

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return dict(self.pairs(labels.items()))

    def image(self, image: str) -> str:
        # With a tag, since `:latest` is added to the name of a pod's image that has none.
        return f"{self.text(image)}:latest"

    def node(self, node: Node) -> Node:
        return replace(
            node,
            name=self.text(node.name),
            labels=self.labels(node.labels),
            taints=tuple(replace(taint, value=self.text(taint.value)) for taint in node.taints),
            images={self.image(name): size for name, size in node.images.items()},
        )

    def pod(self, pod: Pod) -> Pod:
        kind, slash, owner = pod.owner.partition("/")
        known = pod.scheduler_name == DEFAULT_SCHEDULER
        return replace(
            pod,
            name=self.text(pod.name),
            namespace=self.text(pod.namespace),
            labels=self.labels(pod.labels),
            owner=f"{kind}/{self.owner(owner)}" if slash else self.owner(kind),
            scheduler_name=pod.scheduler_name if known else self.text(pod.scheduler_name),
            pod_class=replace(pod.pod_class, constraints=self.constraints(pod.constraints)),
        )

    def services(self, services: SpreadSelectors) -> SpreadSelectors:
        return SpreadSelectors(
            tuple((self.text(space), self.pairs(labels)) for space, labels in services.selectors),
            tuple((self.text(space), self.requirements(requirements)) for space, requirements in services.expressions),
        )

    def constraints(self, result: Constraints) -> Constraints:
        terms, preferred, value = self.node_term, self.affinity_term, self.text
        return replace(
            result,
            node_name=value(result.node_name),
            tolerations=tuple(replace(each, value=value(each.value)) for each in result.tolerations),
            node_selector=self.pairs(result.node_selector),
            node_affinity=None if result.node_affinity is None else tuple(map(terms, result.node_affinity)),
            preferred_nodes=tuple(replace(each, term=terms(each.term)) for each in result.preferred_nodes),
            affinity=tuple(map(preferred, result.affinity)),
            anti_affinity=tuple(map(preferred, result.anti_affinity)),
            preferred_affinity=tuple(replace(each, term=preferred(each.term)) for each in result.preferred_affinity),
            preferred_anti_affinity=tuple(
                replace(each, term=preferred(each.term)) for each in result.preferred_anti_affinity
            ),
            spread=tuple(map(self.topology_spread, result.spread)),
            images=tuple(map(self.image, result.images)),
            image_volumes=tuple(map(self.image, result.image_volumes)),
            exclusive_volumes=tuple(map(self.exclusive_volume, result.exclusive_volumes)),
        )

    def exclusive_volume(self, volume: ExclusiveVolume) -> ExclusiveVolume:
        disk, monitors = (tuple(map(self.text, each)) for each in (volume.disk, volume.monitors))
        return replace(volume, disk=disk, monitors=monitors)

    def node_term(self, term: NodeSelectorTerm) -> NodeSelectorTerm:
        return NodeSelectorTerm(self.requirements(term.expressions), self.requirements(term.fields))

    def affinity_term(self, term: PodAffinityTerm) -> PodAffinityTerm:
        return replace(term, selector=self.selector(term.selector))

    def topology_spread(self, spread: TopologySpread) -> TopologySpread:
        return replace(spread, selector=self.selector(spread.selector))

    def selector(self, selector: PodSelector) -> PodSelector:
        spaces, requirements = selector.namespaces, selector.requirements
        return replace(
            selector,
            requirements=None if requirements is None else self.requirements(requirements),
            namespaces=None if spaces is None else frozenset(map(self.text, spaces)),
        )

    def requirements(self, result: Iterable[Requirement]) -> tuple[Requirement, ...]:
        """Return requirements in canonical order."""
        masked = (
            replace(each, values=tuple(sorted(self.value(each.key, value) for value in each.values))) for each in result
        )
        # The original order could tell which value a hash stands for.
        return tuple(sorted(masked, key=lambda each: (each.key, each.operator, each.values)))
