"""Volumes of in-tree plugins as volumes of the CSI drivers that have taken over, as kube-scheduler counts them.

Source: k8s.io/csi-translation-lib 0.36.3, and isCSIMigrationOn of kube-scheduler's plugin NodeVolumeLimits, which
leaves out azureFile and vsphereVolume.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from steersman.cluster.objects.api.claims import Volume
from steersman.cluster.objects.api.pods import InTreeSources, PodObject

Attachment = tuple[str, str]  # CSI driver and handle of a volume

PROVISIONERS: Mapping[str, str] = MappingProxyType(
    {
        "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
        "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk": "disk.csi.azure.com",
        "kubernetes.io/cinder": "cinder.csi.openstack.org",
        "kubernetes.io/portworx-volume": "pxd.portworx.com",
    }
)
"""CSI drivers by the in-tree provisioner that each has taken over."""
NOT_COUNTED = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")
"""In-tree provisioners whose volumes kube-scheduler does not count."""
_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_UNKNOWN = "UNSPECIFIED"
_EBS = re.compile("vol-[^/]*")


def volume_attachment(volume: Volume) -> Attachment | None:
    """Return CSI driver and handle, also of an in-tree volume that a driver has taken over; None: it has no driver."""
    csi = volume.spec.csi
    if csi is not None:
        return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    return attachment(volume.spec, volume.metadata.labels or {})


def attachment(sources: InTreeSources, labels: Mapping[str, str] = MappingProxyType({})) -> Attachment | None:
    """Return driver and handle of an in-tree volume; None: it is something else, or cannot be translated."""
    if (ebs := sources.aws_elastic_block_store) is not None:
        return _attached("kubernetes.io/aws-ebs", _ebs(ebs.volume_id or ""))
    if (gce := sources.gce_persistent_disk) is not None:
        return _attached("kubernetes.io/gce-pd", _gce(gce.pd_name or "", labels))
    if (azure := sources.azure_disk) is not None:
        is_managed = (azure.kind or "Managed").lower() == "managed"
        return _attached("kubernetes.io/azure-disk", azure.disk_uri if is_managed else "")
    if sources.cinder is not None:
        return _attached("kubernetes.io/cinder", sources.cinder.volume_id)
    if sources.portworx_volume is not None:
        return _attached("kubernetes.io/portworx-volume", sources.portworx_volume.volume_id)
    return None


def _attached(provisioner: str, handle: str | None) -> Attachment | None:
    return (PROVISIONERS[provisioner], handle) if handle else None


def _ebs(stated: str) -> str:
    """Return `vol-1` of `vol-1` and of `aws://ZONE/vol-1`."""
    if not stated.startswith("aws://"):
        return stated
    path = re.split("[?#]", stated.removeprefix("aws://"))[0].partition("/")[2]
    volume = path.strip("/")
    return volume if _EBS.fullmatch(volume) else ""


def _gce(disk: str, labels: Mapping[str, str]) -> str:
    zones = next((labels[key] for key in _ZONE_LABELS if labels.get(key)), _UNKNOWN).split("__")
    # Several zones are those of a regional disk, which must be of one region.
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0]}/disks/{disk}"
    regions = {zone.rpartition("-")[0] for zone in zones}
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk}" if len(regions) == 1 else ""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod uses, or a volume of an in-tree plugin inside the pod."""

    key: str  # namespace and name of the claim; of a volume inside the pod its driver and handle
    made_for: str = ""  # the pod for which a controller creates an ephemeral claim, else ""
    attachment: Attachment | None = None  # driver and handle of a volume inside the pod; None: it is a claim

    @property
    def is_ephemeral(self) -> bool:
        return bool(self.made_for)

    @property
    def name(self) -> str:
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
