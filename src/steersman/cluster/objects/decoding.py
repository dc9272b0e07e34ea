"""Decode Kubernetes v1 Node and Pod objects (plain dicts); `manifests.py` is the way back.

GPUs are decoded from the conventions of the open-simulator fork by ndr2084 (`alibabacloud.com/gpu-count` and
`gpu-milli` of a node's allocatable and of a pod's annotations, model in `alibabacloud.com/gpu-card-model`) and from the
resources of device plugins, which are whole devices; a pod's go only to nodes that offer them under the same name
(`gpu_resources`, `node_gpus`). A field may hold what the API server would accept; everything else is an error with the
path of the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from steersman.cluster.gpu_resources import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import (
    GPU_MILLI,
    UNLIMITED,
    Constraints,
    HostPort,
    Node,
    Pod,
    PodClass,
    Requests,
    Taint,
    Toleration,
)
from steersman.cluster.objects import selectors
from steersman.cluster.objects.fields import (
    FieldError,
    Object,
    boolean,
    choice,
    integer,
    items,
    join,
    mapping,
    name,
    required_text,
    text,
    text_map,
    texts,
)
from steersman.cluster.objects.gpu_shares import (
    HAMI_MEMORY,
    HAMI_RESOURCES,
    GpuShare,
    GpuSharing,
    gpu_mem_share,
    hami_register,
    hami_share,
    kai_share,
)
from steersman.cluster.objects.latency_limits import limits_of
from steersman.cluster.objects.node_gpus import GPU_MILLI_KEY, node_gpus
from steersman.cluster.objects.pod_features import (
    exclusive_volumes,
    image_volumes,
    needed_features,
    normalized_image,
)
from steersman.cluster.objects.requests import CPU, EPHEMERAL, MEMORY, pod_limits, pod_requests, units
from steersman.core.errors import InputError
from steersman.core.quantities import (
    MAX_AMOUNT,
    MAX_NODE_CPU_MILLI,
    MAX_NODE_GPUS,
    MAX_NODE_MEMORY_BYTES,
    MAX_POD_GPUS,
    NANO,
    bytes_,
    cpu_milli,
    plausible,
    whole,
)

GPU_COUNT_KEY = SHARED_GPUS
GPU_INDEX_KEY = "alibabacloud.com/gpu-index"
CREATION_KEY = "alibabacloud.com/creation-time"
DELETION_KEY = "alibabacloud.com/deletion-time"
OWNER_KEY = "steersman.dev/owner"
"""Annotation for a pod's owner, "Kind/name": a pod whose ownerReference has no live owner is garbage-collected."""

MAX_SECONDS = 1e15
PLACEHOLDER_IMAGE = "steersman.dev/none"
"""Image of a pod whose source states none, since a container must name one. It is read back as no image."""

DEFAULT_SCHEDULER = "default-scheduler"
PRIORITY_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
COMPARISONS = ("Lt", "Gt")
"""Operators of tolerations that tolerate nothing: TaintTolerationComparisonOperators is off by default in 1.36."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_INT32 = (1 << 31) - 1


def node_from_object(obj: Object, *, file: str = "", where: str = "") -> Node:
    """Return a v1 Node. Allocatable is rounded down; where it is missing altogether, capacity counts.

    What it does not name the node does not offer, be it CPU, memory, storage or pods, as in kube-scheduler.

    Raises:
        InputError: with `file`, `where` and the path of the wrong field.
    """
    try:
        return _node(obj)
    except FieldError as error:
        raise InputError(file, where, error.field, error.problem) from None


def pod_from_object(
    obj: Object,
    *,
    file: str = "",
    where: str = "",
    path: str = "",
    namespaces: selectors.Namespaces | None = None,
    sharing: GpuSharing | None = None,
) -> Pod:
    """Return a v1 Pod. Requests are rounded up.

    Args:
        obj: the Pod, or any object with a pod's `metadata` and `spec` (a pod template with a name put in).
        file: its file, for errors.
        where: its place there, for errors.
        path: path of `obj` in the file's object, for errors ("spec.template").
        namespaces: labels of all namespaces, for selectors of pods in other namespaces; None: unknown.
        sharing: of GPUs by other schedulers than kube-scheduler; None: their shares are not read.

    Raises:
        InputError: with `file`, `where` and the path of the wrong field.
    """
    try:
        return _pod(obj, path, namespaces, sharing)
    except FieldError as error:
        raise InputError(file, where, error.field, error.problem) from None


def is_finished(obj: Object) -> bool:
    """Return whether a pod has succeeded or failed, so that it holds and requests no resources."""
    status = obj.get("status")
    return isinstance(status, dict) and status.get("phase") in ("Succeeded", "Failed")


# Nodes


def _node(obj: Object) -> Node:
    metadata, spec, status = (mapping(obj, key, "") for key in ("metadata", "spec", "status"))
    labels = text_map(metadata, "labels", "metadata")
    where = "status.allocatable"
    allocatable = mapping(status, "allocatable", "status")
    capacity = mapping(status, "capacity", "status")
    if not allocatable:
        allocatable, where = capacity, "status.capacity"
    gpus = node_gpus(allocatable, capacity, labels, where)
    physical, memory_mib = hami_register(mapping(metadata, "annotations", "metadata"))
    return Node(
        name=name(metadata, "name", "metadata"),
        cpu_milli=_allocatable(cpu_milli, allocatable, CPU, where, MAX_NODE_CPU_MILLI),
        memory_bytes=_allocatable(bytes_, allocatable, MEMORY, where, MAX_NODE_MEMORY_BYTES),
        pods=_allocatable(whole, allocatable, "pods", where, UNLIMITED),
        ephemeral_bytes=_allocatable(bytes_, allocatable, EPHEMERAL, where, UNLIMITED),
        gpu_count=gpus.count,
        gpu_model=gpus.model,
        gpu_resources=gpus.resources,
        extended=tuple(sorted((*_node_extended(allocatable, where), *gpus.counted))),
        labels=labels,
        taints=tuple(_taints(spec)),
        unschedulable=boolean(spec, "unschedulable", "spec"),
        images=_node_images(status),
        gpu_memory_mib=memory_mib,
        physical_gpus=physical,
        addresses=_addresses(status, text(metadata, "name", "metadata")),
        features=tuple(sorted({*texts(status, "declaredFeatures", "status")})),
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


def _node_extended(quantities: Object, path: str) -> tuple[tuple[str, int], ...]:
    known = {CPU, MEMORY, "pods", EPHEMERAL, "storage", GPU_COUNT_KEY, GPU_MILLI_KEY, *PLUGIN_GPUS}
    result = {key: _allocatable(whole, quantities, key, path, MAX_AMOUNT) for key in quantities if key not in known}
    return tuple((key, amount) for key, amount in result.items() if amount)


def _addresses(status: Object, name: str) -> tuple[str, ...]:
    stated = (text(entry, "address", where) for entry, where in items(status, "addresses", "status"))
    return tuple(dict.fromkeys(address for address in stated if address and address != name))


def _taints(spec: Object) -> Iterator[Taint]:
    for entry, where in items(spec, "taints", "spec"):
        effect = choice(entry, "effect", where, _EFFECTS)
        yield Taint(required_text(entry, "key", where), text(entry, "value", where), effect)


def _node_images(status: Object) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for entry, where in items(status, "images", "status"):
        size = integer(entry, "sizeBytes", where, 0, (1 << 63) - 1, 0)
        for stated in texts(entry, "names", where):
            sizes.setdefault(stated, size)  # unlike a pod's, a node's names get no tag
    return sizes


# Pods


def _pod(
    obj: Object,
    path: str,
    namespaces: selectors.Namespaces | None,
    sharing: GpuSharing | None,
) -> Pod:
    metadata, meta_path = mapping(obj, "metadata", path), join(path, "metadata")
    spec, spec_path = mapping(obj, "spec", path), join(path, "spec")
    namespace = name(metadata, "namespace", meta_path) if metadata.get("namespace") else "default"
    labels = text_map(metadata, "labels", meta_path)
    annotations = mapping(metadata, "annotations", meta_path)
    notes = join(meta_path, "annotations")
    created, deleted = (_seconds(annotations, key, notes) for key in (CREATION_KEY, DELETION_KEY))
    if created is not None and deleted is not None and deleted < created:
        raise FieldError(join(notes, DELETION_KEY), f"{deleted:g} is before the creation time {created:g}")
    requests = _requests(spec, spec_path, mapping(obj, "status", path), annotations, notes, sharing)
    limits = pod_limits(spec, spec_path)
    models = _models(annotations, notes, requests)
    return Pod(
        name=name(metadata, "name", meta_path),
        pod_class=PodClass(requests, _constraints(spec, spec_path, namespace, labels, models, namespaces)),
        namespace=namespace,
        labels=labels,
        priority=_priority(spec, spec_path),
        scheduler_name=text(spec, "schedulerName", spec_path) or DEFAULT_SCHEDULER,
        owner=_owner(metadata, meta_path, annotations, notes),
        creation_time=created,
        deletion_time=deleted,
        gpu_devices=_gpu_devices(annotations, notes, requests.gpu_count),
        cpu_limit_milli=units(limits.get(CPU, 0), 1000),
        memory_limit_bytes=units(limits.get(MEMORY, 0)),
        latency=limits_of(annotations),
        terminating=bool(metadata.get("deletionTimestamp")),
    )


def _requests(
    spec: Object, path: str, status: Object, annotations: Object, notes: str, sharing: GpuSharing | None
) -> Requests:
    plain, nonzero = pod_requests(spec, path, status)
    for key in (GPU_COUNT_KEY, GPU_MILLI_KEY):
        if key in plain:
            raise FieldError(join(path, "containers"), f"request {key}, which belongs into metadata.annotations")
    share = None if sharing is None else _share(spec, path, plain, annotations, notes, sharing)
    gpu_count, gpu_milli, gpu_resource = share[:3] if share else _pod_gpus(plain, path, annotations, notes)
    known = {CPU, MEMORY, EPHEMERAL, *PLUGIN_GPUS}
    if share:
        plain = {name: amount for name, amount in plain.items() if name not in HAMI_RESOURCES}
        plain |= {HAMI_MEMORY: share.too_large * NANO}  # which no node offers
    return Requests(
        cpu_milli=units(plain.get(CPU, 0), 1000),
        memory_bytes=units(plain.get(MEMORY, 0)),
        ephemeral_bytes=units(plain.get(EPHEMERAL, 0)),
        gpu_count=gpu_count,
        gpu_milli=gpu_milli,
        gpu_resource=gpu_resource,
        extended=tuple(sorted((name, units(amount)) for name, amount in plain.items() if amount and name not in known)),
        cpu_nonzero_milli=units(nonzero.get(CPU, 0), 1000),
        memory_nonzero_bytes=units(nonzero.get(MEMORY, 0)),
    )


def _share(
    spec: Object, path: str, plain: Mapping[str, int], annotations: Object, notes: str, sharing: GpuSharing
) -> GpuShare | None:
    """Return the share of GPUs that a pod requests of a scheduler other than kube-scheduler; None: none."""
    share = kai_share(annotations, notes, sharing)
    if share is not None:
        if whole := next((name for name in PLUGIN_GPUS if plain.get(name)), ""):
            raise FieldError(join(path, "containers"), f"request {whole}, and annotations a share of a GPU")
        return share
    if annotations.get(GPU_MILLI_KEY) is None:
        count = _annotated(annotations, GPU_COUNT_KEY, notes, MAX_POD_GPUS, "devices")
        share = gpu_mem_share(annotations, notes, count or 0, sharing)
    return share or hami_share(spec, path, sharing)


def _pod_gpus(plain: Mapping[str, int], path: str, annotations: Object, notes: str) -> tuple[int, int, str]:
    """Return devices, milli of each, and resource name that a pod requests, by device plugin or by annotations."""
    names = [key for key in PLUGIN_GPUS if plain.get(key)]
    plugin = [units(plain[key]) for key in names]
    if len(names) > 1:
        problem = f"request both {' and '.join(names)}; a pod's GPUs must be of one kind"
        raise FieldError(join(path, "containers"), problem)
    if plugin and plugin[0] > MAX_POD_GPUS:
        problem = f"request {plugin[0]} GPUs, more than any real pod ({MAX_POD_GPUS} at most)"
        raise FieldError(join(path, "containers"), problem)
    count = _annotated(annotations, GPU_COUNT_KEY, notes, MAX_POD_GPUS, "devices")
    milli = _annotated(annotations, GPU_MILLI_KEY, notes, GPU_MILLI, f"of each device, 0 to {GPU_MILLI}")
    if milli and not count:
        raise FieldError(
            join(notes, GPU_COUNT_KEY), f"is missing or 0 where {GPU_MILLI_KEY} is {milli}; give the number of devices"
        )
    if count and milli == 0:
        raise FieldError(join(notes, GPU_MILLI_KEY), f"is 0 of each of {count} devices; expected 1 to {GPU_MILLI}")
    if count and milli is None:
        milli = GPU_MILLI
    if plugin:
        if count and (count, milli) != (plugin[0], GPU_MILLI):
            raise FieldError(
                join(notes, GPU_COUNT_KEY), f"{count} contradicts the {plugin[0]} devices that the containers request"
            )
        return plugin[0], GPU_MILLI, names[0]
    return (count, milli or 0, SHARED_GPUS) if count else (0, 0, "")


def _annotated(annotations: Object, key: str, path: str, limit: int, unit: str) -> int | None:
    """Return a whole number in an annotation, with or without quotes."""
    value = annotations.get(key)
    if value is None:
        return None
    try:
        amount = whole(value)
        if amount != whole(value, round_up=False):
            raise ValueError(f"{value!r} is not a whole number")
    except ValueError as error:
        raise FieldError(join(path, key), str(error)) from None
    if amount > limit:
        raise FieldError(
            join(path, key),
            f"{amount} is too much; it is {unit}" + ("" if limit == GPU_MILLI else f", {limit} at most"),
        )
    return amount


def _models(annotations: Object, path: str, requests: Requests) -> tuple[str, ...]:
    stated = text(annotations, GPU_MODEL_KEY, path).strip()
    if not stated or not requests.gpu_count:
        return ()
    models = tuple(stated.split("|"))
    if any(not model.strip() for model in models):
        raise FieldError(join(path, GPU_MODEL_KEY), f"{stated!r} has an empty model; write models as A|B")
    return models


def _gpu_devices(annotations: Object, path: str, count: int) -> tuple[int, ...]:
    stated = text(annotations, GPU_INDEX_KEY, path)
    try:
        return device_numbers(stated, count)
    except ValueError as error:
        raise FieldError(join(path, GPU_INDEX_KEY), str(error)) from None


def device_numbers(stated: str, count: int) -> tuple[int, ...]:
    """Return the `count` devices of an annotation such as 2-3-4; empty: none.

    Raises:
        ValueError: it does not name so many devices.
    """
    if not stated:
        return ()
    parts = stated.split("-")
    short = (part for part in parts if part.isascii() and part.isdigit() and len(part) < 5)
    numbers = {int(part) for part in short if int(part) < MAX_NODE_GPUS}
    if len(parts) != count or len(numbers) != count:
        raise ValueError(f"{stated!r} does not name the pod's {count} devices; write device numbers as 2-3-4")
    return tuple(int(part) for part in parts)


def _seconds(annotations: Object, key: str, path: str) -> float | None:
    """Return a time in seconds, as in the traces, or in RFC 3339, as ndr2084's simulator reads it (then Unix time)."""
    value = annotations.get(key)
    if value is None or value == "":
        return None
    seconds = _timestamp(value) if isinstance(value, str) and "T" in value else _number(value)
    if not 0 <= seconds < MAX_SECONDS:
        raise FieldError(
            join(path, key), f"{value!r} is not a time; expected seconds, 0 or more, or 2024-05-01T12:00:00Z"
        )
    return seconds


def _timestamp(value: str) -> float:
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        return math.nan
    return stamp.timestamp() if stamp.tzinfo else math.nan


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):  # YAML and JSON have integers that no float represents
        return math.nan


def _priority(spec: Object, path: str) -> int:
    """Return the priority that admission gave a pod; before it, that of a class which every cluster has."""
    default = PRIORITY_CLASSES.get(text(spec, "priorityClassName", path), 0)
    return integer(spec, "priority", path, -_INT32 - 1, _INT32, default)


def _owner(metadata: Object, path: str, annotations: Object, notes: str) -> str:
    """Return the controller as "Kind/name", "" if none."""
    for reference, where in items(metadata, "ownerReferences", path):
        if boolean(reference, "controller", where):
            return f"{required_text(reference, 'kind', where)}/{required_text(reference, 'name', where)}"
    return text(annotations, OWNER_KEY, notes)


def _constraints(
    spec: Object,
    path: str,
    namespace: str,
    labels: Mapping[str, str],
    models: tuple[str, ...],
    namespaces: selectors.Namespaces | None,
) -> Constraints:
    affinity, where = mapping(spec, "affinity", path), join(path, "affinity")
    node, node_path = mapping(affinity, "nodeAffinity", where), join(where, "nodeAffinity")
    near, near_path = mapping(affinity, "podAffinity", where), join(where, "podAffinity")
    far, far_path = mapping(affinity, "podAntiAffinity", where), join(where, "podAntiAffinity")
    return Constraints(
        gpu_models=models,
        node_name=text(spec, "nodeName", path),
        tolerations=tuple(_tolerations(spec, path)),
        node_selector=tuple(sorted(text_map(spec, "nodeSelector", path).items())),
        node_affinity=selectors.required_nodes(node, node_path),
        preferred_nodes=selectors.preferred_nodes(node, node_path),
        host_ports=_host_ports(spec, path),
        affinity=selectors.required_pods(near, near_path, namespace, labels, namespaces),
        anti_affinity=selectors.required_pods(far, far_path, namespace, labels, namespaces),
        preferred_affinity=selectors.preferred_pods(near, near_path, namespace, labels, namespaces),
        preferred_anti_affinity=selectors.preferred_pods(far, far_path, namespace, labels, namespaces),
        spread=selectors.spread_constraints(spec, path, namespace, labels),
        images=tuple(_images(spec, path)),
        image_volumes=tuple(image_volumes(spec, path)),
        exclusive_volumes=tuple(dict.fromkeys(exclusive_volumes(spec, path))),
        node_features=tuple(needed_features(spec, path)),
    )


def _tolerations(spec: Object, path: str) -> Iterator[Toleration]:
    for entry, where in items(spec, "tolerations", path):
        operator = choice(entry, "operator", where, ("Equal", "Exists", *COMPARISONS), "Equal")
        toleration = Toleration(
            key=text(entry, "key", where),
            operator=operator,
            value=text(entry, "value", where),
            effect=choice(entry, "effect", where, ("", *_EFFECTS)),
        )
        if not toleration.key and operator != "Exists":
            raise FieldError(join(where, "operator"), "must be Exists where there is no key")
        if operator == "Exists" and toleration.value:
            raise FieldError(join(where, "value"), "must be empty with Exists")
        yield toleration


def _host_ports(spec: Object, path: str) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars; on the host's network every container port is one."""
    host_network = boolean(spec, "hostNetwork", path)
    result = set()
    for key in ("containers", "initContainers"):
        for container, where in items(spec, key, path):
            if key == "initContainers" and text(container, "restartPolicy", where) != "Always":
                continue
            for entry, at in items(container, "ports", where):
                default = integer(entry, "containerPort", at, 1, 65535, 0) if host_network else 0
                port = integer(entry, "hostPort", at, 0, 65535, default) or default
                protocol = choice(entry, "protocol", at, _PROTOCOLS, "TCP")
                if port:
                    result.add(HostPort(port, protocol, text(entry, "hostIP", at) or "0.0.0.0"))
    return tuple(sorted(result, key=lambda p: (p.port, p.protocol, p.ip)))


def _images(spec: Object, path: str) -> Iterator[str]:
    for key in ("initContainers", "containers"):
        for container, where in items(spec, key, path):
            image = text(container, "image", where)
            if image and image != PLACEHOLDER_IMAGE:
                yield normalized_image(image)
