"""A pod as the cache knows it, and who is told of changes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.replicas import read_annotations
from steersman.cluster.volumes import PodClaim


@dataclass(slots=True, eq=False)
class CachedPod:
    """A pod of the cluster."""

    key: str  # namespace and name
    uid: str  # distinguishes it from an earlier pod of that name
    pod: Pod  # model, without a node's name among its constraints
    generation: int  # of the spec that the model was decoded from
    node: str = ""  # where it is bound or assumed; "" while it is pending
    devices: int | None = None  # bit mask of the GPU devices that it is known to hold; None: unknown
    assumed: bool = False  # whether it is there by our decision, which the watch has not confirmed yet
    unmodelled: tuple[str, ...] = ()  # features it uses that affect its placement and that the model lacks
    # `class_id`, `labels_id`: numbers in the state; -1: it has none, see `PodStore.number`.
    class_id: int = -1
    labels_id: int = -1
    version: str = ""  # resource version as last seen
    # Its annotations that are read, as last decoded: they hold requests and may change; None once the API has
    # confirmed our binding
    notes: dict[str, str] | None = None
    gated: bool = False  # whether it has scheduling gates
    resizing: bool = False  # whether its resources may change without its spec
    nominated: str = ""  # node that another scheduler nominated for it while it is pending, where it counts; "" if none
    problem: str = ""  # what in it makes no sense, "" if nothing
    claims: tuple[PodClaim, ...] = ()  # its persistent volume claims
    has_device_claims: bool = False  # whether its GPUs are those of its ResourceClaims
    seen: float = field(default_factory=time.monotonic)  # monotonic seconds at which it was first seen
    # When it began to wait for its scheduler, seconds since 1970: its creation, or when its gates were removed; None:
    # the API does not say
    waits_since: float | None = None
    refusal: str = ""  # why it was unschedulable, as its condition in the API says; "": it was not tried, or is bound
    # When its kubelet began with it, seconds since 1970; None: it has not, or its node does not say
    started: float | None = None

    @property
    def deleting(self) -> bool:
        return self.pod.terminating

    @property
    def follows(self) -> bool:
        """Whether a change that frees nothing may help it, such as another pod that was bound, or a claim."""
        return bool(self.claims or self.pod.constraints.affinity or self.pod.constraints.spread)


def has_changed(pod: CachedPod, head: LivePod) -> bool:
    """Return whether a pending pod differs from what its model was decoded from, or is being deleted."""
    meta = head.metadata
    return (
        meta.deletion_timestamp is not None
        or meta.generation != pod.generation
        or (meta.labels or {}) != pod.pod.labels
        or read_annotations(meta) != pod.notes
    )


def may_differ(pod: CachedPod, head: LivePod) -> bool:
    """Return whether a pod must be decoded to see if its model changed."""
    meta = head.metadata
    if pod.resizing or meta.generation != pod.generation or (meta.labels or {}) != pod.pod.labels:
        return True
    # Before 1.33 pods have no generation.
    # GPU annotations of a bound pod do not count, since anyone who may patch it can change them.
    return not pod.node and (not meta.generation or read_annotations(meta) != pod.notes)


class Listener:
    """Base class of listeners to the cluster. Called in the event loop; must not block."""

    def on_pod_added(self, pod: CachedPod) -> None:
        """Handle a new pod."""

    def on_pod_pending(self, pod: CachedPod) -> None:
        """Handle a pod that waits for a node: it is new, or was changed."""

    def on_pod_bound(self, pod: CachedPod) -> None:
        """Handle a pod that the watch reports on `pod.node`, by whichever scheduler."""

    def on_pod_deleted(self, pod: CachedPod) -> None:
        """Handle a deleted or finished pod, in its last form."""

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """Handle a node that was added, changed or deleted, or whose pods changed.

        Args:
            may_have_grown: whether there may be room for a pod that waits; not after a deletion.
        """

    def on_node_problem(self, name: str, problem: str) -> None:
        """Handle a node that takes no pods since its object makes no sense, or that is valid again ("")."""

    def on_rebuilt(self) -> None:
        """Handle a new state object, in which all numbers differ."""
