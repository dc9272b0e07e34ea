"""Gangs by objects: PodGroups of schedulers. Those of Volcano's Jobs are in the table of custom resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import digits
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KIND = "PodGroup"
NAMED_BY = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name")
"""Annotations of pods with the name of their PodGroup: Volcano's, and KAI's."""
KUEUE_GROUP, KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
"""Label of pods that Kueue admits together, and annotation with their number."""

KOORDINATOR_GANG, KOORDINATOR_MINIMUM = (
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
)
"""Annotations of pods with the name of their gang in Koordinator, and how many must start together."""


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
        specs = (((obj.namespace, obj.name), obj.typed.spec) for obj in objects)
        return cls({key: spec.min_member or spec.scheduling_policy.gang.min_count or 1 for key, spec in specs})

    def has_group_of(self, stated: PodObject, namespace: str) -> bool:
        """Return whether the input has the PodGroup that `spec.schedulingGroup` of a pod names."""
        return (namespace, _group_name(stated)) in self.minimum

    def joined(self, pod: Pod, stated: PodObject) -> Pod:
        """Return a pod as a member of its PodGroup, if that is in the input, or of its group."""
        notes = stated.metadata.annotations or {}
        if not pod.gang and isinstance(gang := notes.get(KOORDINATOR_GANG), str):
            return replace(pod, gang=gang, gang_minimum=digits(notes.get(KOORDINATOR_MINIMUM)))
        if not pod.gang and (group := pod.labels.get(KUEUE_GROUP)):
            return replace(pod, gang=group, gang_minimum=digits(notes.get(KUEUE_TOTAL)))
        names = (pod.gang, _group_name(stated), *(notes.get(key) for key in NAMED_BY))
        groups = (name for name in names if isinstance(name, str) and (pod.namespace, name) in self.minimum)
        name = next(groups, None)
        return pod if name is None else replace(pod, gang=name, gang_minimum=self.minimum[pod.namespace, name])


def _group_name(stated: PodObject) -> str:
    group = stated.spec.scheduling_group
    return (group.pod_group_name if group is not None else None) or ""
