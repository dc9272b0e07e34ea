"""What filters and scores read of a pod's volumes and containers, besides requests and ports."""

from __future__ import annotations

from collections.abc import Iterator

from steersman.cluster.model import ExclusiveVolume
from steersman.cluster.objects.api.pods import PodSpec

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"
DECLARED = (
    RESTART_ALL,
    HOST_NETWORK_USERS,
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    "DRANodeAllocatableResources",
    "VolumeBindMountOptions",
    "DRAOptionalNodeOperations",
)
"""Features that a kubelet may declare. The first two decide where pods are placed, and VolumeBindMountOptions, which is
not modelled. The others decide how pods are updated, or matter to pods with resource claims."""


def normalized_image(image: str) -> str:
    """Return an image's name as kube-scheduler compares it: with ":latest" where there is no tag or digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def image_volumes(spec: PodSpec) -> Iterator[str]:
    for volume in spec.volumes or ():
        if volume.image is not None and volume.image.reference:
            yield normalized_image(volume.image.reference)


def exclusive_volumes(spec: PodSpec) -> Iterator[ExclusiveVolume]:
    """Yield the inline volumes that pods on one node cannot share.

    Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/volumerestrictions (isVolumeConflict).
    """
    for volume in spec.volumes or ():
        if (gce := volume.gce_persistent_disk) is not None:
            yield ExclusiveVolume("gcePersistentDisk", (gce.pd_name or "",), (), bool(gce.read_only))
        if (ebs := volume.aws_elastic_block_store) is not None:  # also if it is only read
            yield ExclusiveVolume("awsElasticBlockStore", (ebs.volume_id or "",))
        if (iscsi := volume.iscsi) is not None:
            yield ExclusiveVolume("iscsi", (iscsi.iqn or "",), (), bool(iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            disk = rbd.pool or "rbd", rbd.image or ""
            yield ExclusiveVolume("rbd", disk, tuple(rbd.monitors or ()), bool(rbd.read_only))


def needed_features(spec: PodSpec) -> Iterator[str]:
    """Yield the features that a pod needs its node to declare.

    Source: k8s.io/component-helpers 0.37.2, nodedeclaredfeatures/features.
    """
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    rules = (rule for each in containers for rule in each.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield RESTART_ALL
    if spec.host_network and spec.host_users is False:
        yield HOST_NETWORK_USERS
