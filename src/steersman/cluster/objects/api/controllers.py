"""Controllers and their templates of pods, and Services, which select pods as controllers do."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.metadata import Condition, LabelSelector, ManifestObject, ObjectMeta

MAX_REPLICAS = 10_000_000
Replicas = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)]


class ControllerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a controller. Its template is not typed: of its pods also the fields matter that are not read."""

    template: dict[str, Any] | None = None


class Controller(ManifestObject, frozen=True):
    """A DaemonSet, or what all controllers have in common."""

    spec: ControllerSpec = ControllerSpec()


class ReplicationControllerSpec(ControllerSpec, frozen=True):
    """`spec` of a ReplicationController, or of a Service, which has only the selector."""

    selector: dict[str, str] | None = None
    replicas: Replicas | None = None


class ReplicationController(Controller, frozen=True):
    """A ReplicationController or a Service."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class StatefulSetOrdinals(msgspec.Struct, frozen=True):
    """`spec.ordinals` of a StatefulSet."""

    start: Replicas | None = None


class VolumeClaimTemplate(msgspec.Struct, frozen=True):
    """An entry of a StatefulSet's `spec.volumeClaimTemplates`."""

    metadata: ObjectMeta = ObjectMeta()


class DeploymentSpec(ControllerSpec, frozen=True, rename="camel"):
    """`spec` of a Deployment, ReplicaSet or StatefulSet; only the last one has ordinals, a policy and claims."""

    selector: LabelSelector | None = None
    replicas: Replicas | None = None
    ordinals: StatefulSetOrdinals | None = None
    pod_management_policy: str | None = None
    volume_claim_templates: list[VolumeClaimTemplate] | None = None


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Deployment, ReplicaSet or StatefulSet."""

    update_revision: str | None = None


class Deployment(Controller, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class JobSpec(ControllerSpec, frozen=True, rename="camel"):
    """`spec` of a Job."""

    parallelism: Replicas | None = None
    completions: Replicas | None = None
    completion_mode: str | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    pod_failure_policy: Any = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Job."""

    conditions: list[Condition] | None = None
    start_time: str | None = None
    succeeded: Replicas | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None


class Job(Controller, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
