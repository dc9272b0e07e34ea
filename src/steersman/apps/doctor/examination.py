"""Examine a cluster: version, rights, nodes, devices, pods, schedulers, admission and metrics. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from steersman.apps.doctor.findings import (
    Finding,
    HeldLease,
    held_lease,
    leader_findings,
    node_findings,
    ok,
    pod_findings,
    problem,
    warning,
)
from steersman.apps.doctor.rights import RIGHTS, rights_findings
from steersman.apps.runtime.cluster_schedulers import FoundScheduler, find_schedulers, read_profiles
from steersman.apps.runtime.decoding import ALL_PODS, NODES, DecodedObjects, decode_objects, documents, example
from steersman.apps.runtime.device_lists import list_device_offers
from steersman.apps.runtime.server_version import server_version
from steersman.cluster.account import account_of
from steersman.cluster.model import Node
from steersman.cluster.objects.api.decoding import node_from_json, pod_from_json
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.api_fields import kubernetes_table
from steersman.core.counting import counted
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import MISSING, ApiError, Client
from steersman.kubernetes.lease import ALL_LEASES
from steersman.kubernetes.watch import REFUSALS
from steersman.policies.node_scores.kube_minors import nearest_minor, parse_version
from steersman.prometheus.client import NotPrometheusError
from steersman.prometheus.collector import TelemetryCollector, addresses_of
from steersman.prometheus.configuration import Configuration
from steersman.workloads.loading import workload_of_objects

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ADMISSION = ("gpu-mixing", "gpu-annotations")
"""Ends of the policies' names, which begin with the name of a release."""
ADMISSION_LABELS = {"labelSelector": "app.kubernetes.io/name=steersman,app.kubernetes.io/component=admission"}
NEEDS_POLICIES = "upgrade to Kubernetes 1.30, and install the chart with admission.enabled=true"
SOURCES = {"running_pods": "it needs kube-state-metrics; "}
"""Where a metric comes from, unless it is from the usual node exporter."""


async def examine(client: Client, telemetry: Configuration | None = None) -> list[Finding]:
    """Return the findings of all checks, in the order of what depends on what.

    Args:
        client: connection to the cluster.
        telemetry: how Prometheus is asked; None: metrics are not checked.

    Raises:
        SteersmanError: the API server does not answer.
    """
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
