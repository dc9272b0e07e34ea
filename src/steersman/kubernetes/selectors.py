"""What selects pods by labels, kept by watches: Services and controllers, by which pods are spread, and namespaces.

Of an object only its name and selector are decoded. A controller that selects a pod is taken for the pod's owner.
Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/helper/spread.go (DefaultSelector).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple

import msgspec
import structlog

from steersman.cluster.model import Pod, PodClass, Requirement
from steersman.cluster.objects.api.metadata import LabelSelector, NamedObject, named_object
from steersman.cluster.objects.fields import FieldError, converted
from steersman.cluster.objects.selectors import label_selector
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, OptionalReflector

NAMESPACES_PATH = "/api/v1/namespaces"
SETTLE_SECONDS = 0.5  # changes within this time are applied together, since each may require decoding pods again

log = structlog.get_logger("selectors")


class Namespaces(OptionalReflector):
    """Labels of namespaces, kept by a watch once they are needed. `changed`: called some time after labels changed."""

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        super().__init__(client, NAMESPACES_PATH, self, _say_refused)
        self.labels: dict[str, dict[str, str]] | None = None  # by name; None: not known yet, or forbidden
        self._known: dict[str, dict[str, str]] = {}
        self._tell, self._dirty = changed, asyncio.Event()

    async def run(self) -> None:
        settling = asyncio.create_task(self._settle())
        try:
            await super().run()
        finally:
            settling.cancel()

    def keep(self, keys: Set[str]) -> None:
        for name in self._known.keys() - keys:
            del self._known[name]
        self.labels = self._known
        # Changes of the list itself are told right here.
        self._dirty.clear()
        self._tell()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        head = named_object(obj).metadata
        if kind == "DELETED":
            self._known.pop(head.name, None)
        elif self._known.get(head.name) == (head.labels or {}):
            return
        else:
            self._known[head.name] = head.labels or {}
        self._dirty.set()

    async def _settle(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._dirty.clear()
            # None during the first list, when labels are incomplete.
            if self.labels is not None:
                self._tell()


def _say_refused(_: str) -> None:
    log.warning(
        "pods that select namespaces by labels are not understood: no permission to list namespaces",
        allow='rules: [{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}] of a ClusterRole',
    )


class SelectingResource(NamedTuple):
    """Kind of objects that select pods."""

    kind: str
    version: str
    path: str
    by_labels: bool  # whether `spec.selector` is a map of labels; if not, a LabelSelector

    @property
    def resource(self) -> str:
        return self.path.rpartition("/")[2]


SELECTING = (
    SelectingResource("Service", "v1", "/api/v1/services", by_labels=True),
    SelectingResource("ReplicationController", "v1", "/api/v1/replicationcontrollers", by_labels=True),
    SelectingResource("ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets", by_labels=False),
    SelectingResource("StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets", by_labels=False),
)


class _Spec(msgspec.Struct, frozen=True):
    selector: dict[str, Any] | None = None


class _Head(NamedObject, frozen=True):
    spec: _Spec = _Spec()


_head = msgspec.json.Decoder(_Head).decode

Selector = tuple[str, tuple[Requirement, ...]]  # a namespace, and requirements on the labels of its pods


def as_written(pod: Pod) -> PodClass:
    return pod.pod_class


class Selectors:
    """Selectors of all kinds of objects."""

    def __init__(self, client: Client) -> None:
        self.version = 0  # incremented whenever selectors change
        # The class of a pod as the policy reads it, maybe with constraints by these selectors
        self.read: Callable[[Pod], PodClass] = as_written
        self._feeds = [SelectorFeed(self, kind) for kind in SELECTING]
        # One per kind, run by the caller. Those that may not be listed end, which is logged once.
        self.reflectors = tuple(OptionalReflector(client, feed.kind.path, feed, feed.refuse) for feed in self._feeds)
        for reflector in self.reflectors:
            reflector.need()
        self._followers: list[Callable[[Set[str]], None]] = []

    def __iter__(self) -> Iterator[Selector]:
        """Yield all selectors, also those of nothing."""
        return (selector for feed in self._feeds for selector in feed.selectors())

    def follow(self, on_change: Callable[[Set[str]], None]) -> None:
        self._followers.append(on_change)

    def changed(self, keys: Set[str]) -> None:
        self.version += 1
        for on_change in self._followers:
            on_change(keys)

    def settled(self) -> None:
        """Record that a kind was listed or refused; log what is missing when all were."""
        refused = [feed.kind for feed in self._feeds if feed.refused]
        if refused and all(feed.refused or feed.listed for feed in self._feeds):
            names = ", ".join(kind.resource for kind in refused)
            much = "off" if len(refused) == len(SELECTING) else "incomplete"
            log.warning(f"default spreading is {much}: no permission to list {names}", allow=_rules(refused))


class SelectorFeed:
    """Handler of one kind of objects."""

    def __init__(self, all_kinds: Selectors, kind: SelectingResource) -> None:
        self._all, self.kind = all_kinds, kind
        self.listed = self.refused = False
        self._found: dict[str, tuple[dict[str, Any], Selector]] = {}

    def selectors(self) -> Iterator[Selector]:
        return (selector for _, selector in self._found.values())

    def keep(self, keys: Set[str]) -> None:
        gone = self._found.keys() - keys
        for key in gone:
            del self._found[key]
        if gone:
            self._all.changed(set())
        if not self.listed:
            self.listed = True
            self._all.settled()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        head, keys = _head(obj), set[str]()
        if self._lose(head) if kind == "DELETED" else self._see(head, keys):
            self._all.changed(keys)

    def refuse(self, resource: str) -> None:
        self.refused = True
        self._all.settled()

    def _lose(self, head: _Head) -> bool:
        return self._found.pop(head.key, None) is not None

    def _see(self, head: _Head, keys: set[str]) -> bool:
        """Apply an object; return whether its selector changed, and add the label keys of the new one to `keys`."""
        stated = head.spec.selector or {}
        known = self._found.get(head.key)
        if known is not None and known[0] == stated:
            return False
        labels = {"matchLabels": stated} if self.kind.by_labels else stated
        try:
            result = label_selector(converted(labels, LabelSelector, "spec.selector"), "spec.selector")
        except FieldError as error:
            why = f"{error.field} {error.problem}"
            log.warning("object ignored", kind=self.kind.kind, name=head.key, error=why)
            return self._lose(head)
        self._found[head.key] = stated, (head.metadata.namespace or "", result)
        keys.update(each.key for each in result)
        # A new object that selects nothing changes no decision.
        return known is not None or bool(result)


def _rules(kinds: list[SelectingResource]) -> str:
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.version.rpartition("/")[0] or '""', []).append(kind.resource)
    rules = (
        f"{{apiGroups: [{group}], resources: [{', '.join(resources)}], verbs: [list, watch]}}"
        for group, resources in groups.items()
    )
    return f"rules: [{', '.join(rules)}] of a ClusterRole, and a restart"
