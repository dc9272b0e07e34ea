"""Volumes of in-tree plugins as volumes of the CSI drivers that have taken over, as kube-scheduler counts them.

Source: k8s.io/csi-translation-lib 0.36.3, and isCSIMigrationOn of kube-scheduler's plugin NodeVolumeLimits, which
leaves out azureFile and vsphereVolume.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from steersman.cluster.objects.fields import Object

Attachment = tuple[str, str]
"""CSI driver and handle of a volume."""

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


_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "awsElasticBlockStore": "kubernetes.io/aws-ebs",
        "gcePersistentDisk": "kubernetes.io/gce-pd",
        "azureDisk": "kubernetes.io/azure-disk",
        "cinder": "kubernetes.io/cinder",
        "portworxVolume": "kubernetes.io/portworx-volume",
    }
)
"""Provisioners by the field of a volume."""


def attachment(holder: Object, labels: Mapping[str, str] = MappingProxyType({})) -> Attachment | None:
    """Return driver and handle of an in-tree volume; None: it is something else, or invalid.

    Args:
        holder: a volume of a pod, or the spec of a PersistentVolume.
        labels: of the PersistentVolume.
    """
    for kind, provisioner in _KINDS.items():
        source = holder.get(kind)
        if isinstance(source, dict):
            handle = _handle(kind, source, labels)
            return (PROVISIONERS[provisioner], handle) if handle else None
    return None


def _handle(kind: str, source: Object, labels: Mapping[str, str]) -> str:
    """Return the handle of a volume; "": kube-scheduler cannot translate it."""
    match kind:
        case "awsElasticBlockStore":
            return _ebs(str(source.get("volumeID") or ""))
        case "gcePersistentDisk":
            return _gce(str(source.get("pdName") or ""), labels)
        case "azureDisk":
            is_managed = str(source.get("kind") or "Managed").lower() == "managed"
            return str(source.get("diskURI") or "") if is_managed else ""
        case _:
            return str(source.get("volumeID") or "")


def _ebs(stated: str) -> str:
    """Return `vol-1` of `vol-1` and of `aws://ZONE/vol-1`."""
    if not stated.startswith("aws://"):
        return stated
    volume = urlsplit(stated).path.strip("/")
    return volume if _EBS.fullmatch(volume) else ""


def _gce(disk: str, labels: Mapping[str, str]) -> str:
    zones = next((labels[key] for key in _ZONE_LABELS if labels.get(key)), _UNKNOWN).split("__")
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0]}/disks/{disk}"
    regions = {zone.rpartition("-")[0] for zone in zones}
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk}" if len(regions) == 1 else ""
