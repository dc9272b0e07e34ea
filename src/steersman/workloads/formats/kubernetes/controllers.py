"""Controllers and their pods, each counted once: which pod belongs to which controller.

A pod belongs to a controller by owner references; where the ReplicaSet between a Deployment and its pods is not in the
input, by the Deployment's selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Requirement
from steersman.cluster.objects.api.admission import AutoscalerSpec, ScaleTarget
from steersman.cluster.objects.api.pods import INT32_MAX
from steersman.cluster.objects.decoding import OWNER_KEY
from steersman.cluster.objects.fields import unix_seconds
from steersman.workloads.formats.kubernetes.spread_selectors import selector_of
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject, qualified_kind

CONTROLLERS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def key_of(obj: KubernetesObject) -> Key:
    """Return the key of an object."""
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
    """Return when an object was created in Unix seconds, or None if it does not say.

    Raises:
        InputError: `metadata.creationTimestamp` is not a time.
    """
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
    """The controllers of an input.

    Args:
        objects: all objects of the input.
    """

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
