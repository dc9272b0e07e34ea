"""The claims of a pod, and its volumes of in-tree plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.volumes.translation import Attachment, attachment


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod uses, or a volume of an in-tree plugin inside the pod.

    Attributes:
        key: namespace and name of the claim; of a volume inside the pod its driver and handle.
        made_for: the pod for which a controller creates an ephemeral claim, else "".
        attachment: driver and handle of a volume inside the pod; None: it is a claim.
    """

    key: str
    made_for: str = ""
    attachment: Attachment | None = None

    @property
    def is_ephemeral(self) -> bool:
        """Whether the claim belongs to the pod."""
        return bool(self.made_for)

    @property
    def name(self) -> str:
        """Name of the claim without its namespace."""
        return self.key.rpartition("/")[2]


def pod_claims(obj: PodObject) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, and its in-tree volumes, each once."""
    return tuple(dict.fromkeys(_claims(obj))) if obj.spec.volumes else ()


def _claims(obj: PodObject) -> Iterator[PodClaim]:
    namespace = f"{obj.metadata.namespace or 'default'}/"
    pod = f"{namespace}{obj.metadata.name}"
    for volume in obj.spec.volumes or ():
        if (source := volume.persistent_volume_claim) is not None:
            yield PodClaim(f"{namespace}{source.claim_name or ''}")
        elif volume.ephemeral:
            yield PodClaim(f"{pod}-{volume.name or ''}", made_for=pod)
        elif found := attachment(volume):
            yield PodClaim(f"{found[0]}:{found[1]}", attachment=found)
