"""What in a cluster works with steersman, what does not, and what to do about it. Nothing is changed."""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from steersman.cluster.account import ClusterAccount, account_of
from steersman.cluster.model import PLUGIN_GPUS, SHARED_GPUS, Node
from steersman.cluster.objects.api.metadata import NodeObject, named_object
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER, LivePod
from steersman.cluster.objects.fields import kubernetes_table, node_from_json, pod_from_json
from steersman.core.counting import counted, first_names
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import MISSING, ApiError, Client
from steersman.kubernetes.lease import ALL_LEASES, SCHEDULER_KEY, HeldLease, held_lease
from steersman.kubernetes.watch import REFUSALS
from steersman.live.runtime.cluster_schedulers import FoundScheduler, find_schedulers, read_profiles
from steersman.live.runtime.listing import (
    ALL_PODS,
    NODES,
    DecodedObjects,
    decode_objects,
    documents,
    example,
    list_device_offers,
    server_version,
)
from steersman.policies.kube_scheduler.minors import nearest_minor, parse_version
from steersman.prometheus.client import NotPrometheusError
from steersman.prometheus.collector import TelemetryCollector, addresses_of
from steersman.prometheus.configuration import Configuration
from steersman.workloads.loading import workload_of_objects

LEASE_AGE = timedelta(minutes=1)
"""A Lease that was renewed longer ago is not held. More than its duration, since clocks of machines differ."""
VENDOR_LABELS: Mapping[str, tuple[str, ...]] = {
    "nvidia.com/gpu.present": ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-"),
    "feature.node.kubernetes.io/pci-10de.present": ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-"),
    "feature.node.kubernetes.io/amd-gpu": ("amd.com/gpu",),
    "gpu.intel.com/product": ("gpu.intel.com/",),
}
"""Labels by which node feature discovery says that a node has GPUs, and resources that a device plugin then offers."""
DEVICE_WORDS = ("gpu", "gaudi", "npu", "neuron", "tpu", "ascend", "accelerator")
"""Parts of the names of extended resources that are devices in all likelihood."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 8
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ADMISSION = ("gpu-mixing", "gpu-annotations")  # ends of the policies' names, which begin with the name of a release
ADMISSION_LABELS = {"labelSelector": "app.kubernetes.io/name=steersman,app.kubernetes.io/component=admission"}
NEEDS_POLICIES = "upgrade to Kubernetes 1.30, and install the chart with admission.enabled=true"
SOURCES = {"running_pods": "it needs kube-state-metrics; "}  # where a metric comes from, if not from the node exporter


class Verdict(enum.StrEnum):
    """Whether something works."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check."""

    subject: str
    verdict: Verdict
    text: str
    remedy: str = ""


def ok(subject: str, text: str) -> Finding:
    """Return a finding of something that works."""
    return Finding(subject, Verdict.OK, text)


def warning(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding of something that works in part."""
    return Finding(subject, Verdict.WARNING, text, remedy)


def problem(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding of something that does not work."""
    return Finding(subject, Verdict.PROBLEM, text, remedy)


def node_findings(account: ClusterAccount, objects: Sequence[NodeObject]) -> Iterator[Finding]:
    """Return which nodes are counted, and what they say about their GPUs."""
    if not objects:
        yield problem("nodes", "the cluster has no nodes", "add nodes; 'steersman cluster up' simulates some")
        return
    yield ok("nodes", account.sentence)
    names = {node.name for node in account.counted}
    if not_ready := [node.metadata.name for node in objects if not node.is_ready and node.metadata.name in names]:
        remedy = "see whether the node controller runs, which adds the taint node.kubernetes.io/not-ready"
        yield warning("readiness", f"not ready, without a taint that says so: {first_names(not_ready)}", remedy)
    gpus = Counter[str]()
    for node in account.counted:
        if node.gpu_total:
            gpus[" or ".join(node.gpu_resources) or "GPU"] += node.gpu_total
    if gpus:
        yield ok("GPUs", ", ".join(f"{number} {name}" for name, number in gpus.most_common()))
    else:
        yield warning(
            "GPUs",
            "no node offers GPUs that steersman knows",
            f"it counts {', '.join((*PLUGIN_GPUS, SHARED_GPUS))}; policies for GPUs gain nothing without one",
        )
    yield from _missing_plugins(objects)
    unnamed = [node.name for node in account.nodes if node.gpu_total and not node.gpu_model]
    if unnamed:
        yield warning(
            "GPU models",
            f"no label states the model of {counted(len(unnamed), 'node')} with GPUs: {first_names(unnamed)}",
            "run the vendor's feature discovery, or label them with alibabacloud.com/gpu-card-model",
        )
    yield from _uncounted_devices(objects)


def _allocatable(node: NodeObject) -> Mapping[str, object]:
    return (node.status.allocatable if node.status else None) or {}


def _missing_plugins(objects: Iterable[NodeObject]) -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    for node in objects:
        offered, labels = _allocatable(node), node.metadata.labels or {}
        for label, resources in VENDOR_LABELS.items():
            has_gpus = labels.get(label, "false") != "false"
            if has_gpus and not any(name.startswith(resources) and str(offered[name]) != "0" for name in offered):
                missing.setdefault(resources[0].partition("/")[0], []).append(node.metadata.name)
                break
    for vendor, names in missing.items():
        yield problem(
            "device plugin",
            f"{counted(len(names), 'node')} with GPUs of {vendor} by labels, none allocatable: {first_names(names)}",
            "look at the log of the device plugin's pod on such a node",
        )


def _uncounted_devices(objects: Iterable[NodeObject]) -> Iterator[Finding]:
    found = Counter(
        name
        for node in objects
        for name in _allocatable(node)
        if "/" in name and name not in PLUGIN_GPUS and any(word in name.lower() for word in DEVICE_WORDS)
    )
    for name, count in found.most_common():
        if not name.startswith("alibabacloud.com/"):
            yield warning(
                "resources",
                f"{name} of {counted(count, 'node')} is an extended resource: it is respected, but not counted as GPUs",
                "see 'units of GPUs' in the documentation for names that are",
            )


def pod_findings(pods: Sequence[LivePod], leases: Iterable[str] | None) -> Iterator[Finding]:
    """Return who places pods, and what waits for somebody who does not run."""
    placed = Counter(pod.scheduler for pod in pods if pod.node)
    waiting = Counter(pod.scheduler for pod in pods if not pod.node and not pod.finished)
    shown = ", ".join(f"{name} {placed[name]} bound, {waiting[name]} waiting" for name in sorted({*placed, *waiting}))
    yield ok("pods", f"{counted(len(pods), 'pod')} by schedulerName: {shown}" if pods else "the cluster has no pods")
    known = {DEFAULT_SCHEDULER, *(leases or ()), *placed}
    for name in sorted(set(waiting) - known):
        text = f"{counted(waiting[name], 'pod')} waiting for scheduler {name!r}, which bound nothing"
        start = f"start it ('steersman schedule --scheduler-name {name}'), or correct spec.schedulerName"
        if leases is None:
            remedy = f"see whether it runs, since leases cannot be listed; else {start}"
            yield warning("schedulers", text, remedy)
        else:
            yield problem("schedulers", f"{text} and has no lease", start)


def leader_findings(leases: Iterable[HeldLease], schedulers: Set[str], now: datetime) -> Iterator[Finding]:
    """Return which schedulers with the same name decide at the same time, each by a Lease in another namespace."""
    held: dict[str, list[str]] = {}
    for lease in leases:
        name = (lease.metadata.annotations or {}).get(SCHEDULER_KEY, "")
        renewed = lease.spec.renew_time
        is_held = lease.spec.holder_identity and renewed and abs(now - renewed) < LEASE_AGE
        if is_held and (name or lease.metadata.name in schedulers):
            held.setdefault(name or lease.metadata.name, []).append(f"{lease.metadata.namespace}/{lease.metadata.name}")
    for name, places in sorted(held.items()):
        if len(places) > 1:
            yield problem(
                "schedulers",
                f"{len(places)} schedulers named {name!r} decide at once, by the leases {', '.join(sorted(places))}",
                "stop all but one, or give them different names (--scheduler-name, scheduler.schedulerName)",
            )


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Verbs on resources of one group."""

    group: str  # API group, "" for core
    resources: tuple[str, ...]  # resources, with their subresource if there is one
    verbs: tuple[str, ...]  # verbs
    purpose: str = ""  # what the rights are for where most clusters never ask for them, "" if they are always needed


_LOOK = ("list", "watch")
_SPREADING = "the policy kube-default"
_CONFIGURATION = "the configuration of the cluster's scheduler"
_DRA = "Dynamic Resource Allocation"
_VOLUMES = "pods with claims"
_WATCHES = (
    AccessRule("", ("namespaces",), _LOOK, "affinity that selects namespaces by labels"),
    AccessRule("", ("services", "replicationcontrollers"), _LOOK, _SPREADING),
    AccessRule("apps", ("replicasets", "statefulsets"), _LOOK, _SPREADING),
)
RIGHTS: Mapping[str, tuple[AccessRule, ...]] = {
    "evaluate": (
        AccessRule("", ("nodes", "pods"), ("list",)),
        AccessRule("", ("namespaces", "services", "replicationcontrollers"), ("list",), _SPREADING),
        AccessRule("apps", ("replicasets", "statefulsets"), ("list",), _SPREADING),
        AccessRule("apps", ("deployments",), ("list",), _CONFIGURATION),
        AccessRule("", ("configmaps",), ("get",), _CONFIGURATION),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), ("list",), _DRA),
    ),
    "serve": (
        AccessRule("", ("nodes", "pods"), _LOOK),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), _LOOK, _DRA),
        *_WATCHES,
    ),
    "schedule": (
        AccessRule("", ("nodes",), _LOOK),
        AccessRule("", ("pods",), ("get", *_LOOK)),
        AccessRule("", ("pods/binding",), ("create",)),
        AccessRule("", ("pods/status",), ("patch",)),
        AccessRule("events.k8s.io", ("events",), ("create", "patch")),
        AccessRule("", ("persistentvolumeclaims", "persistentvolumes"), (*_LOOK, "patch"), _VOLUMES),
        AccessRule(
            "storage.k8s.io", ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"), _LOOK, _VOLUMES
        ),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices"), _LOOK, _DRA),
        AccessRule("resource.k8s.io", ("resourceclaims",), ("get", *_LOOK, "create"), _DRA),
        AccessRule("resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("update",), _DRA),
        *_WATCHES,
    ),
}
"""Access rules by command; those of `serve` and `schedule` are the ClusterRoles that are deployed."""


async def rights_findings(client: Client, command: str) -> list[Finding]:
    """Ask the API server what the caller may do, and return what that lets a command do."""
    asked = [(each, resource, verb) for each in RIGHTS[command] for resource in each.resources for verb in each.verbs]
    limit = asyncio.Semaphore(AT_ONCE)

    async def allowed(rights: AccessRule, resource: str, verb: str) -> bool:
        name, _, subresource = resource.partition("/")
        attributes = {"group": rights.group, "resource": name, "subresource": subresource, "verb": verb}
        async with limit:
            result = await client.create(REVIEWS, {"spec": {"resourceAttributes": attributes}})
        return bool((result.get("status") or {}).get("allowed"))

    subject = f"rights for {command}"
    try:
        answers = await asyncio.gather(*(allowed(*each) for each in asked))
    except ApiError as error:
        return [warning(subject, f"the API server does not tell: {error}", "ask 'kubectl auth can-i --list'")]
    refused: dict[str, dict[str, list[str]]] = {}
    for (rights, resource, verb), is_allowed in zip(asked, answers, strict=True):
        if not is_allowed:
            refused.setdefault(rights.purpose, {}).setdefault(resource, []).append(verb)
    return list(_findings_of(subject, refused))


def _findings_of(subject: str, refused: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[Finding]:
    for purpose, verbs in refused.items():
        what = "; ".join(f"{resource} ({', '.join(each)})" for resource, each in verbs.items())
        if not purpose:
            yield problem(subject, f"not allowed: {what}", "use the service account of the Helm chart, or grant it")
        elif "" not in refused:
            yield warning(subject, f"not allowed, for {purpose} alone: {what}", "grant it if the cluster uses it")
    if not refused:
        yield ok(subject, "all granted")


async def examine(client: Client, telemetry: Configuration | None = None) -> list[Finding]:
    """Return the findings of all checks, in the order of what depends on what."""
    version = await server_version(client)
    found = [version_finding(version)]
    for command in RIGHTS:
        found += await rights_findings(client, command)
    try:
        listed_nodes, listed_pods = await client.list(NODES), await client.list(ALL_PODS)
    except ApiError as error:
        remedy = "see the rights for evaluate" if error.status in REFUSALS else "see whether the API server is well"
        return [*found, problem("nodes", f"nodes and pods cannot be read: {error}", remedy)]
    every = [*documents(listed_nodes, "Node"), *documents(listed_pods, "Pod")]
    decoded, objects = decode_objects(every), [node_from_json(raw) for raw in listed_nodes.items]
    offers = await list_device_offers(client, {node.name for node in decoded.nodes})
    nodes = tuple(map(offers.node, decoded.nodes))
    # As for evaluate --cluster; without a valid node there is no workload.
    names = [node.metadata.name for node in objects]
    account = workload_of_objects("cluster", every, lives=True).account if nodes else account_of((), (), names)
    found += node_findings(replace(account, nodes=nodes), objects)
    if offers:
        found.append(ok("DRA", "devices of ResourceSlices are counted for DeviceClasses that steersman understands"))
    leases = await _leases(client)
    pods = [pod_from_json(raw) for raw in listed_pods.items]
    found += pod_findings(pods, None if leases is None else [lease.metadata.name for lease in leases])
    found += leader_findings(leases or (), {pod.scheduler for pod in pods}, datetime.now(UTC))
    found += configuration_findings(await find_schedulers(client), nearest_minor(version))
    found += _object_findings(decoded)
    if any(pod.requests.gpu_count and 0 < pod.requests.gpu_milli < 1000 for pod in decoded.pods):
        found += await _admission_findings(client)
    if telemetry is not None:
        collector = TelemetryCollector(telemetry, lambda: addresses_of(nodes))
        found += await _metric_findings(collector, nodes)
    return found


def version_finding(version: str) -> Finding:
    """Return whether steersman knows the version of an API server."""
    _, minor = parse_version(version)
    oldest, ours = (int(each.split(".")[1]) for each in (kubernetes_table().oldest, kubernetes_table().minor))
    text = f"Kubernetes {version}"
    if minor > ours:
        return warning(
            "version", f"{text}; steersman knows fields up to 1.{ours}", "newer fields are named where pods use them"
        )
    if minor < oldest:
        return warning("version", f"{text}; steersman is tested from 1.{oldest} on", "try what you need, or upgrade")
    return ok("version", text)


def configuration_findings(schedulers: Sequence[FoundScheduler], minor: str) -> Iterator[Finding]:
    """Return which configuration of kube-scheduler, of this minor, `evaluate --cluster` compares with."""
    subject, remedy = "configuration", "give evaluate --baseline my-scheduler.yaml"
    if not schedulers:
        yield warning(subject, "the API does not tell that of kube-scheduler; it may differ from kube-default", remedy)
    for each in schedulers:
        if not each.content:
            where = each.source or each.file
            if where:
                place = f" on node {each.node}" if each.node else ""
                yield warning(subject, f"{each.name} has one that the API does not show: {where}{place}", remedy)
            else:
                yield ok(subject, f"{each.name} has none: kube-default computes what it does")
            continue
        try:
            names = ", ".join(read_profiles(each, minor))
        except SteersmanError as error:
            yield warning(subject, f"{each.name} has one that steersman cannot compute: {error}", remedy)
        else:
            yield ok(subject, f"{each.name} has {each.source}, profiles {names}: evaluate --cluster compares with it")


async def _leases(client: Client) -> list[HeldLease] | None:
    try:
        listed = await client.list(ALL_LEASES)
    except ApiError:
        return None
    return [held_lease(raw) for raw in listed.items]


def _object_findings(decoded: DecodedObjects) -> Iterator[Finding]:
    if decoded.problems:
        yield problem(
            "objects",
            f"{counted(len(decoded.problems), 'object')} not valid: {example(decoded.problems)}",
            "correct the named field",
        )
    for text in decoded.warnings:
        yield warning("objects", text, "steersman leaves such pods to kube-scheduler, or ignores the field")


async def _admission_findings(client: Client) -> Sequence[Finding]:
    try:
        listed = await client.list(POLICIES, ADMISSION_LABELS)
    except ApiError as error:
        if error.status != MISSING:
            return [warning("admission", f"policies cannot be read: {error}", "have an administrator look")]
        return [warning("admission", "pods share GPUs, and the API has no ValidatingAdmissionPolicy", NEEDS_POLICIES)]
    names = [named_object(raw).metadata.name or "" for raw in listed.items]
    missing = [each for each in ADMISSION if not any(name.endswith(f"-{each}") for name in names)]
    if missing:
        text = f"pods share GPUs, and ValidatingAdmissionPolicies are missing: {', '.join(missing)}"
        return [warning("admission", text, "install the chart with admission.enabled=true")]
    return [ok("admission", "the policies for shared GPUs are installed")]


async def _metric_findings(collector: TelemetryCollector, nodes: Sequence[Node]) -> Sequence[Finding]:
    queried = [each for each, query in collector.configuration.features.items() if query.query]
    try:
        problems = await collector.try_once()
        if queried and all(isinstance(problems.get(name), NotPrometheusError) for name in queried):
            raise problems[queried[0]]
    except SteersmanError as error:
        return [problem("metrics", str(error), "correct prometheus.url, its token or its authority")]
    found: list[Finding] = []
    for name in queried:
        if name in problems:
            found.append(problem("metrics", f"{name}: {problems[name]}", f"correct features.{name}"))
            continue
        measured = len(collector.store.nodes_with(name))
        label = collector.configuration.node_label(name)
        text = f"{name}: {measured} of {counted(len(nodes), 'node')}"
        found.append(
            ok("metrics", text)
            if measured == len(nodes)
            else warning(
                "metrics", text, f"{SOURCES.get(name, '')}see whether label {label!r} of the series names the nodes"
            )
        )
    return found
