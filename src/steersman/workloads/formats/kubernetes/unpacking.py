"""Kubernetes objects of documents: single objects, Lists, arrays, and what other tools export."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from steersman.cluster.objects.api import claims, controllers
from steersman.cluster.objects.api.metadata import ManifestObject, NodeObject
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.fields import FieldError, Object, converted, join, valid_parts
from steersman.core.errors import InputError
from steersman.workloads.formats.yaml_documents import NESTED, Document


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a controller makes of each part of a resource."""

    name: str
    template: str
    each: str = "[spec]"
    when: str = "true"
    let: dict[str, str] = {}
    kind: str = "Pod"
    count: dict[str, str] = {}
    metadata: str = "{}"
    add: str = "{}"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the controllers of some kinds make pods."""

    kinds: list[str]
    groups: list[str]
    makes: list[Rule]
    suspended: str = "spec.suspend"
    stopped: str = "false"
    ends: bool = True
    scales_down: str = "none"
    let: dict[str, str] = {}


class ResourceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the table; `functions` by name and arguments, `exports` by the name of a list."""

    resource: list[ResourceRow]
    other: ResourceRow
    has_ended: str
    functions: dict[str, str]
    auxiliary: list[str]
    unmodelled: list[str]
    unmodelled_annotations: list[str]
    clock: dict[str, str]
    exports: dict[str, str]

    def row(self, kind: str, group: str) -> ResourceRow | None:
        """Return how a kind makes pods; None: the table does not say."""
        return next((row for row in self.resource if kind in row.kinds and group in row.groups), None)


@cache
def resource_table() -> ResourceTable:
    content = resources.files("steersman.data").joinpath("custom_resources.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(content), ResourceTable)


MAX_LIST_DEPTH = 8


class KindSpec(NamedTuple):
    """A kind of objects that is read: its type and its API groups."""

    type: type[Any]
    groups: tuple[str, ...]


KINDS: Mapping[str, KindSpec] = MappingProxyType(
    {
        "Node": KindSpec(NodeObject, ("",)),
        "Pod": KindSpec(PodObject, ("",)),
        "Namespace": KindSpec(ManifestObject, ("",)),
        "Service": KindSpec(controllers.ReplicationController, ("",)),
        "ReplicationController": KindSpec(controllers.ReplicationController, ("",)),
        "LimitRange": KindSpec(controllers.LimitRange, ("",)),
        "Deployment": KindSpec(controllers.Deployment, ("apps", "extensions")),
        "ReplicaSet": KindSpec(controllers.Deployment, ("apps", "extensions")),
        "DaemonSet": KindSpec(controllers.Controller, ("apps", "extensions")),
        "StatefulSet": KindSpec(controllers.Deployment, ("apps",)),
        "Job": KindSpec(controllers.Job, ("batch",)),
        "CronJob": KindSpec(ManifestObject, ("batch",)),
        "PriorityClass": KindSpec(controllers.PriorityClass, ("scheduling.k8s.io",)),
        "PodDisruptionBudget": KindSpec(controllers.BudgetObject, ("policy",)),
        "RuntimeClass": KindSpec(controllers.RuntimeClass, ("node.k8s.io",)),
        "HorizontalPodAutoscaler": KindSpec(controllers.HorizontalPodAutoscaler, ("autoscaling",)),
        "PersistentVolume": KindSpec(claims.Volume, ("",)),
        "PersistentVolumeClaim": KindSpec(claims.VolumeClaim, ("",)),
        "StorageClass": KindSpec(claims.StorageClass, ("storage.k8s.io",)),
        "PodGroup": KindSpec(controllers.PodGroup, controllers.GROUPS),
        "DeviceClass": KindSpec(claims.DeviceClass, ("resource.k8s.io",)),
        "ResourceSlice": KindSpec(claims.ResourceSlice, ("resource.k8s.io",)),
        "ResourceClaim": KindSpec(claims.ResourceClaim, ("resource.k8s.io",)),
        "ResourceClaimTemplate": KindSpec(ManifestObject, ("resource.k8s.io",)),
    }
)
"""Kinds of objects that are read; others are custom resources, or ignored."""

_KAI_OBJECTS = "rawObjects"


@dataclass(frozen=True)
class KubernetesObject:
    """One object of a document: content, kind and position."""

    content: Object
    kind: str
    document: Document

    @property
    def metadata(self) -> Object:
        return self.content.get("metadata") or {}

    @property
    def name(self) -> str:
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """Return `metadata.namespace`, "default" if there is none."""
        return str(self.metadata.get("namespace") or "default")

    @property
    def group(self) -> str:
        """Return the API group, empty for the core group."""
        return str(self.content.get("apiVersion")).rpartition("/")[0]

    @property
    def version(self) -> str:
        return str(self.content.get("apiVersion")).rpartition("/")[2]

    @cached_property
    def typed(self) -> Any:
        """Return the object as its type of `KINDS`, of a Pod what is valid. Raises InputError: it is invalid."""
        if self.kind == "Pod":
            return self.pod
        try:
            return converted(self.content, KINDS[self.kind].type if self.kind in KINDS else ManifestObject)
        except FieldError as error:
            raise self.error(error.field, error.problem) from None

    @cached_property
    def pod(self) -> PodObject:
        """Return what is valid of a Pod, or of a controller's template."""
        return valid_parts(self.content if self.kind == "Pod" else self.typed.spec.template or {}, PodObject)

    def error(self, field: str, problem: str) -> InputError:
        namespace = self.metadata.get("namespace")
        name = f"{namespace}/{self.name}" if namespace else self.name
        name = name if name.isprintable() else ascii(name)
        where = ", ".join(part for part in (self.document.where, f"{self.kind} {name}".strip()) if part)
        return InputError(self.document.file, where, field, problem)

    @property
    def where(self) -> str:
        return self.error("", "").where


def unpack(document: Document) -> Iterator[KubernetesObject | InputError]:
    """Yield the objects of a document, and an error for each part that is not an object."""
    content = document.content
    if isinstance(content, list):
        for i, item in enumerate(content):
            yield from _unpacked(_part(document, item, f"[{i}]"), "", "", 0)
    elif exports := _exports(content):
        for path, kind, version, items in exports:
            for i, item in enumerate(items):
                yield from _unpacked(_part(document, item, f"{path}[{i}]"), kind, version, 0)
    else:
        yield from _unpacked(document, "", "", 0)


def qualified_kind(kind: str, version: str) -> str:
    """Return a kind, with its API group if another group's kind of that name is read; no version: the one that is."""
    group = version.rpartition("/")[0]
    return f"{kind}.{group}" if version and kind in KINDS and group not in KINDS[kind].groups else kind


def _part(document: Document, content: Any, where: str) -> Document:
    return Document(content, document.file, ", ".join(part for part in (document.where, where) if part))


def _exports(content: Any) -> list[tuple[str, str, str, list[Any]]]:
    """Return the lists of an export: path, kind, API version and items; empty if the document is something else."""
    if not isinstance(content, dict) or content.get("kind"):
        return []
    path = _KAI_OBJECTS if isinstance(content.get(_KAI_OBJECTS), dict) else ""
    lists = content[path] if path else content
    exported = {name.lower(): which.partition(" ") for name, which in resource_table().exports.items()}
    return [
        (join(path, key), exported[key.lower()][2], exported[key.lower()][0], items)
        for key, items in lists.items()
        if isinstance(items, list) and isinstance(key, str) and key.lower() in exported
    ]


def _unpacked(document: Document, kind: str, version: str, depth: int) -> Iterator[KubernetesObject | InputError]:
    """Yield the object of a document, or the items of a List; `kind` and `version` are those of the list's items."""
    content = document.content
    problem = _problem(content, kind, version) if depth <= MAX_LIST_DEPTH else ("", NESTED)  # an alias can hold itself
    if problem:
        yield document.error(*problem)
        return
    kind, version = content.get("kind") or kind, content.get("apiVersion") or version
    if kind.endswith("List") and isinstance(content.get("items") or [], list) and "items" in content:
        for i, item in enumerate(content["items"] or ()):
            item_kind = kind.removesuffix("List")
            yield from _unpacked(_part(document, item, f"items[{i}]"), item_kind, version, depth + 1)
        return
    content = content if content.get("apiVersion") else {**content, "apiVersion": version}
    yield KubernetesObject(content, qualified_kind(kind, version), document)


def _problem(content: Any, kind: str, version: str) -> tuple[str, str] | None:
    if not isinstance(content, dict):
        shape = "a list" if isinstance(content, list) else f"{type(content).__name__} {str(content)[:40]!r}"
        return "", f"is not a Kubernetes object but {shape}; an object has apiVersion, kind and metadata"
    for name, value in (("apiVersion", content.get("apiVersion") or version), ("kind", content.get("kind") or kind)):
        if not value or not isinstance(value, str):
            return name, "is missing; is this a Kubernetes object?"
    if not isinstance(content.get("metadata") or {}, dict):
        return "metadata", "must be a mapping of fields"
    return None
