"""What selects pods that kube-scheduler spreads by default: Services and controllers, kept in step by watches.

Of an object nothing is decoded but its name and its selector. That a controller selects a pod stands for its being the
pod's owner. Source: Kubernetes 1.36.3, pkg/scheduler/framework/plugins/helper/spread.go (DefaultSelector).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple

import msgspec
import structlog

from steersman.cluster.fields import FieldError
from steersman.cluster.model import Requirement
from steersman.cluster.selectors import label_selector
from steersman.kube.client import Client
from steersman.kube.needed import OptionalReflector
from steersman.kube.objects import NamedHead
from steersman.kube.reflector import EventType

log = structlog.get_logger("selectors")


class Selecting(NamedTuple):
    """A kind of objects that select pods.

    Attributes:
        kind, version: of the objects.
        path: of their collection.
        by_labels: whether `spec.selector` is labels and their values; if not, a LabelSelector.
    """

    kind: str
    version: str
    path: str
    by_labels: bool

    @property
    def resource(self) -> str:
        """What rights call it."""
        return self.path.rpartition("/")[2]


SELECTING = (
    Selecting("Service", "v1", "/api/v1/services", by_labels=True),
    Selecting("ReplicationController", "v1", "/api/v1/replicationcontrollers", by_labels=True),
    Selecting("ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets", by_labels=False),
    Selecting("StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets", by_labels=False),
)


class _Spec(msgspec.Struct, frozen=True):
    selector: dict[str, Any] | None = None


class _Head(NamedHead, frozen=True):
    spec: _Spec = _Spec()


_head = msgspec.json.Decoder(_Head).decode

Selector = tuple[str, tuple[Requirement, ...]]
"""A namespace, and what is required of the labels of its pods."""


class Selectors:
    """Follows all kinds of objects that select pods.

    Args:
        client: the connection.

    Attributes:
        reflectors: of the kinds; whoever uses this runs them. Those that we may not look at end, which is said once.
        version: grows whenever something else is selected.
    """

    def __init__(self, client: Client) -> None:
        self.version = 0
        self._feeds = [SelectorFeed(self, kind) for kind in SELECTING]
        self.reflectors = tuple(OptionalReflector(client, feed.kind.path, feed, feed.refuse) for feed in self._feeds)
        for reflector in self.reflectors:
            reflector.need()
        self._followers: list[Callable[[Set[str]], None]] = []

    def __iter__(self) -> Iterator[Selector]:
        """All selectors, also those of nothing."""
        return (selector for feed in self._feeds for selector in feed.selectors())

    def follow(self, told: Callable[[Set[str]], None]) -> None:
        """Have the keys of labels told that new selectors look at."""
        self._followers.append(told)

    def changed(self, keys: Set[str]) -> None:
        """Something else is selected, by these keys."""
        self.version += 1
        for told in self._followers:
            told(keys)

    def settled(self) -> None:
        """A kind was listed, or refused. When all were, say what is missing."""
        refused = [feed.kind for feed in self._feeds if feed.refused]
        if refused and all(feed.refused or feed.listed for feed in self._feeds):
            names = ", ".join(kind.resource for kind in refused)
            much = "off" if len(refused) == len(SELECTING) else "incomplete"
            log.warning(f"default spreading is {much}: no permission to list {names}", allow=_rules(refused))


class SelectorFeed:
    """Feeds the objects of a kind.

    Args:
        all_kinds: is told of changes.
        kind: which.

    Attributes:
        listed: whether its objects are known.
        refused: we may not look at them.
    """

    def __init__(self, all_kinds: Selectors, kind: Selecting) -> None:
        self._all, self.kind = all_kinds, kind
        self.listed = self.refused = False
        self._found: dict[str, tuple[dict[str, Any], Selector]] = {}

    def selectors(self) -> Iterator[Selector]:
        """Those of all objects."""
        return (selector for _, selector in self._found.values())

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        gone = self._found.keys() - keys
        for key in gone:
            del self._found[key]
        if gone:
            self._all.changed(set())
        if not self.listed:
            self.listed = True
            self._all.settled()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        head, keys = _head(obj), set[str]()
        if self._lose(head) if kind == "DELETED" else self._see(head, keys):
            self._all.changed(keys)

    def refuse(self, resource: str) -> None:
        """We may not look at this kind."""
        self.refused = True
        self._all.settled()

    def _lose(self, head: _Head) -> bool:
        return self._found.pop(head.key, None) is not None

    def _see(self, head: _Head, keys: set[str]) -> bool:
        """An object is so; whether that selects anything else. The keys that it looks at then are added to `keys`."""
        stated = head.spec.selector or {}
        known = self._found.get(head.key)
        if known is not None and known[0] == stated:
            return False
        labels = {"matchLabels": stated} if self.kind.by_labels else stated
        try:
            found = label_selector(labels, "spec.selector")
        except FieldError as error:
            why = f"{error.field} {error.problem}"
            log.warning("object ignored", kind=self.kind.kind, name=head.key, error=why)
            return self._lose(head)
        self._found[head.key] = stated, (head.metadata.namespace, found)
        keys.update(each.key for each in found)
        return known is not None or bool(found)


def _rules(kinds: list[Selecting]) -> str:
    """What a ClusterRole would have to allow."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.version.rpartition("/")[0] or '""', []).append(kind.resource)
    rules = (
        f"{{apiGroups: [{group}], resources: [{', '.join(resources)}], verbs: [list, watch]}}"
        for group, resources in groups.items()
    )
    return f"rules: [{', '.join(rules)}] of a ClusterRole, and a restart"
