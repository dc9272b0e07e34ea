"""v1 Nodes and Pods to the model; `manifests.py` is the way back.

GPUs are decoded from the conventions of the open-simulator fork by ndr2084 (`alibabacloud.com/gpu-count` and
`gpu-milli` of a node's allocatable and of a pod's annotations, model in `alibabacloud.com/gpu-card-model`) and from the
resources of device plugins, which are whole devices; a pod's go only to nodes that offer them under the same name
(`gpu_resources`, `node_gpus`, `pod_gpus`). A field may hold what the API server would accept; everything else is an
error with the path of the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steersman.cluster import model
from steersman.cluster.model import SHOWN, limits_of
from steersman.cluster.objects import selectors
from steersman.cluster.objects.api.metadata import NodeImage, NodeObject, NodeSpec, NodeStatus, NodeTaint, ObjectMeta
from steersman.cluster.objects.api.pods import (
    MAX_PORT,
    NO_CONDITION,
    Affinity,
    Container,
    NodeAffinity,
    PodAffinity,
    PodObject,
    PodSpec,
    PodToleration,
)
from steersman.cluster.objects.fields import (
    FieldError,
    Object,
    converted,
    indexed,
    join,
    one_of,
    printable,
    required,
    unix_seconds,
)
from steersman.cluster.objects.gpus import (
    GPU_COUNT_KEY,
    GPU_MILLI_KEY,
    HAMI_MEMORY,
    HAMI_RESOURCES,
    GpuSharing,
    gpu_devices,
    gpu_models,
    hami_models,
    hami_register,
    node_gpus,
    pod_gpus,
    shared_gpus,
)
from steersman.cluster.objects.pod_features import exclusive_volumes, image_volumes, needed_features, normalized_image
from steersman.cluster.objects.requests import CPU, EPHEMERAL, MEMORY, pod_limits, pod_requests, units
from steersman.core.errors import InputError
from steersman.core.quantities import (
    MAX_AMOUNT,
    MAX_NODE_CPU_MILLI,
    MAX_NODE_MEMORY_BYTES,
    NANO,
    bytes_,
    cpu_milli,
    duration_seconds,
    plausible,
    whole,
)

CREATION_KEY = "alibabacloud.com/creation-time"
DELETION_KEY = "alibabacloud.com/deletion-time"
OWNER_KEY = "steersman.dev/owner"
"""Annotation for a pod's owner, "Kind/name": a pod whose ownerReference has no live owner is garbage-collected."""
ESTIMATE_KEY = "steersman.dev/expected-seconds"
"""Annotation for the run time of a pod in seconds, which counts before its activeDeadlineSeconds."""
GANG_KEY = "steersman.dev/gang"  # annotation for the gang of a pod, which counts before its label of `POD_GROUPS`
GANG_MINIMUM_KEY = "steersman.dev/gang-minimum"
"""Annotation for the number of pods of a gang that must start together; without it all of them."""
AT_ONCE_KEY = "steersman.dev/at-once"  # annotation for the number of pods of a pod's owner that exist at a time
RESUMABLE_KEY = "steersman.dev/resumable"
"""Annotation of a pod that may be evicted: `on-eviction`, it saves its work then, or a time between its checkpoints."""
ON_EVICTION = "on-eviction"
RESTART_KEY = "steersman.dev/restart-seconds"  # annotation for what such a pod needs before it goes on
REFUSALS_KEY = "steersman.dev/volume-refusals"
"""Annotation for why volumes of a pod refuse nodes: a JSON list of a reason and names of nodes, none for all."""
POD_GROUPS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
"""Labels for the PodGroup of a pod (kube-scheduler's plugin Coscheduling), the current one first."""
OLD_MINIMUM = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Label for the number of pods that older versions of Coscheduling let start together."""

MAX_SECONDS = 1e15
PLACEHOLDER_IMAGE = "steersman.dev/none"
"""Image of a pod whose source states none, since a container must name one. It is read back as no image."""

PRIORITY_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
COMPARISONS = ("Lt", "Gt")
"""Operators of tolerations that tolerate nothing: TaintTolerationComparisonOperators is off by default up to 1.37."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_NODE_RESOURCES = {CPU, MEMORY, "pods", EPHEMERAL, "storage", GPU_COUNT_KEY, GPU_MILLI_KEY, *model.PLUGIN_GPUS}
_POD_RESOURCES = {CPU, MEMORY, EPHEMERAL, *model.PLUGIN_GPUS}
_NO_SPEC, _NO_STATUS, _NO_AFFINITY = NodeSpec(), NodeStatus(), Affinity()
_NO_NODES, _NO_PODS = NodeAffinity(), PodAffinity()


def pod_from_object(
    obj: Object,
    *,
    file: str = "",
    where: str = "",
    path: str = "",
    namespaces: selectors.Namespaces | None = None,
    sharing: GpuSharing | None = None,
) -> model.Pod:
    """Return a v1 Pod of a parsed document, see `decode_pod`; its file and its place there are for errors."""
    try:
        return decode_pod(converted(obj, PodObject, path), path, namespaces=namespaces, sharing=sharing)
    except FieldError as error:
        raise InputError(file, where, error.field, error.problem) from None


def is_finished(obj: Object) -> bool:
    """Return whether a pod of a document has succeeded or failed, so that it holds and requests no resources."""
    status = obj.get("status")
    return isinstance(status, dict) and status.get("phase") in ("Succeeded", "Failed")


# Nodes


def decode_node(obj: NodeObject) -> model.Node:
    """Return a node. Allocatable is rounded down; where it is missing altogether, capacity counts.

    What it does not name the node does not offer, be it CPU, memory, storage or pods, as in kube-scheduler.
    """
    metadata, spec, status = obj.metadata, obj.spec or _NO_SPEC, obj.status or _NO_STATUS
    labels, capacity = metadata.labels or {}, status.capacity or {}
    where, allocatable = (
        ("status.allocatable", status.allocatable) if status.allocatable else ("status.capacity", capacity)
    )
    gpus = node_gpus(allocatable, capacity, labels, where)
    physical, memory_mib = hami_register(metadata.annotations or {})
    addresses = (each.address for each in status.addresses or ())
    return model.Node(
        name=printable(metadata.name, "metadata.name"),
        cpu_milli=_allocatable(cpu_milli, allocatable, CPU, where, MAX_NODE_CPU_MILLI),
        memory_bytes=_allocatable(bytes_, allocatable, MEMORY, where, MAX_NODE_MEMORY_BYTES),
        pods=_allocatable(whole, allocatable, "pods", where, model.UNLIMITED),
        ephemeral_bytes=_allocatable(bytes_, allocatable, EPHEMERAL, where, model.UNLIMITED),
        gpu_count=gpus.count,
        gpu_model=gpus.model,
        gpu_resources=gpus.resources,
        extended=tuple(sorted((*_node_extended(allocatable, where), *gpus.counted))),
        labels=labels,
        taints=tuple(_taint(taint, at) for taint, at in indexed(spec.taints, "spec.taints")),
        unschedulable=bool(spec.unschedulable),
        images=_node_images(status.images or ()),
        gpu_memory_mib=memory_mib,
        physical_gpus=physical,
        addresses=tuple(dict.fromkeys(each for each in addresses if each and each != metadata.name)),
        features=tuple(sorted({*(status.declared_features or ())})),
    )


def _allocatable(parse: Any, quantities: Object, key: str, path: str, most: int) -> int:
    """Return a quantity rounded down, 0 if it is missing. Above `most` it is an error."""
    quantity = quantities.get(key)
    if quantity is None:
        return 0
    try:
        return plausible(int(parse(quantity, round_up=False)), most, quantity)
    except ValueError as error:
        raise FieldError(join(path, key), str(error)) from None


def _node_extended(quantities: Object, path: str) -> Iterator[tuple[str, int]]:
    for key in quantities.keys() - _NODE_RESOURCES:
        if amount := _allocatable(whole, quantities, key, path, MAX_AMOUNT):
            yield key, amount


def _taint(taint: NodeTaint, path: str) -> model.Taint:
    effect = one_of(taint.effect, _EFFECTS, f"{path}.effect")
    return model.Taint(required(taint.key, f"{path}.key"), taint.value or "", effect)


def _node_images(images: Iterable[NodeImage]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes or 0)  # unlike a pod's, a node's names get no tag
    return sizes


# Pods


def decode_pod(
    obj: PodObject, path: str = "", *, namespaces: selectors.Namespaces | None = None, sharing: GpuSharing | None = None
) -> model.Pod:
    """Return a pod. Requests are rounded up. An annotation of ours that makes no sense does not count (`Pod.ignored`).

    Args:
        obj: the Pod, or any object with a pod's `metadata` and `spec`.
        path: path of `obj` in an object of a file, for errors ("spec.template").
        namespaces: labels of all namespaces, for selectors of pods in other namespaces; None: unknown.
        sharing: of GPUs by other schedulers than kube-scheduler; None: their shares are not read.
    """
    metadata, spec = obj.metadata, obj.spec
    meta_path, spec_path = join(path, "metadata"), join(path, "spec")
    namespace = printable(metadata.namespace or "default", f"{meta_path}.namespace")
    labels, annotations, notes = metadata.labels or {}, metadata.annotations or {}, f"{meta_path}.annotations"
    created, deleted = _life(annotations, notes)
    requests = decode_requests(obj, path, sharing=sharing)
    limits = pod_limits(spec, spec_path)
    models = gpu_models(annotations, notes, requests.gpu_count)
    if sharing is not None and requests.gpu_count:
        models = models or hami_models(annotations, sharing)
    of_pods = selectors.PodScope(namespace, labels, namespaces)
    ignored: list[str] = []
    return model.Pod(
        name=printable(metadata.name, f"{meta_path}.name"),
        pod_class=model.PodClass(requests, _constraints(spec, spec_path, of_pods, models)),
        namespace=namespace,
        labels=labels,
        priority=_priority(spec),
        scheduler_name=obj.scheduler,
        owner=_owner(metadata, meta_path, ignored),
        creation_time=created,
        deletion_time=deleted,
        gpu_devices=gpu_devices(annotations, notes, requests.gpu_count),
        cpu_limit_milli=units(limits.get(CPU, 0), 1000),
        memory_limit_bytes=units(limits.get(MEMORY, 0)),
        latency=limits_of(annotations),
        terminating=bool(metadata.deletion_timestamp),
        gated=bool(spec.scheduling_gates and not spec.node_name),
        estimated_seconds=_estimate(annotations, spec, ignored),
        gang=_gang(annotations, labels, ignored),
        gang_minimum=_count(annotations, GANG_MINIMUM_KEY, ignored) or digits(labels.get(OLD_MINIMUM)),
        at_once=_count(annotations, AT_ONCE_KEY, ignored) or None,
        nominated=nominated_node(obj),
        preempts=spec.preemption_policy != "Never",
        preempted=_is_preempted(obj),
        started=unix_seconds(obj.status.start_time),
        resumable=_resumable(annotations, ignored),
        restart_seconds=_restart(annotations, ignored),
        # Last: those above fill it.
        ignored=tuple(ignored),
    )


def nominated_node(obj: PodObject) -> str:
    """Return the node whose room kube-scheduler keeps for a pod that has none yet, "" for none."""
    return "" if obj.spec.node_name else obj.status.nominated_node_name or ""


def _is_preempted(obj: PodObject) -> bool:
    """Return whether a pod is being deleted to make room for another one, as kube-scheduler notes it."""
    if not obj.metadata.deletion_timestamp:
        return False
    noted = next((each for each in obj.status.conditions or () if each.type == "DisruptionTarget"), NO_CONDITION)
    return noted.status == "True" and noted.reason == "PreemptionByScheduler"


def decode_requests(obj: PodObject, path: str = "", *, sharing: GpuSharing | None = None) -> model.Requests:
    """Return the requests of a pod; arguments as of `decode_pod`. Raises FieldError: one is wrong."""
    spec, where = obj.spec, join(path, "spec")
    annotations, notes = obj.metadata.annotations or {}, join(join(path, "metadata"), "annotations")
    plain, nonzero = pod_requests(spec, where, obj.status)
    for key in (GPU_COUNT_KEY, GPU_MILLI_KEY):
        if key in plain:
            raise FieldError(f"{where}.containers", f"request {key}, which belongs into metadata.annotations")
    share = None if sharing is None else shared_gpus(spec, where, plain, annotations, notes, sharing)
    gpu_count, gpu_milli, gpu_resource = share[:3] if share else pod_gpus(plain, where, annotations, notes)
    if share and sharing:
        counted = {*HAMI_RESOURCES, *dict(sharing.cards)}
        plain = {name: amount for name, amount in plain.items() if name not in counted}
        plain |= {HAMI_MEMORY: share.too_large * NANO}  # which no node offers
    extended = sorted((name, units(plain[name])) for name in plain.keys() - _POD_RESOURCES if plain[name])
    return model.Requests(
        cpu_milli=units(plain.get(CPU, 0), 1000),
        memory_bytes=units(plain.get(MEMORY, 0)),
        ephemeral_bytes=units(plain.get(EPHEMERAL, 0)),
        gpu_count=gpu_count,
        gpu_milli=gpu_milli,
        gpu_resource=gpu_resource,
        extended=tuple(extended),
        cpu_nonzero_milli=units(nonzero.get(CPU, 0), 1000),
        memory_nonzero_bytes=units(nonzero.get(MEMORY, 0)),
    )


def _life(annotations: Object, path: str) -> tuple[float | None, float | None]:
    """Return when a pod was created and deleted by its annotations."""
    created, deleted = (_seconds(annotations, key, path) for key in (CREATION_KEY, DELETION_KEY))
    if created is not None and deleted is not None and deleted < created:
        raise FieldError(join(path, DELETION_KEY), f"{deleted:g} is before the creation time {created:g}")
    return created, deleted


def _estimate(annotations: Object, spec: PodSpec, ignored: list[str]) -> float | None:
    """Return the stated run time of a pod: that of its annotation, else the longest that it may run."""
    value = annotations.get(ESTIMATE_KEY)
    if value is not None and value != "":
        # As the plugin reads it: Go has no underscores in numbers.
        seconds = math.nan if "_" in str(value) else _number(value)
        if 0 < seconds < MAX_SECONDS:
            return seconds
        ignored.append(_senseless(ESTIMATE_KEY, value, "a number of seconds above 0, such as 3600"))
    return None if spec.active_deadline_seconds is None else float(spec.active_deadline_seconds)


def _resumable(annotations: Object, ignored: list[str]) -> float | None:
    """Return the seconds between checkpoints, 0: it saves its work when it is evicted; None: it is never evicted."""
    value = annotations.get(RESUMABLE_KEY)
    if value is None or value == "":
        return None
    if value == ON_EVICTION:
        return 0.0
    try:
        return duration_seconds(value if isinstance(value, str) else "")
    except ValueError:
        expected = f"{ON_EVICTION} or a time between checkpoints such as 10m"
        ignored.append(_senseless(RESUMABLE_KEY, value, expected))
        return None


def _restart(annotations: Object, ignored: list[str]) -> float:
    value = annotations.get(RESTART_KEY)
    if value is None or value == "":
        return model.RESTART_SECONDS
    seconds = math.nan if "_" in str(value) else _number(value)
    if 0 <= seconds < MAX_SECONDS:
        return seconds
    ignored.append(_senseless(RESTART_KEY, value, "a number of seconds, 0 or more, such as 120"))
    return model.RESTART_SECONDS


def _gang(annotations: Object, labels: Mapping[str, str], ignored: list[str]) -> str:
    stated = annotations.get(GANG_KEY)
    if stated is not None and stated != "":
        if isinstance(stated, str) and stated.isprintable():
            return stated
        ignored.append(_senseless(GANG_KEY, stated, "the name of a gang: printable text, in quotes if it is a number"))
    return pod_group_of(labels)


def pod_group_of(labels: Mapping[str, str]) -> str:
    """Return the gang that a pod's labels name, "" for none."""
    return next((labels[key] for key in POD_GROUPS if labels.get(key)), "")


def _count(annotations: Object, key: str, ignored: list[str]) -> int:
    """Return a number of pods, 0 for none."""
    value = annotations.get(key)
    if value is None or value == "":
        return 0
    if not digits(value):
        ignored.append(_senseless(key, value, "a number of pods, at least 1"))
    return digits(value)


def digits(value: object) -> int:
    """Return the number that a text of digits is, 0 for any other."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _senseless(key: str, value: object, expected: str) -> str:
    shown = f"{value[:SHOWN]!r}" if isinstance(value, str) else f"{value!r}"[:SHOWN]
    return f"annotation {key}: {shown} is not {expected}; ignored"


def _seconds(annotations: Object, key: str, path: str) -> float | None:
    """Return a time in seconds, as in the traces, or in RFC 3339, as ndr2084's simulator reads it (then Unix time)."""
    value = annotations.get(key)
    if value is None or value == "":
        return None
    seconds = unix_seconds(value) if isinstance(value, str) and "T" in value else _number(value)
    if seconds is None or not 0 <= seconds < MAX_SECONDS:
        raise FieldError(
            join(path, key), f"{value!r} is not a time; expected seconds, 0 or more, or 2024-05-01T12:00:00Z"
        )
    return seconds


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):  # YAML and JSON have integers that no float represents
        return math.nan


def _priority(spec: PodSpec) -> int:
    """Return the priority that admission gave a pod; before it, that of a class which every cluster has."""
    return PRIORITY_CLASSES.get(spec.priority_class_name or "", 0) if spec.priority is None else spec.priority


def _owner(metadata: ObjectMeta, path: str, ignored: list[str]) -> str:
    """Return the controller as "Kind/name", "" if none."""
    for owner, where in indexed(metadata.owner_references, f"{path}.ownerReferences"):
        if owner.controller:
            return f"{required(owner.kind, f'{where}.kind')}/{required(owner.name, f'{where}.name')}"
    stated = (metadata.annotations or {}).get(OWNER_KEY) or ""
    if isinstance(stated, str):
        return stated
    ignored.append(_senseless(OWNER_KEY, stated, "text such as Job/train"))
    return ""


def _constraints(spec: PodSpec, path: str, of_pods: selectors.PodScope, models: tuple[str, ...]) -> model.Constraints:
    affinity, where = spec.affinity or _NO_AFFINITY, f"{path}.affinity"
    node, node_path = affinity.node_affinity or _NO_NODES, f"{where}.nodeAffinity"
    near, near_path = affinity.pod_affinity or _NO_PODS, f"{where}.podAffinity"
    far, far_path = affinity.pod_anti_affinity or _NO_PODS, f"{where}.podAntiAffinity"
    return model.Constraints(
        gpu_models=models,
        node_name=spec.node_name or "",
        tolerations=tuple(_toleration(each, at) for each, at in indexed(spec.tolerations, f"{path}.tolerations")),
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        node_affinity=selectors.required_nodes(node, node_path),
        preferred_nodes=selectors.preferred_nodes(node, node_path),
        host_ports=_host_ports(spec, path),
        affinity=of_pods.required(near, near_path),
        anti_affinity=of_pods.required(far, far_path),
        preferred_affinity=of_pods.preferred(near, near_path),
        preferred_anti_affinity=of_pods.preferred(far, far_path),
        spread=of_pods.spread(spec.topology_spread_constraints, f"{path}.topologySpreadConstraints"),
        images=tuple(_images(spec)),
        image_volumes=tuple(image_volumes(spec)),
        exclusive_volumes=tuple(dict.fromkeys(exclusive_volumes(spec))),
        node_features=tuple(needed_features(spec)),
    )


def _toleration(stated: PodToleration, path: str) -> model.Toleration:
    operator = one_of(stated.operator, ("Equal", "Exists", *COMPARISONS), f"{path}.operator", "Equal")
    effect = one_of(stated.effect, ("", *_EFFECTS), f"{path}.effect")
    if not stated.key and operator != "Exists":
        raise FieldError(f"{path}.operator", "must be Exists where there is no key")
    if operator == "Exists" and stated.value:
        raise FieldError(f"{path}.value", "must be empty with Exists")
    return model.Toleration(stated.key or "", operator, stated.value or "", effect)


def _host_ports(spec: PodSpec, path: str) -> tuple[model.HostPort, ...]:
    """Return the host ports of containers and sidecars; on the host's network every container port is one."""
    ports = {
        port
        for key, containers in (("containers", spec.containers), ("initContainers", spec.init_containers))
        for container, where in indexed(containers, f"{path}.{key}")
        if container.ports and (key == "containers" or container.is_sidecar)
        for port in _ports(container, where, on_host=bool(spec.host_network))
    }
    return tuple(sorted(ports, key=lambda port: (port.port, port.protocol, port.ip)))


def _ports(container: Container, path: str, *, on_host: bool) -> Iterator[model.HostPort]:
    for stated, where in indexed(container.ports, f"{path}.ports"):
        number = stated.container_port
        if on_host and number is not None and not 1 <= number <= MAX_PORT:
            raise FieldError(f"{where}.containerPort", f"{number} is not a whole number from 1 to {MAX_PORT}")
        protocol = one_of(stated.protocol, _PROTOCOLS, f"{where}.protocol", "TCP")
        if port := stated.host_port or (number if on_host else 0):
            yield model.HostPort(port, protocol, stated.host_ip or "0.0.0.0")


def _images(spec: PodSpec) -> Iterator[str]:
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        if container.image and container.image != PLACEHOLDER_IMAGE:
            yield normalized_image(container.image)
