"""Write Kubernetes v1 Node, Pod and Service objects (plain dicts), in the conventions of `decoding.py`.

Decoding what is written here gives the same model back. The model does not keep a pod's containers, only their total
requests; so one container has the requests, and helpers without requests stand for those whose missing requests
kube-scheduler's scoring counts.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from steersman.cluster import model
from steersman.cluster.model import HARD_KEYS, SOFT_KEYS, USER_KEY
from steersman.cluster.objects import decoding
from steersman.cluster.objects.api.claims import IMPLICIT
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER, PREFERRED, REQUIRED
from steersman.cluster.objects.gpus import DEVICES, FRACTION, GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY, HAMI_REGISTER
from steersman.cluster.objects.pod_features import HOST_NETWORK_USERS, RESTART_ALL
from steersman.cluster.objects.requests import CPU, EPHEMERAL, MEMORY, NONZERO
from steersman.core.quantities import NANO, ceil_div, duration_literal, format_bytes, format_cpu, format_whole

Manifest = dict[str, Any]

_CPU_STEP = NONZERO[CPU] * 1000 // NANO
_MEMORY_STEP = NONZERO[MEMORY] // NANO
DELETED_AT = "1970-01-01T00:00:00Z"  # deletion timestamp of terminating pods, of which the model has no time


def node_to_object(node: model.Node) -> Manifest:
    """Return a v1 Node. GPUs without a name are written as shared ones, what is unlimited as 1Ei."""
    labels = dict(node.labels)
    offered = node.gpu_resources or (model.SHARED_GPUS,)
    if node.gpu_model and model.gpu_model(labels, offered) != node.gpu_model:
        labels[model.GPU_MODEL_KEY] = node.gpu_model
    allocatable: dict[str, str] = {}
    for name in offered if node.gpu_count else ():
        allocatable[name] = format_whole(node.gpu_count)
        if name == model.SHARED_GPUS:
            allocatable[GPU_MILLI_KEY] = format_whole(node.gpu_count * 1000)
    allocatable[CPU] = format_cpu(node.cpu_milli)
    allocatable[MEMORY] = format_bytes(node.memory_bytes)
    allocatable["pods"] = "1Ei" if node.pods >= model.UNLIMITED else format_whole(node.pods)
    allocatable[EPHEMERAL] = "1Ei" if node.ephemeral_bytes >= model.UNLIMITED else format_bytes(node.ephemeral_bytes)
    allocatable.update((name, format_whole(amount)) for name, amount in node.extended)
    spec = _present(
        taints=[{"key": t.key, **_present(value=t.value), "effect": t.effect} for t in node.taints],
        unschedulable=node.unschedulable,
    )
    status: Manifest = {"allocatable": allocatable, "capacity": dict(allocatable)}
    status |= _present(images=[{"names": [name], "sizeBytes": size} for name, size in node.images.items()])
    status |= _present(addresses=[{"type": _address_type(each), "address": each} for each in node.addresses])
    status |= _present(declaredFeatures=[each for each in node.features if not each.startswith(IMPLICIT)])
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**_present(labels=labels, annotations=_hami_register(node)), "name": node.name},
        **_present(spec=spec),
        "status": status,
    }


def _hami_register(node: model.Node) -> dict[str, str]:
    """Return HAMi's annotation of the GPUs behind a node's replicas."""
    entries = (
        f"{node.name}-{i},{node.gpu_count},{node.gpu_memory_mib},100,,0,true:" for i in range(node.physical_gpus)
    )
    return {HAMI_REGISTER: "".join(entries)} if node.physical_gpus else {}


def _address_type(address: str) -> str:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return "Hostname"
    return "InternalIP"


def pod_to_object(pod: model.Pod) -> Manifest:
    """Return a v1 Pod. GPUs of a device plugin are requested by its container, those without a name by annotations."""
    requests, constraints = pod.requests, pod.constraints
    annotations: dict[str, str] = {}
    is_share = requests.gpu_milli < model.GPU_MILLI
    if requests.gpu_count and requests.gpu_resource in model.PLUGIN_GPUS and is_share:
        annotations[FRACTION] = format_seconds(requests.gpu_milli / model.GPU_MILLI)
        annotations[DEVICES] = str(requests.gpu_count)
    elif requests.gpu_count and requests.gpu_resource not in model.PLUGIN_GPUS:
        annotations[GPU_COUNT_KEY] = str(requests.gpu_count)
        annotations[GPU_MILLI_KEY] = str(requests.gpu_milli)
    if constraints.gpu_models:
        annotations[model.GPU_MODEL_KEY] = "|".join(constraints.gpu_models)
    if pod.gpu_devices:
        annotations[GPU_INDEX_KEY] = "-".join(map(str, pod.gpu_devices))
    times = (
        (decoding.CREATION_KEY, pod.creation_time),
        (decoding.DELETION_KEY, pod.deletion_time),
        (decoding.ESTIMATE_KEY, pod.estimated_seconds),
    )
    for key, seconds in times:
        if seconds is not None:
            annotations[key] = format_seconds(seconds)
    if pod.gang and pod.gang != decoding.pod_group_of(pod.labels):
        annotations[decoding.GANG_KEY] = pod.gang
    for key, count in ((decoding.GANG_MINIMUM_KEY, pod.gang_minimum), (decoding.AT_ONCE_KEY, pod.at_once)):
        if count:
            annotations[key] = str(count)
    if pod.resumable is not None:
        annotations[decoding.RESUMABLE_KEY] = duration_literal(pod.resumable) if pod.resumable else decoding.ON_EVICTION
        annotations[decoding.RESTART_KEY] = format_seconds(pod.restart_seconds)
    if constraints.volume_refusals:
        annotations[decoding.REFUSALS_KEY] = json.dumps(constraints.volume_refusals)
    if pod.owner:
        annotations[decoding.OWNER_KEY] = pod.owner
    for key, milliseconds in ((SOFT_KEYS[0], pod.latency.soft), (HARD_KEYS[0], pod.latency.hard)):
        if milliseconds < math.inf:
            annotations[key] = format_seconds(milliseconds)
    if pod.latency.user:
        annotations[USER_KEY] = pod.latency.user
    deleted = DELETED_AT if pod.terminating else ""
    metadata = {
        **_present(annotations=annotations, deletionTimestamp=deleted, labels=dict(pod.labels)),
        "name": pod.name,
        "namespace": pod.namespace,
    }
    scheduler = pod.scheduler_name if pod.scheduler_name != DEFAULT_SCHEDULER else ""
    limits = {CPU: format_cpu(pod.cpu_limit_milli)} if pod.cpu_limit_milli else {}
    limits |= {MEMORY: format_bytes(pod.memory_limit_bytes)} if pod.memory_limit_bytes else {}
    spec = {**_containers(requests, constraints, limits), **_constraints(constraints)}
    preemption = "" if pod.preempts else "Never"
    spec |= _present(priority=pod.priority, preemptionPolicy=preemption, schedulerName=scheduler)
    _need_features(spec, constraints.node_features)
    status = _present(status=_present(nominatedNodeName=pod.nominated))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **status}


def service_to_object(name: str, namespace: str, labels: Iterable[tuple[str, str]]) -> Manifest:
    """Return a v1 Service that selects these labels."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": dict(labels)}}


def format_seconds(seconds: float) -> str:
    """Return seconds as text that reads back to the same number: "60", "0.5"."""
    return str(int(seconds)) if seconds == int(seconds) else repr(float(seconds))


def _present(**fields: Any) -> Manifest:
    """Return the fields that have a value, since Kubernetes objects leave out the rest."""
    return {name: value for name, value in fields.items() if value}


def _containers(requests: model.Requests, constraints: model.Constraints, limits: dict[str, str]) -> Manifest:
    """Return containers whose sum, exact and in the non-zero view, is `requests`. The main one has the limits.

    Let r be a request and z its non-zero view. If r = z, one container states r. Otherwise ceil((z-r)/step) containers
    state nothing and add up to steps in the view alone; where that overshoots, the other containers request less and an
    init container peaks at r, which is how such a view arises in a real pod.
    """
    cpu_silent, cpu_stated = _silent(requests.cpu_milli, requests.cpu_nonzero_milli, _CPU_STEP)
    memory_silent, memory_stated = _silent(requests.memory_bytes, requests.memory_nonzero_bytes, _MEMORY_STEP)
    # The main container is one of those without requests where it has none.
    main_cpu = cpu_stated if cpu_stated or not cpu_silent else None
    main_memory = memory_stated if memory_stated or not memory_silent else None
    cpu_silent -= main_cpu is None
    memory_silent -= main_memory is None
    other = {EPHEMERAL: format_bytes(requests.ephemeral_bytes)} if requests.ephemeral_bytes else {}
    extended = {name: format_whole(amount) for name, amount in requests.extended}
    if requests.gpu_resource in model.PLUGIN_GPUS and requests.gpu_milli == model.GPU_MILLI:
        extended[requests.gpu_resource] = format_whole(requests.gpu_count)
    stated = _stated(main_cpu, main_memory)
    # A limit without a request would imply one.
    main = _container("main", stated | other, extended, {name: limits[name] for name in limits if name in stated})
    images = constraints.images or (decoding.PLACEHOLDER_IMAGE,)
    containers = [main]
    for i in range(max(cpu_silent, memory_silent, len(images) - 1)):
        stated = _stated(None if i < cpu_silent else 0, None if i < memory_silent else 0)
        containers.append(_container(f"helper-{i + 1}", stated))
    for container, image in zip(containers, (*images, *(decoding.PLACEHOLDER_IMAGE,) * len(containers)), strict=False):
        container["image"] = image
    if constraints.host_ports:
        main["ports"] = [_port(port) for port in constraints.host_ports]
    result: Manifest = {"containers": containers}
    if (cpu_stated, memory_stated) != (requests.cpu_milli, requests.memory_bytes):
        peak = _container("peak", _stated(requests.cpu_milli, requests.memory_bytes))
        result["initContainers"] = [{**peak, "image": decoding.PLACEHOLDER_IMAGE}]
    return result


def _silent(request: int, nonzero: int, step: int) -> tuple[int, int]:
    """Return how many containers state no request, and what the others state together."""
    silent = ceil_div(nonzero - request, step)
    return silent, max(nonzero - silent * step, 0) if silent else request


def _stated(cpu: int | None, memory: int | None) -> dict[str, str]:
    stated = {} if cpu is None else {CPU: format_cpu(cpu)}
    return stated if memory is None else stated | {MEMORY: format_bytes(memory)}


def _container(
    name: str,
    requests: Mapping[str, str],
    extended: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    # The API server wants a limit equal to the request for extended resources.
    resources = _present(limits={**limits, **extended}, requests={**requests, **extended})
    return {"name": name, "image": decoding.PLACEHOLDER_IMAGE, **_present(resources=resources)}


def _need_features(spec: Manifest, features: Iterable[str]) -> None:
    for feature in features:
        if feature == RESTART_ALL:
            rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
            spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
        elif feature == HOST_NETWORK_USERS:
            spec |= {"hostNetwork": True, "hostUsers": False}


def _volumes(constraints: model.Constraints) -> list[Manifest]:
    sources = [{"image": {"reference": image}} for image in constraints.image_volumes]
    sources += map(_exclusive, constraints.exclusive_volumes)
    return [{"name": f"volume-{i}", **source} for i, source in enumerate(sources, start=1)]


def _exclusive(volume: model.ExclusiveVolume) -> Manifest:
    keys = {"gcePersistentDisk": ("pdName",), "awsElasticBlockStore": ("volumeID",), "iscsi": ("iqn",)}
    source: Manifest = dict(zip(keys.get(volume.kind, ("pool", "image")), volume.disk, strict=True))
    source |= _present(monitors=list(volume.monitors), readOnly=volume.read_only)
    if volume.kind == "iscsi":
        source |= {"targetPortal": "127.0.0.1", "lun": 0}  # required, and read by nobody here
    return {volume.kind: source}


def _port(port: model.HostPort) -> Manifest:
    address = {} if port.ip == "0.0.0.0" else {"hostIP": port.ip}
    return {"containerPort": port.port, "hostPort": port.port, "protocol": port.protocol, **address}


def _constraints(constraints: model.Constraints) -> Manifest:
    near = _pod_affinity(constraints.affinity, [(p.weight, p.term) for p in constraints.preferred_affinity])
    far = _pod_affinity(constraints.anti_affinity, [(p.weight, p.term) for p in constraints.preferred_anti_affinity])
    affinity = _present(nodeAffinity=_node_affinity(constraints), podAffinity=near, podAntiAffinity=far)
    tolerations = [
        _present(key=t.key, operator="" if t.operator == "Equal" else t.operator, value=t.value, effect=t.effect)
        for t in constraints.tolerations
    ]
    return _present(
        affinity=affinity,
        nodeName=constraints.node_name,
        nodeSelector=dict(constraints.node_selector),
        tolerations=tolerations,
        topologySpreadConstraints=[_spread(spread) for spread in constraints.spread],
        volumes=_volumes(constraints),
    )


def _node_affinity(constraints: model.Constraints) -> Manifest:
    result: Manifest = {}
    if constraints.node_affinity is not None:
        result[REQUIRED] = {"nodeSelectorTerms": [_node_term(term) for term in constraints.node_affinity]}
    preferred = [{"weight": p.weight, "preference": _node_term(p.term)} for p in constraints.preferred_nodes]
    return result | ({PREFERRED: preferred} if preferred else {})


def _node_term(term: model.NodeSelectorTerm) -> Manifest:
    return _present(matchExpressions=_requirements(term.expressions), matchFields=_requirements(term.fields))


def _pod_affinity(
    required: Iterable[model.PodAffinityTerm], preferred: Iterable[tuple[int, model.PodAffinityTerm]]
) -> Manifest:
    hard = [_pod_term(term) for term in required]
    soft = [{"weight": weight, "podAffinityTerm": _pod_term(term)} for weight, term in preferred]
    return ({REQUIRED: hard} if hard else {}) | ({PREFERRED: soft} if soft else {})


def _pod_term(term: model.PodAffinityTerm) -> Manifest:
    namespaces = term.selector.namespaces
    scope: Manifest = {"namespaceSelector": {}} if namespaces is None else {"namespaces": sorted(namespaces)}
    return {**_label_selector(term.selector), **scope, "topologyKey": term.topology_key}


def _spread(spread: model.TopologySpread) -> Manifest:
    return {
        **_label_selector(spread.selector),
        "maxSkew": spread.max_skew,
        **_present(minDomains=spread.min_domains if spread.min_domains > 1 else 0),
        **_present(nodeAffinityPolicy="" if spread.honor_node_affinity else "Ignore"),
        **_present(nodeTaintsPolicy="Honor" if spread.honor_node_taints else ""),
        "topologyKey": spread.topology_key,
        "whenUnsatisfiable": "DoNotSchedule" if spread.hard else "ScheduleAnyway",
    }


def _label_selector(selector: model.PodSelector) -> Manifest:
    if selector.requirements is None:
        return {}
    return {"labelSelector": _present(matchExpressions=_requirements(selector.requirements))}


def _requirements(requirements: Iterable[model.Requirement]) -> list[Manifest]:
    return [{"key": r.key, "operator": r.operator, **_present(values=list(r.values))} for r in requirements]
