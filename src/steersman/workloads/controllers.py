"""Controllers and their pods counted once: which pod belongs to which controller, and which pods are still missing.

A controller of the input stands for as many pods as it wants and does not have there yet. A pod belongs to it by owner
references; where the ReplicaSet between a Deployment and its pods is not in the input, by the Deployment's selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from steersman.cluster.constraints import allowed_nodes, holds, restricted_names
from steersman.cluster.fields import FieldError, Object, integer, items, mapping, text
from steersman.cluster.model import Node, NodeSelectorTerm, Pod, Requirement, Toleration
from steersman.cluster.objects import OWNER_KEY, is_finished
from steersman.workloads.selecting import selector_of

if TYPE_CHECKING:
    from steersman.workloads.kubernetes import KubernetesObject

MAX_REPLICAS = 10_000_000
CONTROLLERS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")

# What the DaemonSet controller adds to its pods.
_DAEMON_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", "", effect)
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def key_of(found: KubernetesObject) -> Key:
    """Return an object's key."""
    return found.kind, found.namespace, found.name


def controller_of(found: KubernetesObject) -> Key | None:
    """Return the key of the controller that made an object, None where none did.

    Of a pod in a snapshot, which has no owner references, it stands in an annotation.

    Raises:
        InputError: `metadata.ownerReferences` is wrong.
    """
    try:
        metadata = mapping(found.content, "metadata", "")
        for reference, _ in items(metadata, "ownerReferences", "metadata"):
            if reference.get("controller") is True:
                return str(reference.get("kind")), found.namespace, str(reference.get("name"))
        stated = text(mapping(metadata, "annotations", "metadata"), OWNER_KEY, "metadata.annotations")
    except FieldError as error:
        raise found.error(error.field, error.problem) from None
    kind, slash, name = stated.partition("/")
    return (kind, found.namespace, name) if slash and found.kind == "Pod" else None


def is_terminating(content: Object) -> bool:
    """Return whether an object is being deleted: a controller counts such a pod no more and has replaced it."""
    return bool(content.get("metadata", {}).get("deletionTimestamp"))


def created(found: KubernetesObject) -> float | None:
    """Return when an object was created, in seconds since 1970; None where it does not say.

    Raises:
        InputError: `metadata.creationTimestamp` is no time.
    """
    stamp = found.content.get("metadata", {}).get("creationTimestamp")
    if stamp is None:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    raise found.error("metadata.creationTimestamp", f"{stamp!r} is no time; such as 2024-05-01T12:00:00Z is right")


@dataclass(slots=True)
class Members:
    """The pods of one controller that the input holds.

    Attributes:
        pods: those that it counts: not finished, not being deleted.
        succeeded: how many have succeeded (of a Job).
    """

    pods: list[Pod] = field(default_factory=list)
    succeeded: int = 0


class Controllers:
    """The controllers of an input.

    Args:
        objects: all of the input.
    """

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        every = [found for found in objects if found.kind in (*CONTROLLERS, "CronJob")]
        self._there = {key_of(found): found for found in every}
        self._deployments: dict[str, dict[str, tuple[Requirement, ...]]] = {}
        for found in every:
            if found.kind == "Deployment":
                self._deployments.setdefault(found.namespace, {})[found.name] = _selector(found)
        self._makers: dict[Key, Key | None] = {}

    def owners(self, found: KubernetesObject) -> list[Key]:
        """Return the controllers above an object, the nearest first, also those that the input does not hold."""
        above: list[Key] = []
        key = controller_of(found)
        labels = found.content.get("metadata", {}).get("labels")
        while key is not None and key not in above:
            above.append(key)
            there = self._there.get(key)
            if there is not None:
                key = controller_of(there)
            elif key[0] == "ReplicaSet":
                key = self._deployment_of(key, labels if isinstance(labels, dict) else {})
            else:
                key = None
        return above

    def maker(self, owners: Sequence[Key]) -> Key | None:
        """Return the outermost of some controllers that makes pods and is in the input: it counts the pods."""
        return next((key for key in reversed(owners) if key in self._there and key[0] in CONTROLLERS), None)

    def _deployment_of(self, replica_set: Key, labels: Mapping[str, Any]) -> Key | None:
        """Return the Deployment of a ReplicaSet that is not there: the one that selects its pods, or has its name."""
        if replica_set not in self._makers:
            _, namespace, name = replica_set
            texts = {key: value for key, value in labels.items() if isinstance(key, str) and isinstance(value, str)}
            deployments = self._deployments.get(namespace, {})
            # Selectors should not overlap; where they do, a ReplicaSet is called after its Deployment.
            named = name.rpartition("-")[0]
            candidates = [named] if named in deployments else []
            candidates += sorted(deployments) if not candidates or not _selects(deployments[named], texts, True) else []
            chosen = [each for each in candidates if _selects(deployments[each], texts, each == named)]
            self._makers[replica_set] = ("Deployment", namespace, chosen[0]) if chosen else None
        return self._makers[replica_set]


def _selects(selector: tuple[Requirement, ...], labels: Mapping[str, str], named: bool) -> bool:
    """Return whether a Deployment's selector selects labels; one that has none is known by its name alone."""
    return all(holds(each, labels) for each in selector) if selector else named


def _selector(found: KubernetesObject) -> tuple[Requirement, ...]:
    try:
        return selector_of(found.kind, found.content)
    except FieldError as error:
        raise found.error(error.field, error.problem) from None


def missing(found: KubernetesObject, pod: Pod, members: Members, nodes: Sequence[Node]) -> Iterator[Pod]:
    """Yield the pods that a controller wants and does not have: NAME-0001 and on, after those it has.

    Args:
        found: the controller.
        pod: of its template, with its name.
        members: what it has.
        nodes: what a DaemonSet is expanded over: each that it may run on is to have a pod.

    Raises:
        InputError: its `spec` is wrong.
    """
    try:
        wanted = _wanted(found, members)
    except FieldError as error:
        raise found.error(error.field, error.problem) from None
    if members.pods:
        pod = replace(pod, owner=members.pods[-1].owner)
    first = len(members.pods) + 1
    if is_terminating(found.content):
        return
    if found.kind == "DaemonSet":
        yield from _daemons(pod, members.pods, nodes, first)
    else:
        yield from (replace(pod, name=replica_name(pod.name, i)) for i in range(first, wanted + 1))


def replica_name(name: str, number: int) -> str:
    """Return the name of a controller's pod; numbers start at 1."""
    return f"{name}-{number:04}"


def _wanted(found: KubernetesObject, members: Members) -> int:
    """Return how many pods a controller wants now; of a DaemonSet that is up to the nodes."""
    spec = mapping(found.content, "spec", "")
    if found.kind != "Job":
        return integer(spec, "replicas", "spec", 0, MAX_REPLICAS, 1)
    status = found.content.get("status")
    status = status if isinstance(status, dict) else {}
    parallelism = integer(spec, "parallelism", "spec", 0, MAX_REPLICAS, 1)
    completions = integer(spec, "completions", "spec", 0, MAX_REPLICAS, -1)
    succeeded = max(members.succeeded, integer(status, "succeeded", "status", 0, MAX_REPLICAS, 0))
    if spec.get("suspend") is True or _is_over(status):
        return 0
    if completions < 0:  # a work queue: once a pod has succeeded no other is started
        return 0 if succeeded else parallelism
    if status.get("startTime") or members.pods or succeeded:  # the others start when these end
        return min(parallelism, completions - succeeded)
    return completions


def _is_over(status: Object) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(each, dict) and each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in conditions
    )


def _daemons(pod: Pod, there: Sequence[Pod], nodes: Sequence[Node], first: int) -> Iterator[Pod]:
    """Yield a pod, tied to its node, for each node that a DaemonSet may run on and has none on."""
    constraints = replace(pod.constraints, tolerations=(*pod.constraints.tolerations, *_DAEMON_TOLERATIONS))
    has = {name for each in there for name in _node_names(each)}
    number = first
    for node, allowed in zip(nodes, allowed_nodes(nodes, constraints), strict=True):
        if allowed and node.name not in has:
            tied = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node.name,)),)),)
            pod_class = replace(pod.pod_class, constraints=replace(constraints, node_affinity=tied))
            yield replace(pod, name=replica_name(pod.name, number), pod_class=pod_class)
            number += 1


def _node_names(pod: Pod) -> Iterable[str]:
    """Return the node that a DaemonSet's pod is on, or is to go to."""
    if pod.constraints.node_name:
        return (pod.constraints.node_name,)
    return restricted_names(pod.constraints) or ()


def succeeded(content: Object) -> bool:
    """Return whether a pod has ended well."""
    status = content.get("status")
    return is_finished(content) and isinstance(status, dict) and status.get("phase") == "Succeeded"


def template_of(found: KubernetesObject) -> Object:
    """Return a controller's pod template with the controller's name put in.

    Raises:
        InputError: there is no name, or the template is wrong.
    """
    if not found.name:
        raise found.error("metadata.name", "is missing")
    try:
        template = mapping(mapping(found.content, "spec", ""), "template", "spec")
        metadata = mapping(template, "metadata", "spec.template")
    except FieldError as error:
        raise found.error(error.field, error.problem) from None
    return {**template, "metadata": {**metadata, "name": found.name, "namespace": found.namespace}}
