"""A finding of a check, and those that follow from nodes and pods alone."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from steersman.cluster.account import ClusterAccount
from steersman.cluster.model import PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.objects.api.metadata import NamedObject, NodeObject
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER, LivePod
from steersman.core.counting import counted, first_names
from steersman.kubernetes.lease import SCHEDULER_KEY

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


class Verdict(enum.StrEnum):
    """Whether something works."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check.

    Attributes:
        subject: what was checked, one or two words.
        verdict: whether it works.
        text: what was found.
        remedy: what to do, "" if nothing.
    """

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
    """Return which nodes are counted, and what they say about their GPUs.

    Args:
        account: of the cluster, with what nodes offer by Dynamic Resource Allocation.
        objects: all nodes as the API has them.
    """
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
    """Return who places pods, and what waits for somebody who does not run.

    Args:
        pods: all pods.
        leases: names of leases, which schedulers that run have; None: they are not known.
    """
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


class LeaseHolder(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Lease."""

    holder_identity: str | None = None
    renew_time: datetime | None = None


class HeldLease(NamedObject, frozen=True):
    """A Lease."""

    spec: LeaseHolder = LeaseHolder()


held_lease = msgspec.json.Decoder(HeldLease).decode


def leader_findings(leases: Iterable[HeldLease], schedulers: Set[str], now: datetime) -> Iterator[Finding]:
    """Return which schedulers with the same name decide at the same time, each by a Lease in another namespace.

    Args:
        leases: all Leases.
        schedulers: `schedulerName` of all pods.
        now: time with its zone.
    """
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
