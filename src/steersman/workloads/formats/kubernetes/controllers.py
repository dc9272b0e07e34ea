"""Controllers and their pods, each counted once: which pod belongs to which controller.

A pod belongs to a controller by owner references; where the ReplicaSet between a Deployment and its pods is not in the
input, by the Deployment's selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Requirement
from steersman.cluster.objects.decoding import OWNER_KEY
from steersman.cluster.objects.fields import FieldError, Object, items, mapping, text
from steersman.workloads.formats.kubernetes.spread_selectors import selector_of
from steersman.workloads.formats.kubernetes.unpacking import GROUPS, KubernetesObject, qualified_kind

CONTROLLERS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def key_of(obj: KubernetesObject) -> Key:
    """Return the key of an object."""
    return obj.kind, obj.namespace, obj.name


def controller_of(obj: KubernetesObject) -> Key | None:
    """Return the key of the controller that created an object, or None.

    A pod of a snapshot has no owner references; an annotation names its controller.

    Raises:
        InputError: `metadata.ownerReferences` is invalid.
    """
    try:
        metadata = mapping(obj.content, "metadata", "")
        for reference, _ in items(metadata, "ownerReferences", "metadata"):
            if reference.get("controller") is True:
                kind = qualified_kind(str(reference.get("kind")), str(reference.get("apiVersion") or ""))
                return kind, obj.namespace, str(reference.get("name"))
        stated = text(mapping(metadata, "annotations", "metadata"), OWNER_KEY, "metadata.annotations")
    except FieldError as error:
        raise obj.error(error.field, error.problem) from None
    kind, slash, name = stated.partition("/")
    return (kind, obj.namespace, name) if slash and obj.kind == "Pod" else None


def is_terminating(content: Object) -> bool:
    """Return whether an object is being deleted: its controller no longer counts it and has replaced it."""
    return bool((content.get("metadata") or {}).get("deletionTimestamp"))


def is_created(obj: KubernetesObject) -> bool:
    """Return whether the API server has stored an object: it then says when."""
    return any(obj.metadata.get(key) for key in ("uid", "resourceVersion", "creationTimestamp"))


def created(obj: KubernetesObject) -> float | None:
    """Return when an object was created in Unix seconds, or None if it does not say.

    Raises:
        InputError: `metadata.creationTimestamp` is not a time.
    """
    stamp = obj.metadata.get("creationTimestamp")
    if stamp is None:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    raise obj.error("metadata.creationTimestamp", f"{stamp!r} is not a time; expected one such as 2024-05-01T12:00:00Z")


class Controllers:
    """The controllers of an input.

    Args:
        objects: all objects of the input.
    """

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        every = [obj for obj in objects if obj.kind in (*CONTROLLERS, "CronJob") or obj.kind not in GROUPS]
        self._there = {key_of(obj): obj for obj in every}
        self._deployments: dict[str, dict[str, tuple[Requirement, ...]]] = {}
        for obj in every:
            if obj.kind == "Deployment":
                self._deployments.setdefault(obj.namespace, {})[obj.name] = _selector(obj)
        self._makers: dict[Key, Key | None] = {}
        self._above = {key: controller_of(obj) for key, obj in self._there.items()}

    def owners(self, obj: KubernetesObject) -> list[Key]:
        """Return the controllers above an object, nearest first, including those that the input does not hold."""
        above: list[Key] = []
        key = controller_of(obj)
        labels = obj.metadata.get("labels")
        while key is not None and key not in above:
            above.append(key)
            if key in self._there:
                key = self._above[key]
            elif key[0] == "ReplicaSet":
                key = self._deployment_of(key, labels if isinstance(labels, dict) else {})
            else:
                key = None
        return above

    def maker(self, owners: Sequence[Key]) -> Key | None:
        """Return the nearest of these controllers that creates pods and is in the input: it counts the pods."""
        return next((key for key in owners if key in self._there and key[0] in CONTROLLERS), None)

    def _deployment_of(self, replica_set: Key, labels: Mapping[str, Any]) -> Key | None:
        """Return the Deployment of a missing ReplicaSet: the one whose selector matches its pods, or by its name."""
        if replica_set not in self._makers:
            _, namespace, name = replica_set
            texts = {key: value for key, value in labels.items() if isinstance(key, str) and isinstance(value, str)}
            deployments = self._deployments.get(namespace, {})
            # Selectors should not overlap; where they do, a ReplicaSet is called after its Deployment.
            named = name.rpartition("-")[0]
            candidates = [named] if named in deployments else []
            candidates += sorted(deployments) if not candidates or not _selects(deployments[named], texts, True) else []
            chosen = [
                deployment for deployment in candidates if _selects(deployments[deployment], texts, deployment == named)
            ]
            self._makers[replica_set] = ("Deployment", namespace, chosen[0]) if chosen else None
        return self._makers[replica_set]


def _selects(selector: tuple[Requirement, ...], labels: Mapping[str, str], named: bool) -> bool:
    """Return whether a Deployment's selector matches labels; one without a selector is matched by its name alone."""
    return all(holds(requirement, labels) for requirement in selector) if selector else named


def _selector(obj: KubernetesObject) -> tuple[Requirement, ...]:
    try:
        return selector_of(obj.kind, obj.content)
    except FieldError as error:
        raise obj.error(error.field, error.problem) from None
