"""What filters and scores read of a pod's volumes and containers, besides requests and ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from steersman.cluster.model import ExclusiveVolume
from steersman.cluster.objects.fields import Object, boolean, items, join, mapping, text, texts

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"
DECLARED = (
    RESTART_ALL,
    HOST_NETWORK_USERS,
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
)
"""Features that a kubelet may declare: the first two decide where pods are placed, the others how pods are updated."""


def normalized_image(image: str) -> str:
    """Return an image's name as kube-scheduler compares it: with ":latest" where there is no tag or digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def image_volumes(spec: Object, path: str) -> Iterator[str]:
    """Yield the images that a pod mounts as volumes."""
    for volume, where in items(spec, "volumes", path):
        reference = text(mapping(volume, "image", where), "reference", join(where, "image"))
        if reference:
            yield normalized_image(reference)


def exclusive_volumes(spec: Object, path: str) -> Iterator[ExclusiveVolume]:
    """Yield the inline volumes that pods on one node cannot share.

    Source: Kubernetes 1.36.3, pkg/scheduler/framework/plugins/volumerestrictions (isVolumeConflict).
    """
    for volume, where in items(spec, "volumes", path):
        for kind, decode in _EXCLUSIVE.items():
            if volume.get(kind) is not None:
                yield decode(mapping(volume, kind, where), join(where, kind))


def _gce(source: Object, path: str) -> ExclusiveVolume:
    return ExclusiveVolume("gcePersistentDisk", (text(source, "pdName", path),), (), boolean(source, "readOnly", path))


def _ebs(source: Object, path: str) -> ExclusiveVolume:
    return ExclusiveVolume("awsElasticBlockStore", (text(source, "volumeID", path),))  # also if it is only read


def _iscsi(source: Object, path: str) -> ExclusiveVolume:
    return ExclusiveVolume("iscsi", (text(source, "iqn", path),), (), boolean(source, "readOnly", path))


def _rbd(source: Object, path: str) -> ExclusiveVolume:
    disk = text(source, "pool", path) or "rbd", text(source, "image", path)
    return ExclusiveVolume("rbd", disk, texts(source, "monitors", path), boolean(source, "readOnly", path))


_EXCLUSIVE: Mapping[str, Callable[[Object, str], ExclusiveVolume]] = {
    "gcePersistentDisk": _gce,
    "awsElasticBlockStore": _ebs,
    "iscsi": _iscsi,
    "rbd": _rbd,
}
READ_VOLUMES = frozenset((*_EXCLUSIVE, "image"))
"""Kinds of volumes that are read."""


def needed_features(spec: Object, path: str) -> Iterator[str]:
    """Yield the features that a pod needs its node to declare.

    Source: k8s.io/component-helpers 0.36.3, nodedeclaredfeatures/features.
    """
    if any(
        rule.get("action") == "RestartAllContainers"
        for key in ("containers", "initContainers")
        for container, where in items(spec, key, path)
        for rule, _ in items(container, "restartPolicyRules", where)
    ):
        yield RESTART_ALL
    if (
        boolean(spec, "hostNetwork", path)
        and spec.get("hostUsers") is not None
        and not boolean(spec, "hostUsers", path)
    ):
        yield HOST_NETWORK_USERS
