"""The pods of an input, each once: those it holds, and those that its controllers want and do not have yet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from msgspec import structs

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Node, Pod, PodSelector
from steersman.cluster.objects import gpus
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import decode_pod
from steersman.cluster.objects.fields import FieldError, converted
from steersman.cluster.objects.replicas import partial_pod
from steersman.cluster.objects.selectors import Namespaces
from steersman.core.counting import first_names
from steersman.core.errors import InputError
from steersman.workloads.formats.kubernetes.admission import Admission, named_by
from steersman.workloads.formats.kubernetes.claims import PodClaims, PodVolumes
from steersman.workloads.formats.kubernetes.controllers import (
    CONTROLLERS,
    Controllers,
    Key,
    PodGroups,
    controller_of,
    created,
    is_created,
    is_terminating,
    key_of,
)
from steersman.workloads.formats.kubernetes.custom_resources import CustomResources, Part
from steersman.workloads.formats.kubernetes.replicas import (
    Maker,
    Members,
    completion_index,
    job_deadline,
    numbered_pods,
    replica_name,
)
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject, resource_table


def unmatched_selectors(pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a warning for each selector of required terms that selects none of the pods."""
    users: dict[tuple[str, PodSelector], list[Pod]] = {}
    for pod in {id(pod.pod_class): pod for pod in pods}.values():
        of = pod.constraints
        for what, terms in (
            ("pod affinity", of.affinity),
            ("pod anti-affinity", of.anti_affinity),
            ("topology spread (DoNotSchedule)", tuple(each for each in of.spread if each.hard)),
        ):
            for term in terms:
                users.setdefault((what, term.selector), []).append(pod)
    examples = {(pod.namespace, *pod.labels.items()): pod for pod in pods if users}.values()
    for (what, selector), using in users.items():
        # Most pods are selected by their own terms, which is soon found out.
        if not any(_selects(selector, pod) for some in (using, examples) for pod in some):
            stated = ((each.key, each.operator, " or ".join(each.values)) for each in selector.requirements or ())
            selected = ", ".join(" ".join(filter(None, each)) for each in stated) or "no labels"
            more = f" and {len(using) - 1} more" if len(using) > 1 else ""
            yield f"required {what} of {using[0].name}{more} selects no pod of the input: {selected}"


def _selects(selector: PodSelector, pod: Pod) -> bool:
    if selector.requirements is None or not all(holds(each, pod.labels) for each in selector.requirements):
        return False
    return selector.namespaces is None or pod.namespace in selector.namespaces or selector.excludes_namespaces


def sharing_warnings(objects: Sequence[KubernetesObject], sharing: gpus.GpuSharing) -> Iterator[str]:
    """Yield what is assumed of GPUs that the pods of an input share."""
    reservations = sum(each.kind == "Pod" and gpus.is_reservation(each.typed.metadata) for each in objects)
    if reservations:
        yield (
            f"pods with which KAI reserves shared GPUs are left out ({reservations}): the pods that share these GPUs "
            "count"
        )
    for each in objects:
        if each.kind in CONTROLLERS and (key := gpus.misplaced_annotation(each.typed.metadata, each.pod.metadata)):
            yield (
                f"{each.kind} {each.name} has the annotation {key}, which its pods do not get: it belongs into "
                "spec.template.metadata"
            )
    pods = [each.pod for each in objects if each.kind in ("Pod", *CONTROLLERS)]
    unequal = sum(gpus.has_unequal_shares(each.spec, sharing) for each in pods)
    if unequal:
        yield f"containers of a pod have unequal shares of GPUs: the largest counts for each ({unequal} of them)"
    if len(sharing.memory_mib) == 1 or not any(map(gpus.requests_memory, pods)):
        return
    if sharing.memory_mib:
        sizes = " and ".join(map(str, sharing.memory_mib))
        yield (
            f"pods request memory of GPUs, and GPUs have {sizes} MiB: a request counts as a share of the smallest that "
            "has as much"
        )
    else:
        yield (
            "pods request memory of GPUs, and no node says how much its GPUs have: such pods count as if they "
            f"requested whole ones; the label {gpus.MEMORY_LABEL} says it"
        )


MIRROR = "kubernetes.io/config.mirror"  # annotation of a mirror pod: a static pod that its kubelet runs
MADE = (*CONTROLLERS, "Pod", "CronJob")  # kinds of objects that custom resources make
REVISION = "deployment.kubernetes.io/revision"


class PartlyReadError(InputError):
    """An invalid pod whose valid parts count: it runs, whichever scheduler bound it."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """The pods of an input, each once."""

    pods: tuple[Pod, ...]  # in order of arrival
    # By (namespace, name) of a pod its topmost controller (a Deployment, not its ReplicaSet); pods without a
    # controller are not in it
    owners: Mapping[tuple[str, str], Key]
    absent: int  # number of pods that their controller has yet to create
    finished: int  # number of Pods of the input that are left out because they have finished
    odd_phases: tuple[tuple[str, int], ...]  # phases other than Pending and Running, and the number of pods in each
    suspended: int = 0  # number of pods that suspended Jobs and the like would create
    # Kinds that are not read otherwise, and the number of pods of templates found in each
    templates: tuple[tuple[str, int], ...] = ()
    # Errors of Pods and controllers that are left out, or read in part, because they are invalid
    problems: tuple[InputError, ...] = ()
    warnings: tuple[str, ...] = ()  # about classes that pods name and the input does not hold


@dataclass(slots=True)
class Expansion:
    """Expands the objects of an input."""

    objects: Sequence[KubernetesObject]  # by their keys, in the order of the input
    nodes: Sequence[Node]  # nodes that a DaemonSet is expanded over
    admission: Admission  # what the API server adds to pods
    namespaces: Namespaces | None  # labels of the namespaces, None: unknown
    autoscalers: Mapping[Key, tuple[int, int]]  # least and most replicas of controllers that are scaled
    resources: CustomResources  # what custom resources make
    groups: PodGroups  # PodGroups of pods
    claims: PodClaims  # devices that pods request by claims
    volumes: PodVolumes  # nodes that volumes of pods refuse
    _controllers: Controllers = field(init=False)
    _there: dict[Key, KubernetesObject] = field(init=False)
    _owning: set[Key | None] = field(init=False)
    _stored: set[str] = field(init=False)
    _sharing: gpus.GpuSharing = field(init=False)
    _pods: dict[int, Pod] = field(default_factory=dict)
    _members: dict[Key, Members] = field(default_factory=dict)
    _owners: dict[tuple[str, str], Key] = field(default_factory=dict)
    _suspended: int = 0
    _odd_phases: Counter[str] = field(default_factory=Counter)
    _templates: Counter[str] = field(default_factory=Counter)
    _problems: list[InputError] = field(default_factory=list)
    _unmodelled_notes: dict[str, dict[str, None]] = field(default_factory=dict)
    _numbers: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._controllers = Controllers(self.objects)
        self._there = {key_of(obj): obj for obj in self.objects}
        has_custom = any(obj.kind not in KINDS for obj in self.objects)
        made = [obj for obj in self.objects if has_custom and (obj.kind in MADE or obj.kind not in KINDS)]
        self._owning = {controller_of(obj) for obj in made} - {None}
        self._stored = {obj.namespace for obj in self.objects if obj.kind == "Pod" and is_created(obj)}
        self._sharing = gpus.sharing_of(self.nodes)

    def expand(self) -> Expanded:
        """Return the Pods that have not finished and those that controllers want and do not have.

        They are in order of creation if objects state it, else in the order of the input; pods that have yet to be
        created come last.
        """
        self._read_pods()
        missing = self._missing()
        entries: list[tuple[float, Pod]] = []
        for i, obj in enumerate(self.objects):
            pods = [self._pods[i]] if i in self._pods else missing.get(i, [])
            # Pods that a controller has yet to create come after all existing ones.
            has = self._members.get(key_of(obj), Members())
            moment = created(obj) if pods and not (has.pods or has.elsewhere) else None
            entries += ((math.inf if moment is None else moment, pod) for pod in pods)
        entries.sort(key=lambda entry: entry[0])
        notes = sorted(self._unmodelled_notes.items())
        return Expanded(
            pods=tuple(pod for _, pod in entries),
            owners=self._owners,
            absent=sum(not pod.gated for made in missing.values() for pod in made),
            finished=sum(each.kind == "Pod" and each.pod.finished for each in self.objects),
            odd_phases=tuple(sorted(self._odd_phases.items())),
            suspended=self._suspended,
            templates=tuple(sorted(self._templates.items())),
            problems=tuple(self._problems),
            warnings=(
                *self.admission.warnings(),
                *sharing_warnings(self.objects, self._sharing),
                *(f"annotation {key} is not modelled and has no effect ({named_by([*users])})" for key, users in notes),
                *unmatched_selectors([pod for _, pod in entries]),
                *self._ended_warnings(),
            ),
        )

    def _read_pods(self) -> None:
        """Decode the Pods that have not finished and find their controllers."""
        for i, obj in enumerate(self.objects):
            if obj.kind != "Pod" or gpus.is_reservation(obj.pod.metadata):
                continue
            above = self._controllers.owners(obj)
            maker = self._controllers.maker(above)
            has = self._members.setdefault(maker, Members()) if maker is not None else Members()
            succeeded = obj.pod.status.phase == "Succeeded"
            has.succeeded += succeeded
            index = completion_index(obj.pod)
            if index is not None and not is_terminating(obj) and (succeeded or not obj.pod.finished):
                has.indices.add(index)
            if obj.pod.finished:
                continue
            pod = self._pod(obj)
            if pod is None:
                continue
            if pod.estimated_seconds is None and maker is not None and maker[0] == "Job":
                pod = replace(pod, estimated_seconds=job_deadline(self._there[maker].typed.spec))
            self._pods[i] = pod
            # A static pod is created by its node alone.
            self._owners.update(((pod.namespace, pod.name), key) for key in above[-1:] if key[0] != "Node")
            (has.leaving if pod.terminating else has.pods).append(pod)
            if (phase := obj.pod.status.phase) not in (None, "", "Pending", "Running"):
                self._odd_phases[phase[:40]] += 1

    def _pod(self, obj: KubernetesObject) -> Pod | None:
        """Return a Pod; of an invalid one that runs what it takes from its node; None: it is left out."""
        try:
            pod = self._decode(obj, converted(obj.content, PodObject), "")
        except FieldError as error:
            part = _running_part(obj)
            kind = InputError if part is None else PartlyReadError
            self._problems.append(kind(obj.document.file, obj.where, error.field, error.problem))
            return part
        if not pod.owner and MIRROR in (obj.pod.metadata.annotations or {}):  # a static pod, which its node owns
            return replace(pod, owner=f"Node/{pod.constraints.node_name}")
        return pod

    def _makes_pods(self, obj: KubernetesObject) -> bool:
        """Return whether a custom resource has yet to make its pods; else those in the input count themselves."""
        if obj.kind in KINDS or key_of(obj) in self._owning:
            return False
        return not self._has_ended(obj)

    def _has_ended(self, obj: KubernetesObject) -> bool:
        """Return whether a custom resource without pods is taken to have ended: a cluster's other pods are there."""
        return is_created(obj) and obj.namespace in self._stored

    def _ended_warnings(self) -> Iterator[str]:
        others = (obj for obj in self.objects if obj.kind not in KINDS and key_of(obj) not in self._owning)
        ended = [obj for obj in others if self._has_ended(obj) and self._has_parts(obj)]
        if ended:
            names = first_names([f"{obj.kind.partition('.')[0]} {obj.name}" for obj in ended])
            yield f"no Pod belongs to {names}, and others of the namespace exist: taken to have ended"

    def _has_parts(self, obj: KubernetesObject) -> bool:
        with suppress(InputError, FieldError):
            return any(True for _ in self.resources.parts(obj))
        return False

    def _missing(self) -> dict[int, list[Pod]]:
        """Return the pods that each controller makes, by its index; a Deployment's come after its ReplicaSets'."""
        made: dict[int, list[Pod]] = {}
        indices = [i for i, obj in enumerate(self.objects) if obj.kind in CONTROLLERS or self._makes_pods(obj)]
        for i in sorted(indices, key=lambda i: self.objects[i].kind == "Deployment"):
            obj = self.objects[i]
            has = self._members.setdefault(key_of(obj), Members())
            above = self._controllers.owners(obj)
            try:
                made[i] = list(self._pods_of(obj, has))
            except InputError as problem:
                self._problems.append(problem)
                continue
            self._owners.update(((pod.namespace, pod.name), [key_of(obj), *above][-1]) for pod in made[i])
            # No other controller takes the names.
            self._there.update((("Pod", pod.namespace, pod.name), obj) for pod in made[i])
            if obj.kind == "ReplicaSet" and above and above[0] in self._there:
                deployment = self._members.setdefault(above[0], Members())
                deployment.elsewhere += len(has.pods) + len(made[i])
                if deployment.newest is None or _revision(obj) >= _revision(deployment.newest):
                    deployment.newest = obj
        return made

    def _pods_of(self, obj: KubernetesObject, has: Members) -> Iterator[Pod]:
        if not obj.name:
            raise obj.error("metadata.name", "is missing")
        replicas = self.autoscalers.get(key_of(obj))
        try:
            if obj.kind in CONTROLLERS:
                yield from self._pods_of_controller(obj, has, replicas)
            elif not is_terminating(obj):
                for pod in self._pods_of_resource(obj, replicas):
                    self._templates[obj.kind] += 1
                    yield replace(pod, owner=f"{obj.kind.partition('.')[0]}/{obj.name}")
        except FieldError as error:
            raise obj.error(error.field, error.problem) from None

    def _pods_of_controller(
        self, obj: KubernetesObject, has: Members, replicas: tuple[int, int] | None
    ) -> Iterator[Pod]:
        """Yield the pods that a controller of Kubernetes has yet to make. Raises FieldError."""

        def decode(template: PodObject, admitted: bool) -> Pod:
            return self._decode(obj, template, "spec.template", admitted=admitted)

        def missing(controller: KubernetesObject) -> Iterator[Pod]:
            return Maker(controller, has, self.nodes, self._there, decode, replicas).missing()

        if obj.kind == "Job" and obj.typed.spec.suspend:
            resumed = {**obj.content, "spec": {**obj.content["spec"], "suspend": False}}
            self._suspended += sum(1 for _ in missing(replace(obj, content=resumed)))
        yield from missing(obj)

    def _pods_of_resource(self, obj: KubernetesObject, replicas: tuple[int, int] | None) -> Iterator[Pod]:
        parts = list(self.resources.parts(obj))
        replicas = replicas if len(parts) == 1 else None
        for part in parts:
            pods = self._pods_of_part(obj, part, replicas)
            if part.is_suspended:
                self._suspended += sum(1 for _ in pods)
            else:
                yield from pods

    def _pods_of_part(self, obj: KubernetesObject, part: Part, replicas: tuple[int, int] | None) -> Iterator[Pod]:
        if part.kind == "Pod":
            stated = converted(part.template, PodObject, part.path)
            named = structs.replace(stated.metadata, name=obj.name, namespace=obj.namespace)
            members = ((self._free_name(obj.namespace, name), labels) for name, labels in part.scaled(replicas))
            template = structs.replace(stated, metadata=named)
            pods = numbered_pods(template, members, lambda pod: self._decode(obj, pod, part.path))
            yield from pods
            return
        for child in part.objects(obj):
            if child.kind not in CONTROLLERS:
                yield from self._pods_of_resource(child, None)
                continue
            try:
                yield from self._pods_of_controller(child, Members(), replicas)
            except FieldError as error:
                raise FieldError(part.path + error.field.removeprefix("spec.template"), error.problem) from None

    def _free_name(self, namespace: str, prefix: str) -> str:
        """Return a name that no Pod of the input has; one that is taken, or ends in a hyphen, gets a number."""
        if not prefix.endswith("-") and ("Pod", namespace, prefix) not in self._there:
            return prefix
        prefix = prefix.removesuffix("-")
        while True:
            self._numbers[namespace, prefix] += 1
            name = replica_name(prefix, self._numbers[namespace, prefix])
            if ("Pod", namespace, name) not in self._there:
                return name

    def _decode(self, obj: KubernetesObject, pod: PodObject, path: str, *, admitted: bool = True) -> Pod:
        for key in set(pod.metadata.annotations or ()).intersection(resource_table().unmodelled_annotations):
            self._unmodelled_notes.setdefault(key, {})[f"{obj.kind} {obj.name}"] = None
        if admitted:
            pod = self.admission.admitted(pod, path, obj)
        decoded = decode_pod(pod, path, namespaces=self.namespaces, sharing=self._sharing)
        decoded = self.volumes.restricted(self.claims.requesting(decoded, pod), pod, obj)
        return self.groups.joined(decoded, pod)


def _running_part(obj: KubernetesObject) -> Pod | None:
    """Return what an invalid pod takes from the node where it runs; None: it does not run."""
    if not obj.pod.node:
        return None
    try:
        pod = partial_pod({**obj.content, "metadata": {**obj.metadata, "name": obj.name, "namespace": obj.namespace}})
    except InputError:  # its name
        return None
    return pod.bound(obj.pod.node, pod.gpu_devices)


def _revision(replica_set: KubernetesObject) -> int:
    stated = str((replica_set.typed.metadata.annotations or {}).get(REVISION))
    return int(stated) if stated.isascii() and stated.isdigit() else 0
