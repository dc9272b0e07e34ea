"""A pod as the cache knows it, its decoding from the API, and who is told of changes.

Of a pod that makes no sense the valid parts count, since it may run all the same, and the problem is kept with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec
import structlog

from steersman.cluster.model import PLUGIN_GPUS, Pod
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.decoding import decode_pod, pod_from_object
from steersman.cluster.objects.fields import FieldError, kubernetes_table, live_field_use
from steersman.cluster.objects.replicas import decode_replica, partial_pod, read_annotations
from steersman.cluster.objects.requests import is_resizing
from steersman.cluster.objects.selectors import selects_namespaces
from steersman.cluster.volumes import PodClaim, pod_claims
from steersman.core.errors import InputError
from steersman.kubernetes.cache.device_claims import DeviceClaims
from steersman.kubernetes.selectors import Namespaces


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
            may_have_grown: whether there may be room for a pod that waits; not after the node's deletion.
        """

    def on_node_problem(self, name: str, problem: str) -> None:
        """Handle a node that takes no pods since its object makes no sense, or that is valid again ("")."""

    def on_rebuilt(self) -> None:
        """Handle a new state object, in which all numbers differ."""


log = structlog.get_logger("cache")


class PodDecoder:
    """Decoder of pods, which starts the watches of what they refer to.

    Args:
        namespaces: labels of namespaces, by which pods may select others.
        device_claims: ResourceClaims of pods, and devices that nodes offer.
    """

    def __init__(self, namespaces: Namespaces, device_claims: DeviceClaims) -> None:
        self._namespaces, self._device_claims = namespaces, device_claims
        # JSON of pods that select namespaces by labels, by key; their models change with these labels
        self.selecting: dict[str, msgspec.Raw] = {}
        self._unknown: set[tuple[str, str]] = set()

    def decode(self, head: LivePod, raw: msgspec.Raw) -> CachedPod:
        """Return a pod without its numbers in the state."""
        meta, spec = head.metadata, head.spec
        self._note_selecting(head, raw)
        if spec.resource_claims:
            self._device_claims.need()
        pod, problem = self.decode_model(head, raw)
        uses = self.unmodelled(raw, "Pod")
        # Its requests count where it runs, whatever else it says; while it is pending the problem is reported.
        uses += (f"what it does not understand ({problem})",) if problem else self._device_claims.offers.unmodelled(pod)
        # Only names with a domain are extended resources, which a DeviceClass may offer.
        if pod.requests.gpu_resource in PLUGIN_GPUS or any("/" in name for name, _ in pod.requests.extended):
            self._device_claims.need_classes()
        return CachedPod(
            head.key,
            meta.uid,
            pod,
            meta.generation,
            unmodelled=uses,
            notes=read_annotations(meta),
            gated=bool(spec.scheduling_gates),
            resizing=bool(head.node) and not problem and is_resizing(head),
            problem=problem,
            claims=pod_claims(head),
            has_device_claims=bool(spec.resource_claims) and not pod.requests.gpu_count,
        )

    def decode_model(self, head: LivePod, raw: msgspec.Raw) -> tuple[Pod, str]:
        """Return a pod without its node, and what in it makes no sense, "" if nothing; only the rest counts then."""
        namespaces = self._namespaces.labels
        try:
            if selects_namespaces(head.spec):
                pod = decode_pod(head, namespaces=namespaces).unbound()
            else:
                pod = decode_replica(head)
            return self._device_claims.offers.pod(pod), ""
        except FieldError:
            document = msgspec.json.decode(raw)
        try:  # since `head` may lack what is wrong
            return pod_from_object(document, namespaces=namespaces).unbound(), ""
        except InputError as error:
            return partial_pod(document).unbound(), str(error)

    def _note_selecting(self, head: LivePod, raw: msgspec.Raw) -> None:
        if selects_namespaces(head.spec):
            # A copy: the original is a view that would keep a whole page of the list in memory.
            self.selecting[head.key] = msgspec.Raw(bytes(raw))
            self._namespaces.need()
        else:
            self.selecting.pop(head.key, None)

    def unmodelled(self, raw: msgspec.Raw, kind: str) -> tuple[str, ...]:
        """Return the fields that are not modelled. Name unknown ones once; kube-scheduler ignores them, too."""
        use = live_field_use(raw, kind)
        for path in use.unknown:
            if (kind, path) not in self._unknown:
                self._unknown.add((kind, path))
                minor = kubernetes_table().minor
                log.warning(f"field ignored that Kubernetes {minor} does not have", kind=kind, field=path)
        return tuple(use.unmodelled)
