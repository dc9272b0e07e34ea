"""Pods of the API to the cache's.

Of a pod that makes no sense the valid parts count, since it may run all the same, and the problem is kept with it.
"""

from __future__ import annotations

import msgspec
import structlog

from steersman.cluster.model import PLUGIN_GPUS, Pod
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.decoding import decode_pod, pod_from_object
from steersman.cluster.objects.fields import FieldError, kubernetes_table, live_field_use
from steersman.cluster.objects.replicas import decode_replica, partial_pod, read_annotations
from steersman.cluster.objects.requests import is_resizing
from steersman.cluster.objects.selectors import selects_namespaces
from steersman.cluster.volumes import pod_claims
from steersman.core.errors import InputError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.device_claims import DeviceClaims
from steersman.kubernetes.selectors import Namespaces

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
