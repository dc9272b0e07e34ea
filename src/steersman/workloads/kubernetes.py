"""Files and folders of Kubernetes objects to nodes, pods and services, controllers expanded, and back.

A controller (Deployment, ReplicaSet, StatefulSet, ReplicationController, Job, DaemonSet) stands for the pods that it
wants and that the input does not hold; those that it holds count as they are (see `controllers`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from steersman.cluster.fields import FieldError, Object, integer, join, mapping, text_map
from steersman.cluster.manifests import node_to_object, pod_to_object
from steersman.cluster.model import Node, Pod
from steersman.cluster.objects import (
    PRIORITY_CLASSES,
    is_finished,
    node_from_object,
    pod_from_object,
    unmodelled,
)
from steersman.cluster.selectors import Namespaces
from steersman.errors import InputError
from steersman.workloads.controllers import (
    CONTROLLERS,
    Controllers,
    Key,
    Members,
    controller_of,
    created,
    is_terminating,
    key_of,
    missing,
    succeeded,
    template_of,
)
from steersman.workloads.selecting import BY_LABELS, BY_REQUIREMENTS, selector_of, services_of, services_to_objects
from steersman.workloads.workload import Services, Workload
from steersman.workloads.yamlfile import NESTED, Document, write_documents

MAX_LIST_DEPTH = 8
MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a pod that its node runs by itself (a static pod)."""

_GROUPS = {
    "Node": ("",),
    "Pod": ("",),
    "Namespace": ("",),
    "Service": ("",),
    "ReplicationController": ("",),
    "Deployment": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "DaemonSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "Job": ("batch",),
    "CronJob": ("batch",),
    "PriorityClass": ("scheduling.k8s.io",),
}


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One object of a document: its content, its kind and its place."""

    content: Object
    kind: str
    document: Document

    @property
    def name(self) -> str:
        """`metadata.name`, as text."""
        return str(self.content.get("metadata", {}).get("name", ""))

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, "default" where there is none."""
        return str(self.content.get("metadata", {}).get("namespace") or "default")

    def error(self, field: str, problem: str) -> InputError:
        """An error at this object."""
        namespace = self.content.get("metadata", {}).get("namespace")
        name = f"{namespace}/{self.name}" if namespace else self.name
        name = name if name.isprintable() else ascii(name)
        where = ", ".join(part for part in (self.document.where, f"{self.kind} {name}".strip()) if part)
        return InputError(self.document.file, where, field, problem)

    @property
    def where(self) -> str:
        """Its place for an error message."""
        return self.error("", "").where


@dataclass(frozen=True, slots=True)
class Expanded:
    """The pods of an input, each once.

    Attributes:
        pods: in the order in which they arrive.
        owners: by (namespace, name) of a pod the controller at the top that it belongs to: a Deployment, not its
            ReplicaSet; without pods that belong to none.
        absent: how many of the pods are yet to be created by their controller.
        finished: how many Pods of the input are left out because they have run to their end.
        terminating: (namespace, name) of those that are being deleted.
        odd_phases: other phases than Pending and Running, and how many pods are in each.
    """

    pods: tuple[Pod, ...]
    owners: Mapping[tuple[str, str], Key]
    absent: int
    finished: int
    terminating: frozenset[tuple[str, str]]
    odd_phases: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Living:
    """The Pods of an input that have not finished, by their number among the objects, and what is known of them."""

    pods: dict[int, Pod] = field(default_factory=dict)
    members: dict[Key, Members] = field(default_factory=dict)
    owners: dict[tuple[str, str], Key] = field(default_factory=dict)
    terminating: set[tuple[str, str]] = field(default_factory=set)
    odd_phases: Counter[str] = field(default_factory=Counter)


class _Known(NamedTuple):
    """What pods name: priorities by the name of their class, and labels of namespaces (None: not known)."""

    priorities: Mapping[str, int]
    namespaces: Namespaces | None


class Objects:
    """The Kubernetes objects of some files, decoded as asked for.

    Args:
        documents: in the order in which pods shall arrive.

    Raises:
        InputError: a document is no Kubernetes object. The methods raise it for content that Kubernetes would refuse.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.objects: list[KubernetesObject] = []
        self.ignored: Counter[str] = Counter()
        for found in (o for document in documents for o in _flatten(document, "")):
            if found.kind in _GROUPS:
                self.objects.append(found)
            else:
                self.ignored[found.kind] += 1

    def of_kind(self, *kinds: str) -> Iterator[KubernetesObject]:
        """The objects of these kinds, in order."""
        return (o for o in self.objects if o.kind in kinds)

    def has_nodes(self) -> bool:
        """Whether there is a Node."""
        return any(True for _ in self.of_kind("Node"))

    def has_pods(self) -> bool:
        """Whether there is a Pod or something that makes pods."""
        return any(True for _ in self.of_kind("Pod", *CONTROLLERS))

    def nodes(self) -> tuple[Node, ...]:
        """The Nodes, in order."""
        seen: dict[tuple[str, str], KubernetesObject] = {}
        nodes = []
        for found in self.of_kind("Node"):
            node = node_from_object(found.content, file=found.document.file, where=found.where)
            _claim(seen, ("", node.name), found)
            nodes.append(node)
        return tuple(nodes)

    def pods(self, nodes: Sequence[Node]) -> tuple[Pod, ...]:
        """Return the pods of `expanded`."""
        return self.expanded(nodes).pods

    def expanded(self, nodes: Sequence[Node]) -> Expanded:
        """Count the Pods that have not finished, and those that controllers want and do not have.

        They are in the order of their creation where objects say when that was, else in the order of the input; those
        that are yet to be created come last.

        Args:
            nodes: what a DaemonSet is expanded over.

        Raises:
            InputError: an object is wrong, or a name is there twice.
        """
        controllers = Controllers(self.objects)
        known = _Known({**PRIORITY_CLASSES, **dict(self._priorities())}, self._namespaces())
        there = self._living(controllers, known)
        owners = dict(there.owners)
        seen: dict[tuple[str, str], KubernetesObject] = {}
        entries: list[tuple[float, Pod]] = []
        for i, found in enumerate(self.objects):
            made: list[Pod] = []
            has = Members()
            if i in there.pods:
                made = [there.pods[i]]
            elif found.kind in CONTROLLERS:
                has = there.members.get(key_of(found), has)
                above = controllers.owners(found)
                if controllers.maker(above) is None:
                    template = _decode(found, template_of(found), "spec.template", known)
                    template = replace(template, owner=f"{found.kind}/{found.name}")
                    made = list(missing(found, template, has, nodes))
                owners.update(((pod.namespace, pod.name), [key_of(found), *above][-1]) for pod in made)
            for pod in made:
                _claim(seen, (pod.namespace, pod.name), found)
            # What a controller that is at work has not created yet comes after all that is there.
            moment = created(found) if made and not has.pods else None
            entries += ((math.inf if moment is None else moment, pod) for pod in made)
        entries.sort(key=lambda entry: entry[0])
        return Expanded(
            pods=tuple(pod for _, pod in entries),
            owners=owners,
            absent=len(entries) - len(there.pods),
            finished=sum(1 for each in self.of_kind("Pod") if is_finished(each.content)),
            terminating=frozenset(there.terminating),
            odd_phases=tuple(sorted(there.odd_phases.items())),
        )

    def _living(self, controllers: Controllers, known: _Known) -> _Living:
        """Decode the Pods that have not finished, and say whose they are."""
        there = _Living()
        for i, found in enumerate(self.objects):
            if found.kind != "Pod":
                continue
            above = controllers.owners(found)
            maker = controllers.maker(above)
            has = there.members.setdefault(maker, Members()) if maker is not None else Members()
            if is_finished(found.content):
                has.succeeded += succeeded(found.content)
                continue
            there.pods[i] = pod = _mirrored(found, _decode(found, found.content, "", known))
            # A static pod's node makes it, and nothing else.
            there.owners.update(((pod.namespace, pod.name), key) for key in above[-1:] if key[0] != "Node")
            if is_terminating(found.content):
                there.terminating.add((pod.namespace, pod.name))
            else:
                has.pods.append(pod)
            there.odd_phases.update(_odd_phase(found.content))
        return there

    def services(self) -> Services:
        """The label selectors of Services and of the controllers that kube-scheduler spreads by."""
        creators = {found for found in self._creators() if found[0] == "Deployment"}
        selectors = []
        for found in self.of_kind(*BY_LABELS, *BY_REQUIREMENTS):
            if (found.kind, found.namespace, found.name) in creators:
                continue  # its ReplicaSet is there
            try:
                selectors.append((found.namespace, selector_of(found.kind, found.content)))
            except FieldError as error:
                raise found.error(error.field, error.problem) from None
        return services_of(selectors)

    def warnings(self) -> tuple[str, ...]:
        """What a user should know: kinds that were ignored, and what restricts pods and is not modelled."""
        found = []
        if self.ignored:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.ignored.items()))
            found.append(f"ignored objects that are neither nodes nor pods nor make pods: {kinds}")
        cron_jobs = sum(1 for _ in self.of_kind("CronJob"))
        if cron_jobs:
            found.append(f"{cron_jobs} CronJobs stand for no pods; the Jobs that they have started do")
        beyond: Counter[str] = Counter()
        for o in self.of_kind("Pod", *CONTROLLERS):
            beyond.update(unmodelled(o.content if o.kind == "Pod" else _template(o)))
        found += [
            f"{what} is not modelled and has no effect ({count} objects)" for what, count in sorted(beyond.items())
        ]
        return tuple(found)

    def _creators(self) -> Iterator[Key]:
        """The key of every controller that made another controller of the input."""
        made = (found for found in self.objects if found.kind != "Pod")
        return (key for key in map(controller_of, made) if key is not None)

    def _namespaces(self) -> Namespaces | None:
        """The labels of the Namespaces of the input, None if there is none."""
        found = {}
        for each in self.of_kind("Namespace"):
            try:
                found[each.name] = text_map(mapping(each.content, "metadata", ""), "labels", "metadata")
            except FieldError as error:
                raise each.error(error.field, error.problem) from None
        return found or None

    def _priorities(self) -> Iterator[tuple[str, int]]:
        for found in self.of_kind("PriorityClass"):
            try:
                yield found.name, integer(found.content, "value", "", -(1 << 31), (1 << 31) - 1, 0)
            except FieldError as error:
                raise found.error(error.field, error.problem) from None


def write_workload(workload: Workload, folder: Path) -> None:
    """Write `nodes.yaml`, `pods.yaml` and, where there are any, `services.yaml` into an existing folder."""
    write_nodes(workload.nodes, folder / "nodes.yaml")
    write_pods(workload.pods, folder / "pods.yaml")
    write_services(workload.services, folder / "services.yaml")


def write_nodes(nodes: Iterable[Node], path: Path) -> None:
    """Write v1 Nodes as one YAML file."""
    write_documents(path, (node_to_object(node) for node in nodes))


def write_pods(pods: Iterable[Pod], path: Path) -> None:
    """Write v1 Pods as one YAML file."""
    write_documents(path, (pod_to_object(pod) for pod in pods))


def write_services(services: Services, path: Path) -> None:
    """Write what selects pods into one YAML file; nothing, no file."""
    if services:
        write_documents(path, services_to_objects(services))


def _flatten(
    document: Document, path: str, kind: str = "", version: str = "", depth: int = 0
) -> Iterator[KubernetesObject]:
    """The objects of a document: itself, or the items of a List."""
    if depth > MAX_LIST_DEPTH:  # a YAML alias can put a list into itself
        raise document.error("", NESTED)
    content = document.content
    if not isinstance(content, dict):
        shape = "a list" if isinstance(content, list) else f"{type(content).__name__} {str(content)[:40]!r}"
        raise document.error(
            path, f"is not a Kubernetes object but {shape}; an object has apiVersion, kind and metadata"
        )
    kind = content.get("kind") or kind
    version = content.get("apiVersion") or version
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not value or not isinstance(value, str):
            raise document.error(join(path, name), "is missing; is this a Kubernetes object?")
    if kind.endswith("List") and isinstance(content.get("items"), list):
        for i, item in enumerate(content["items"]):
            where = ", ".join(part for part in (document.where, f"items[{i}]") if part)
            yield from _flatten(Document(item, document.file, where), "", kind.removesuffix("List"), version, depth + 1)
        return
    if not isinstance(content.get("metadata", {}), dict):
        raise document.error(join(path, "metadata"), "must be a mapping of fields")
    group = version.rpartition("/")[0]
    known = group in _GROUPS.get(kind, ())
    yield KubernetesObject(content, kind if known or kind not in _GROUPS else f"{kind}.{group}", document)


def _claim(seen: dict[tuple[str, str], KubernetesObject], key: tuple[str, str], found: KubernetesObject) -> None:
    """Note a name as taken. Raises InputError where it is."""
    if key in seen:
        first = seen[key].document
        place = ", ".join(part for part in (first.file, first.where) if part)
        raise found.error(
            "metadata.name", f"{'/'.join(filter(None, key))!r} is there already ({place}); names must be unique"
        )
    seen[key] = found


def _template(found: KubernetesObject) -> Object:
    spec = found.content.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else {}


def _decode(found: KubernetesObject, content: Object, path: str, known: _Known) -> Pod:
    return pod_from_object(
        content,
        file=found.document.file,
        where=found.where,
        path=path,
        priority_classes=known.priorities,
        namespaces=known.namespaces,
    )


def _mirrored(found: KubernetesObject, pod: Pod) -> Pod:
    """The pod; one that a node runs by itself names the node as its owner, also where only its annotation says so."""
    notes = found.content.get("metadata", {}).get("annotations")
    if not pod.owner and isinstance(notes, dict) and MIRROR in notes:
        return replace(pod, owner=f"Node/{pod.constraints.node_name}")
    return pod


def _odd_phase(content: Object) -> tuple[str, ...]:
    """The phase of a pod that is none of those of a pod that waits or runs."""
    status = content.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return () if phase in (None, "", "Pending", "Running") else (str(phase)[:40],)
