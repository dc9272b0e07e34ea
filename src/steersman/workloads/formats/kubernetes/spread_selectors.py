"""Selectors of pods that are spread by default: read from Services and controllers, and written as such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from steersman.cluster.model import Requirement
from steersman.cluster.objects.api.metadata import LabelSelector
from steersman.cluster.objects.decoding import PLACEHOLDER_IMAGE
from steersman.cluster.objects.manifests import Manifest, service_to_object
from steersman.cluster.objects.selectors import label_selector
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject
from steersman.workloads.workload import SpreadSelectors

BY_LABELS = ("Service", "ReplicationController")
BY_REQUIREMENTS = ("Deployment", "ReplicaSet", "StatefulSet")
"""kube-scheduler looks at ReplicaSets and StatefulSets; a Deployment's ReplicaSet selects what the Deployment does."""


def selector_of(obj: KubernetesObject) -> tuple[Requirement, ...]:
    """Return what a Service or controller requires of the labels of its pods; empty: it selects none.

    Raises:
        FieldError: the selector is invalid.
    """
    stated = obj.typed.spec.selector
    selector = LabelSelector(match_labels=stated) if obj.kind in BY_LABELS else stated
    return label_selector(selector or LabelSelector(), "spec.selector")


def services_of(selectors: Iterable[tuple[str, tuple[Requirement, ...]]]) -> SpreadSelectors:
    """Return the (namespace, requirements) pairs in order, each once and without empty ones."""
    simple, others = {}, {}
    for namespace, requirements in selectors:
        if all(each.operator == "In" and len(each.values) == 1 for each in requirements):
            simple[namespace, tuple((each.key, each.values[0]) for each in requirements)] = bool(requirements)
        else:
            others[namespace, requirements] = True
    return SpreadSelectors(tuple(each for each, some in simple.items() if some), tuple(others))


def services_to_objects(services: SpreadSelectors) -> Iterator[Manifest]:
    """Yield v1 Services, and ReplicaSets of no pods for selectors with expressions, which a Service cannot have."""
    for i, (namespace, labels) in enumerate(services.selectors, start=1):
        yield service_to_object(f"service-{i:04}", namespace, labels)
    for i, (namespace, requirements) in enumerate(services.expressions, start=1):
        yield _replica_set(f"selector-{i:04}", namespace, requirements)


def _replica_set(name: str, namespace: str, requirements: tuple[Requirement, ...]) -> Manifest:
    expressions = [
        {"key": each.key, "operator": each.operator, **({"values": list(each.values)} if each.values else {})}
        for each in requirements
    ]
    template = {
        "metadata": {"labels": _example(requirements)},
        "spec": {"containers": [{"name": "none", "image": PLACEHOLDER_IMAGE}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchExpressions": expressions}, "template": template},
    }


def _example(requirements: tuple[Requirement, ...]) -> dict[str, str]:
    """Return labels that satisfy the requirements, if any do."""
    allowed: dict[str, set[str]] = {}
    excluded: dict[str, set[str]] = {}
    for each in requirements:
        if each.operator == "In":
            allowed[each.key] = allowed.get(each.key, set(each.values)) & set(each.values)
        elif each.operator == "NotIn":
            excluded.setdefault(each.key, set()).update(each.values)
    keys = [each.key for each in requirements if each.operator in ("In", "Exists")]
    return {key: min(allowed.get(key, {"any"}) - excluded.get(key, set()), default="") for key in keys}
