"""Watches of claims, volumes, classes and CSI objects, started when a pod first has a claim."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from steersman.cluster.objects.api.volumes import CsiDriver, CsiNode, StorageCapacity, StorageClass, Volume, VolumeClaim
from steersman.cluster.volumes.rules import VolumeObjects
from steersman.kubernetes.client import Client
from steersman.kubernetes.optional_watch import NeededReflector

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
        client: connection to the API server.
        changed: called with the key of a claim that changed, "" when another object or any number of them did.

    Attributes:
        objects: current objects.
        reflectors: one per collection.
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
        """Return why claims cannot be checked, or ""."""
        refused = [reflector.resource for reflector in self.reflectors if reflector.is_refused]
        return f"steersman may not list and watch {', '.join(refused)}, which pods with volumes need" if refused else ""

    @property
    def synced(self) -> bool:
        """Whether everything was listed, or may not be."""
        return all(reflector.is_needed and reflector.synced.is_set() for reflector in self.reflectors)


def _say_refused(resource: str) -> None:
    log.warning("pods with persistent volume claims wait: no permission to list", resource=resource)
