"""Lives of Pods, as their metadata and status tell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
from msgspec import structs

from steersman.cluster.model import JOB_NAME, Node
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import decode_pod
from steersman.cluster.objects.fields import FieldError, converted, unix_seconds
from steersman.cluster.objects.gpus import GpuSharing, sharing_of
from steersman.core.errors import InputError
from steersman.core.quantities import ceil_div
from steersman.workloads.formats.kubernetes.admission import KINDS as ADMISSION_KINDS
from steersman.workloads.formats.kubernetes.admission import Admission
from steersman.workloads.formats.kubernetes.controllers import Key, completion, controller_of, created, key_of
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.kubernetes.replicas import replica_name
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject
from steersman.workloads.workload import EndedPod, Life, Lives

MAX_OF_JOB = 1_000  # pods of a complete Job that are told apart; the rest ran as long
PAST = frozenset(
    (
        *("lastHeartbeatTime", "lastTransitionTime", "lastProbeTime", "lastUpdateTime", "startTime", "startedAt"),
        *("finishedAt", "completionTime", "lastScheduleTime", "lastSuccessfulTime", "lastScaleTime"),
    )
)
"""Fields in the status of objects that tell of the past."""


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    """`terminated` of a container's state."""

    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True):
    """`state` of a container's status."""

    terminated: Terminated | None = None


class ContainerEnd(msgspec.Struct, frozen=True):
    """What a container's status says of its end."""

    state: ContainerState | None = None


class RunStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod's status says of its run."""

    start_time: str | None = None
    container_statuses: list[ContainerEnd] | None = None

    def run(self, later: Iterable[float | None] = ()) -> tuple[float, float] | None:
        """Return when it began and when its last container ended, in seconds since 1970; None: unknown, or invalid.

        `later`: times of its end where no container states one.
        """
        stated = [each.state.terminated for each in self.container_statuses or () if each.state]
        ended = [each for each in stated if each is not None]
        starts = map(unix_seconds, [self.start_time] if self.start_time else [each.started_at for each in ended])
        began = min((start for start in starts if start is not None), default=None)
        ends = [end for each in ended if (end := unix_seconds(each.finished_at)) is not None]
        ends = ends or [end for end in later if end is not None][:1]
        return None if began is None or not ends or max(ends) < began else (began, max(ends))


def lives_of(sources: Sequence[Objects], nodes: Sequence[Node]) -> Lives:
    """Return the lives of the Pods of some objects. What is not stated, or invalid, is left out."""
    sharing = sharing_of(nodes)
    present: dict[tuple[str, str], Life] = {}
    ended, untimed = [], 0
    every = [obj for objects in sources for obj in objects.objects]
    jobs = {key_of(obj): completion(obj) for obj in every if obj.kind == "Job"}
    owned = {controller_of(obj) for obj in every if obj.kind == "Pod"}
    admission = Admission.of((obj for objects in sources for obj in objects.of_kind(*ADMISSION_KINDS)), nodes)
    for job in (obj for obj in every if obj.kind == "Job" and key_of(obj) not in owned):
        pods = list(_pods_of_job(job, admission, sharing))
        ended += pods
        untimed += not pods and any(each.type == "Failed" for each in job.typed.status.conditions or ())
    for obj in (obj for obj in every if obj.kind == "Pod"):
        try:
            began = created(obj)
        except InputError:
            began = None
        started = unix_seconds(obj.pod.status.start_time)
        if not obj.pod.finished:
            present[obj.namespace, obj.name] = Life(began, started, unix_seconds(obj.metadata.get("deletionTimestamp")))
        elif (pod := _ended_pod(obj, began, sharing, jobs)) is not None:
            ended.append(pod)
        else:
            untimed += 1
    stated = (time for obj in every for time in _past_times(obj))
    return Lives(present, tuple(sorted(ended, key=lambda each: each.ended)), untimed, max(stated, default=None))


def _pods_of_job(job: KubernetesObject, admission: Admission, sharing: GpuSharing) -> Iterator[EndedPod]:
    """Yield the pods of a complete Job whose Pods are deleted, as many at a time as it lets run, each equally long."""
    spec, status = job.typed.spec, job.typed.status
    began, ended = unix_seconds(status.start_time), completion(job)
    count = min(status.succeeded or spec.completions or 1, MAX_OF_JOB)
    if began is None or ended is None or ended < began:
        return
    try:
        template = converted(spec.template or {}, PodObject, "spec.template")
        labels = {**(template.metadata.labels or {}), JOB_NAME: job.name}
        metadata = structs.replace(template.metadata, name=job.name, namespace=job.namespace, labels=labels)
        stated = admission.admitted(structs.replace(template, metadata=metadata), "spec.template", job)
        pod = replace(decode_pod(stated, "spec.template", sharing=sharing), owner=f"Job/{job.name}")
        submitted = created(job)
    except (FieldError, InputError):
        return
    at_once = max(spec.parallelism or 1, 1)
    seconds = (ended - began) / ceil_div(count, at_once)
    for i in range(count):
        start = began + i // at_once * seconds
        name = replica_name(job.name, i + 1)
        yield EndedPod(replace(pod, name=name), began if submitted is None else submitted, start, start + seconds)


def _past_times(obj: KubernetesObject) -> Iterator[float]:
    metadata = obj.metadata
    fields = metadata.get("managedFields")
    stamps = [metadata.get("creationTimestamp"), *_stamps(obj.content.get("status"))]
    stamps += [each.get("time") for each in fields if isinstance(each, dict)] if isinstance(fields, list) else []
    yield from (time for stamp in stamps if (time := unix_seconds(stamp)) is not None)
    # A pod is deleted when its grace period ends, which began with the request.
    deleted, grace = unix_seconds(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds")
    if deleted is not None and isinstance(grace, int):
        yield deleted - grace


def _stamps(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for part in value:
            yield from _stamps(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in PAST:
                yield part
            elif isinstance(part, list | dict):
                yield from _stamps(part)


def _ended_pod(
    obj: KubernetesObject, began: float | None, sharing: GpuSharing, jobs: Mapping[Key, float | None]
) -> EndedPod | None:
    """Return a pod that has ended; None: it does not say when, or is invalid. `jobs`: when each was complete."""
    later = jobs.get(controller_of(obj) or ("", "", "")), unix_seconds(obj.metadata.get("deletionTimestamp"))
    try:
        run = msgspec.convert(obj.content["status"], RunStatus).run(later)
        pod = decode_pod(converted(obj.content, PodObject), sharing=sharing)
    except (msgspec.ValidationError, FieldError):
        return None
    if run is None:
        return None
    return EndedPod(pod, run[0] if began is None else began, *run)
