"""Gangs by objects: PodGroups of schedulers, and Volcano's Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from steersman.cluster.model import Pod
from steersman.cluster.objects.decoding import digits
from steersman.cluster.objects.fields import Object
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject
from steersman.workloads.formats.kubernetes.workflow_parallelism import workflow_parallelism

KIND = "PodGroup"
NAMED_BY = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name")
"""Annotations of pods with the name of their PodGroup: Volcano's, and KAI's."""
KUEUE_GROUP, KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
"""Label of pods that Kueue admits together, and annotation with their number."""
VOLCANO_JOB = "Job.batch.volcano.sh"


@dataclass(frozen=True, slots=True)
class PodGroups:
    """The PodGroups of an input.

    Attributes:
        minimum: by namespace and name how many of its pods must start together.
    """

    minimum: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, objects: Iterable[KubernetesObject]) -> PodGroups:
        """Return the PodGroups, all of which are valid. One that states no number lets its pods start one by one."""
        return cls({(obj.namespace, obj.name): obj.typed.spec.min_member or 1 for obj in objects})

    def joined(self, pod: Pod, annotations: Object | None) -> Pod:
        """Return a pod as a member of its PodGroup, if that is in the input, or of its group of Kueue."""
        notes = annotations or {}
        if not pod.gang and (group := pod.labels.get(KUEUE_GROUP)):
            return replace(pod, gang=group, gang_minimum=digits(notes.get(KUEUE_TOTAL)))
        names = (pod.gang, *(notes.get(key) for key in NAMED_BY))
        known = (name for name in names if isinstance(name, str) and (pod.namespace, name) in self.minimum)
        name = next(known, None)
        return pod if name is None else replace(pod, gang=name, gang_minimum=self.minimum[pod.namespace, name])


def as_member(obj: KubernetesObject, pod: Pod) -> Pod:
    """Return a pod of a custom resource as a member of its gang, or as one of the pods that it has at a time.

    A Volcano Job is a gang, unless its pods name another one. A Workflow has as many pods as its steps.
    """
    spec = obj.content.get("spec") or {}
    if obj.kind == "Workflow" and isinstance(spec.get("templates"), list):
        return replace(pod, at_once=workflow_parallelism(spec))
    if obj.kind != VOLCANO_JOB or pod.gang:
        return pod
    # Volcano's admission counts what each task needs at least where the Job does not say.
    tasks = spec.get("tasks")
    replicas = [
        (each, _number(each, "replicas", 1))
        for each in (tasks if isinstance(tasks, list) else [])
        if isinstance(each, dict)
    ]
    minimum = sum(_number(each, "minAvailable", count) for each, count in replicas)
    return replace(pod, gang=obj.name, gang_minimum=max(_number(spec, "minAvailable", minimum), 1))


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
