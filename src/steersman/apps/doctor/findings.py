"""A finding of a check, and those that follow from nodes and pods alone."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from steersman.cluster.gpu_resources import PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import Node
from steersman.cluster.objects.api.metadata import NamedObject
from steersman.cluster.objects.api.nodes import NodeObject
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER, LivePod
from steersman.kubernetes.lease import SCHEDULER_KEY

NODES_SHOWN = 3
LEASE_AGE = timedelta(minutes=1)
"""Time since a Lease was renewed after which nobody holds it; clocks of machines differ."""
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


def node_findings(nodes: Sequence[Node], objects: Sequence[NodeObject]) -> Iterator[Finding]:
    """Return what nodes say about their GPUs.

    Args:
        nodes: the valid nodes, with what they offer by Dynamic Resource Allocation.
        objects: all nodes as the API has them.
    """
    if not objects:
        yield problem("nodes", "the cluster has no nodes", "add nodes; 'steersman cluster up' simulates some")
        return
    not_ready = [node.metadata.name for node in objects if not node.is_ready]
    yield ok("nodes", f"{amount(len(objects), 'node')}, {len(not_ready)} not ready")
    counted = Counter[str]()
    for node in nodes:
        if node.gpu_total:
            counted[" or ".join(node.gpu_resources) or "GPU"] += node.gpu_total
    if counted:
        yield ok("GPUs", ", ".join(f"{count} {name}" for name, count in counted.most_common()))
    else:
        yield warning(
            "GPUs",
            "no node offers GPUs that steersman knows",
            f"it counts {', '.join((*PLUGIN_GPUS, SHARED_GPUS))}; policies for GPUs gain nothing without one",
        )
    yield from _missing_plugins(objects)
    unnamed = [node.name for node in nodes if node.gpu_total and not node.gpu_model]
    if unnamed:
        yield warning(
            "GPU models",
            f"no label states the model of {amount(len(unnamed), 'node')} with GPUs: {_first_names(unnamed)}",
            "run the vendor's feature discovery, or label them with alibabacloud.com/gpu-card-model",
        )
    yield from _uncounted_devices(objects)


def _allocatable(node: NodeObject) -> Mapping[str, object]:
    return (node.status.allocatable if node.status else None) or {}


def _missing_plugins(objects: Iterable[NodeObject]) -> Iterator[Finding]:
    """Return nodes with GPUs by their labels whose device plugin offers none."""
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
            f"{amount(len(names), 'node')} with GPUs of {vendor} by labels, none allocatable: {_first_names(names)}",
            "look at the log of the device plugin's pod on such a node",
        )


def _uncounted_devices(objects: Iterable[NodeObject]) -> Iterator[Finding]:
    """Return extended resources that look like devices, and are counted as plain numbers."""
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
                f"{name} of {amount(count, 'node')} is an extended resource: it is respected, but not counted as GPUs",
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
    yield ok("pods", f"{amount(len(pods), 'pod')} by schedulerName: {shown}" if pods else "the cluster has no pods")
    known = {DEFAULT_SCHEDULER, *(leases or ()), *placed}
    for name in sorted(set(waiting) - known):
        text = f"{amount(waiting[name], 'pod')} waiting for scheduler {name!r}, which bound nothing"
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
    """Return which schedulers of one name decide at the same time: each holds a Lease, in another namespace.

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


def amount(count: int, noun: str) -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _first_names(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many follow."""
    rest = len(names) - NODES_SHOWN
    return ", ".join(names[:NODES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
