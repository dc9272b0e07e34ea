"""PodGroups, by which schedulers of gangs know how many of their pods must start together."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.api.metadata import ManifestObject

GROUPS = (
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.incubator.k8s.io",
    "scheduling.run.ai",
    "scheduling.k8s.io",
)
"""API groups: of the coscheduling plugin and its older name, of Volcano and its older name, of KAI, of Kubernetes."""
Members = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)]


class GangPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.schedulingPolicy.gang` of a PodGroup of Kubernetes."""

    min_count: Members | None = None


class SchedulingPolicy(msgspec.Struct, frozen=True):
    """`spec.schedulingPolicy` of a PodGroup of Kubernetes."""

    gang: GangPolicy = GangPolicy()


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a PodGroup."""

    min_member: Members | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: dict[str, Any] | None = None


class PodGroup(ManifestObject, frozen=True):
    """A PodGroup."""

    spec: PodGroupSpec = PodGroupSpec()
