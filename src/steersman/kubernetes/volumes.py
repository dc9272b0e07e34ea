"""Volumes and claims: watches of what they depend on, and scores of VolumeBinding.

Source of the scores, which say how full a pod's claims leave the storage that they would get on each node: Kubernetes
1.37.2, pkg/scheduler/framework/plugins/volumebinding/{volume_binding.go,scorer.go}, with the feature gate
StorageCapacityScoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from steersman.cluster.objects.api.claims import CsiDriver, CsiNode, StorageCapacity, StorageClass, Volume, VolumeClaim
from steersman.cluster.volumes import VolumeFit, VolumeObjects, volume_bytes
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import NeededReflector

log = structlog.get_logger("volumes")

COLLECTIONS: tuple[tuple[str, type[msgspec.Struct], str], ...] = (
    ("/api/v1/persistentvolumeclaims", VolumeClaim, "claims"),
    ("/api/v1/persistentvolumes", Volume, "volumes"),
    ("/apis/storage.k8s.io/v1/storageclasses", StorageClass, "classes"),
    ("/apis/storage.k8s.io/v1/csinodes", CsiNode, "nodes"),
    ("/apis/storage.k8s.io/v1/csidrivers", CsiDriver, "drivers"),
    ("/apis/storage.k8s.io/v1/csistoragecapacities", StorageCapacity, "capacities"),
)
"""What is watched: the path, what is kept of its objects, and the attribute of VolumeObjects."""


class Volumes:
    """Objects that claims depend on, kept by watches once they are needed.

    Args:
        changed: called with the key of a claim that changed, "" when another object or any number of them did.
    """

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        self.objects = VolumeObjects()
        self.reflectors = tuple(
            NeededReflector(
                client,
                path,
                kind,
                getattr(self.objects, attribute),
                changed if kind is VolumeClaim else lambda _: changed(""),
                _say_refused,
            )
            for path, kind, attribute in COLLECTIONS
        )

    def need(self) -> None:
        for reflector in self.reflectors:
            reflector.need()

    @property
    def problem(self) -> str:
        refused = [reflector.resource for reflector in self.reflectors if reflector.is_refused]
        return f"steersman may not list and watch {', '.join(refused)}, which pods with volumes need" if refused else ""

    @property
    def synced(self) -> bool:
        """Whether everything was listed, or may not be."""
        return all(reflector.is_needed and reflector.synced.is_set() for reflector in self.reflectors)


def _say_refused(resource: str) -> None:
    log.warning("pods with persistent volume claims wait: no permission to list", resource=resource)


Ints = npt.NDArray[np.int64]

REQUESTED, OFFERED, COUNT = range(3)  # rows, of a storage class on each node: bytes, bytes, and number of claims
FULL = 100


def storage_scores(volume_fit: VolumeFit, shape: Sequence[tuple[int, int]]) -> Ints | None:
    """Return the score of each node in 0..100, [N]: the mean over storage classes of a function of what is taken.

    Where claims get volumes that exist, these alone count: requested over offered bytes. Elsewhere it is the requested
    share of what a driver reports as free. Nodes of which nothing is known have 0. None: no claim waits for a node.

    Args:
        shape: (percent, score) of each point of the function.
    """
    if not volume_fit.matched:
        return None
    nodes = len(next(iter(volume_fit.matched.values())))
    bound: dict[str, Ints] = {}
    provisioned: dict[str, Ints] = {}
    for claim, matched in volume_fit.matched.items():
        size = volume_fit.requested[claim]
        for number, volume in enumerate(volume_fit.candidates[claim]):
            taken = bound.setdefault(volume.class_name, np.zeros((3, nodes), dtype=np.int64))
            taken += (matched == number) * np.array([[size], [volume_bytes(volume)], [1]])
        free = volume_fit.free[claim]
        here = (matched < 0) & (free >= 0)
        taken = provisioned.setdefault(volume_fit.storage_class[claim], np.zeros((3, nodes), dtype=np.int64))
        taken[REQUESTED, here] += size
        # Several claims of a class share what is free.
        taken[OFFERED, here] = free[here]
        taken[COUNT, here] += 1
    has_volume = sum((taken[COUNT] for taken in bound.values()), np.zeros(nodes, dtype=np.int64)) > 0
    of_volumes, of_drivers = (_mean_score(each.values(), shape, nodes) for each in (bound, provisioned))
    return np.where(has_volume, of_volumes, of_drivers)


def _mean_score(classes: Iterable[Ints], shape: Sequence[tuple[int, int]], nodes: int) -> Ints:
    """Return the rounded mean score over the storage classes that each node has, [N], 0 without any."""
    total, count = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for requested, offered, claims in classes:
        exceeds = (offered == 0) | (requested > offered)
        percent = np.where(exceeds, FULL, requested * FULL // np.maximum(offered, 1))
        total += np.where(claims > 0, _shaped(shape, percent), 0)
        count += claims > 0
    return np.floor(total / np.maximum(count, 1) + 0.5).astype(np.int64)


def _shaped(shape: Sequence[tuple[int, int]], percent: Ints) -> Ints:
    """Return the values of a piecewise linear function, constant beyond its points."""
    values = np.full(len(percent), shape[-1][1], dtype=np.int64)
    for (before, low), (after, high) in reversed([*pairwise(shape)]):
        # Go's division rounds towards zero.
        change = abs(high - low) * (percent - before) // (after - before)
        values = np.where(percent <= after, low + (change if high >= low else -change), values)
    return np.where(percent <= shape[0][0], shape[0][1], values)
