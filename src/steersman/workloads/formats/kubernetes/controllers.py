"""Controllers and their pods, each counted once: which pod belongs to which controller.

A pod belongs to a controller by owner references; where the ReplicaSet between a Deployment and its pods is not in the
input, by the Deployment's selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod, Requirement
from steersman.cluster.objects.api.controllers import AutoscalerSpec, ScaleTarget
from steersman.cluster.objects.api.metadata import LabelSelector
from steersman.cluster.objects.api.pods import INT32_MAX, PodObject
from steersman.cluster.objects.decoding import OWNER_KEY, PLACEHOLDER_IMAGE, digits
from steersman.cluster.objects.fields import unix_seconds
from steersman.cluster.objects.manifests import Manifest, service_to_object
from steersman.cluster.objects.selectors import label_selector
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject, qualified_kind
from steersman.workloads.workload import SpreadSelectors

BY_LABELS = ("Service", "ReplicationController")
BY_REQUIREMENTS = ("Deployment", "ReplicaSet", "StatefulSet")
"""kube-scheduler looks at ReplicaSets and StatefulSets; a Deployment's ReplicaSet selects what the Deployment does."""


def selector_of(obj: KubernetesObject) -> tuple[Requirement, ...]:
    """Return what a Service or controller requires of the labels of its pods; empty: it selects none."""
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


CONTROLLERS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")

Key = tuple[str, str, str]  # kind, namespace and name of an object


def key_of(obj: KubernetesObject) -> Key:
    return obj.kind, obj.namespace, obj.name


def controller_of(obj: KubernetesObject) -> Key | None:
    """Return the key of the controller that created an object, or None.

    A pod of a snapshot has no owner references; an annotation names its controller.
    """
    metadata = obj.typed.metadata
    for reference in metadata.owner_references or ():
        if reference.controller:
            kind = qualified_kind(reference.kind or "", reference.api_version or "")
            return kind, obj.namespace, reference.name or ""
    kind, slash, name = str((metadata.annotations or {}).get(OWNER_KEY)).partition("/")
    return (kind, obj.namespace, name) if slash and obj.kind == "Pod" else None


def is_terminating(obj: KubernetesObject) -> bool:
    """Return whether an object is being deleted: its controller no longer counts it and has replaced it."""
    return bool(obj.typed.metadata.deletion_timestamp)


def is_created(obj: KubernetesObject) -> bool:
    """Return whether the API server has stored an object: it then says when."""
    return any(obj.metadata.get(key) for key in ("uid", "resourceVersion", "creationTimestamp"))


def created(obj: KubernetesObject) -> float | None:
    """Return when an object was created in Unix seconds, or None if it does not say."""
    stamp = obj.typed.metadata.creation_timestamp
    seconds = unix_seconds(stamp)
    if seconds is None and stamp is not None:
        problem = f"{stamp!r} is not a time; expected one such as 2024-05-01T12:00:00Z"
        raise obj.error("metadata.creationTimestamp", problem)
    return seconds


def completion(job: KubernetesObject) -> float | None:
    """Return when a Job was complete in Unix seconds; None: it is not, or does not say."""
    return unix_seconds((job.content.get("status") or {}).get("completionTime"))


def scaled(obj: KubernetesObject) -> tuple[Key, tuple[int, int]]:
    """Return what a HorizontalPodAutoscaler scales, and the least and the most replicas."""
    spec: AutoscalerSpec = obj.typed.spec
    least, most = 1 if spec.min_replicas is None else spec.min_replicas, spec.max_replicas or INT32_MAX
    target = spec.scale_target_ref or ScaleTarget()
    kind = qualified_kind(target.kind or "", target.api_version or "")
    return (kind, obj.namespace, target.name or ""), (least, max(least, most))


class Controllers:
    """The controllers of an input."""

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        every = [obj for obj in objects if obj.kind in (*CONTROLLERS, "CronJob") or obj.kind not in KINDS]
        self._there = {key_of(obj): obj for obj in every}
        self._deployments: dict[str, dict[str, tuple[Requirement, ...]]] = {}
        for obj in every:
            if obj.kind == "Deployment":
                self._deployments.setdefault(obj.namespace, {})[obj.name] = selector_of(obj)
        self._makers: dict[Key, Key | None] = {}
        self._above = {key: controller_of(obj) for key, obj in self._there.items()}

    def owners(self, obj: KubernetesObject) -> list[Key]:
        """Return the controllers above an object, nearest first, including those that the input does not hold."""
        above: list[Key] = []
        key = controller_of(obj)
        labels = obj.typed.metadata.labels or {}
        while key is not None and key not in above:
            above.append(key)
            if key in self._there:
                key = self._above[key]
            elif key[0] == "ReplicaSet":
                key = self._deployment_of(key, labels)
            else:
                key = None
        return above

    def maker(self, owners: Sequence[Key]) -> Key | None:
        """Return the nearest of these controllers that creates pods and is in the input: it counts the pods."""
        return next((key for key in owners if key in self._there and key[0] in CONTROLLERS), None)

    def _deployment_of(self, replica_set: Key, labels: Mapping[str, str]) -> Key | None:
        """Return the Deployment of a missing ReplicaSet: the one whose selector matches its pods, or by its name."""
        if replica_set not in self._makers:
            _, namespace, name = replica_set
            deployments = self._deployments.get(namespace, {})
            # Selectors should not overlap; where they do, a ReplicaSet is called after its Deployment.
            named = name.rpartition("-")[0]
            candidates = [named] if named in deployments else []
            if not candidates or not _selects(deployments[named], labels, True):
                candidates += sorted(deployments)
            chosen = (each for each in candidates if _selects(deployments[each], labels, each == named))
            self._makers[replica_set] = next((("Deployment", namespace, each) for each in chosen), None)
        return self._makers[replica_set]


def _selects(selector: tuple[Requirement, ...], labels: Mapping[str, str], named: bool) -> bool:
    """Return whether a Deployment's selector matches labels; one without a selector is matched by its name alone."""
    return all(holds(requirement, labels) for requirement in selector) if selector else named


KIND = "PodGroup"
NAMED_BY = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name")
"""Annotations of pods with the name of their PodGroup: Volcano's, and KAI's."""
KUEUE_GROUP, KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
"""Label of pods that Kueue admits together, and annotation with their number."""

KOORDINATOR_GANG, KOORDINATOR_MINIMUM = (
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
)
"""Annotations of pods with the name of their gang in Koordinator, and how many must start together."""


@dataclass(frozen=True, slots=True)
class PodGroups:
    """The PodGroups of an input: by namespace and name how many of its pods must start together."""

    minimum: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, objects: Iterable[KubernetesObject]) -> PodGroups:
        """Return the PodGroups, all of which are valid. One that states no number lets its pods start one by one."""
        specs = (((obj.namespace, obj.name), obj.typed.spec) for obj in objects)
        return cls({key: spec.min_member or spec.scheduling_policy.gang.min_count or 1 for key, spec in specs})

    def has_group_of(self, stated: PodObject, namespace: str) -> bool:
        """Return whether the input has the PodGroup that `spec.schedulingGroup` of a pod names."""
        return (namespace, _group_name(stated)) in self.minimum

    def joined(self, pod: Pod, stated: PodObject) -> Pod:
        """Return a pod as a member of its PodGroup, if that is in the input, or of its group."""
        notes = stated.metadata.annotations or {}
        if not pod.gang and isinstance(gang := notes.get(KOORDINATOR_GANG), str):
            return replace(pod, gang=gang, gang_minimum=digits(notes.get(KOORDINATOR_MINIMUM)))
        if not pod.gang and (group := pod.labels.get(KUEUE_GROUP)):
            return replace(pod, gang=group, gang_minimum=digits(notes.get(KUEUE_TOTAL)))
        names = (pod.gang, _group_name(stated), *(notes.get(key) for key in NAMED_BY))
        groups = (name for name in names if isinstance(name, str) and (pod.namespace, name) in self.minimum)
        name = next(groups, None)
        return pod if name is None else replace(pod, gang=name, gang_minimum=self.minimum[pod.namespace, name])


def _group_name(stated: PodObject) -> str:
    group = stated.spec.scheduling_group
    return (group.pod_group_name if group is not None else None) or ""
