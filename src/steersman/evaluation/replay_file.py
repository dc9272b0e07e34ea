"""`replay.json.gz` of a simulated run: nodes, pods, policy and options, which a replay needs beside its CSV files."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from steersman.cluster.model import RESTART_SECONDS, LatencyLimits, Node, Pod, PodClass
from steersman.core.errors import InputError
from steersman.core.redaction import redact_url
from steersman.orders.registry import file_of
from steersman.policies.policy_file import SUFFIX
from steersman.policies.registry import PACKAGED_POLICY, policy_path, split_limit, split_order
from steersman.simulation.result import Protocol
from steersman.training.network import fingerprint
from steersman.workloads.profile import TypicalPod
from steersman.workloads.workload import Recorded, SpreadSelectors, Workload

REPLAY = "replay.json.gz"
VERSION = 1
REPLAY_START = b'{"version":'  # how the content of every such file begins
MOST_BYTES = 1 << 29  # of the file's content; openb with 8,152 pods has 1 MB
MOST_GPUS = 63


class ReplayLimits(msgspec.Struct, omit_defaults=True):
    """Limits of latency in milliseconds; None: no limit."""

    soft: float | None = None
    hard: float | None = None
    user: str = ""


class ReplayPod(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A pod; `pod_class` is the position of its requests and constraints in `classes`, the rest is as in `Pod`."""

    name: str
    pod_class: int
    namespace: str = "default"
    labels: dict[str, str] = {}
    priority: int = 0
    owner: str = ""
    creation_time: float | None = None
    deletion_time: float | None = None
    gpu_devices: tuple[int, ...] = ()
    latency: ReplayLimits | None = None
    estimated_seconds: float | None = None
    gang: str = ""
    gang_minimum: int = 0
    at_once: int | None = None
    nominated: str = ""
    preempts: bool = True
    resumable: float | None = None
    restart_seconds: float = RESTART_SECONDS


_SHARED = tuple(name for name in ReplayPod.__struct_fields__ if name not in ("pod_class", "labels", "latency"))
"""Fields that are the same in a `Pod`."""


class ReplayFile(msgspec.Struct, kw_only=True):
    """What a run was about."""

    version: int = VERSION
    policy: str  # its name in results
    policy_option: str  # the policy as it was asked for: a name, a weighted sum, a file, a URL or `module:Class`
    policy_fingerprint: str = ""  # of the policy file's content, "" if it is none
    # `protocol`, `seed`, `ratio`, `load`, `mean_duration`, `shuffle`: how pods arrived.
    protocol: Protocol
    seed: int
    ratio: float
    load: float | None = None
    mean_duration: float | None = None
    shuffle: bool = True
    workload: str
    profile: tuple[TypicalPod, ...] | None = None  # the typical pods that were given; None: those of the workload
    nodes: tuple[Node, ...]
    classes: tuple[PodClass, ...]  # different requests and constraints of pods
    pods: tuple[ReplayPod, ...]
    services: SpreadSelectors  # selectors that pods are spread by
    # `recorded`, `from_now`: see `Workload`.
    recorded: tuple[Recorded | None, ...] = ()
    from_now: bool = False

    def arrivals(self) -> str:
        """Return a digest of what two runs must have in common to have the same arrivals."""
        options = self.protocol, self.seed, self.ratio, self.load, self.mean_duration, self.shuffle, self.from_now
        content = self.workload, options, self.nodes, self.classes, self.pods, self.recorded
        return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()

    def load_workload(self) -> Workload:
        return Workload(
            self.workload,
            self.nodes,
            tuple(_pod(row, self.classes) for row in self.pods),
            self.services,
            recorded=self.recorded,
            from_now=self.from_now,
        )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a simulated run, see `ReplayFile`."""

    policy_option: str
    ratio: float
    load: float | None = None
    mean_duration: float | None = None
    shuffle: bool = True
    profile: tuple[TypicalPod, ...] | None = None


def replay_file(workload: Workload, options: RunOptions, policy: str, protocol: Protocol, seed: int) -> ReplayFile:
    classes = {each: i for i, each in enumerate(dict.fromkeys(pod.pod_class for pod in workload.pods))}
    return ReplayFile(
        policy=policy,
        policy_option=redact_url(options.policy_option),
        policy_fingerprint=policy_fingerprint(options.policy_option),
        protocol=protocol,
        seed=seed,
        ratio=options.ratio,
        load=options.load,
        mean_duration=options.mean_duration,
        shuffle=options.shuffle,
        workload=workload.name,
        profile=options.profile,
        nodes=workload.nodes,
        classes=tuple(classes),
        pods=tuple(_row(pod, classes[pod.pod_class]) for pod in workload.pods),
        services=workload.services,
        recorded=workload.recorded,
        from_now=workload.from_now,
    )


def policy_fingerprint(option: str) -> str:
    """Return names and digests of the files of a policy and its order, "" if there are none."""
    limited, order = split_order(option)
    policy, _ = split_limit(limited)
    found = []
    if policy == PACKAGED_POLICY or policy.endswith(SUFFIX):
        with policy_path(policy) as file:
            found.append(str(fingerprint(file)))
    if (order_file := file_of(order)) is not None:
        found.append(str(fingerprint(order_file)))
    return "; ".join(found)


def encode_replay(content: ReplayFile) -> bytes:
    """Return the file's bytes, the same for the same content."""
    # mtime=0: gzip would write the time of day into the header.
    return gzip.compress(msgspec.json.encode(content, order="deterministic") + b"\n", compresslevel=6, mtime=0)


def decode_replay(path: Path, file: BinaryIO) -> ReplayFile:
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            # One byte more than allowed tells a larger file without unpacking all of it.
            text = unpacked.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(path, "", "", f"is damaged: {error}; simulate the run again") from None
    if len(text) > MOST_BYTES:
        raise InputError(path, "", "", f"has more than {MOST_BYTES >> 20} MiB, and is not a file of steersman")
    try:
        content = msgspec.json.decode(text, type=ReplayFile)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(path, "", "", f"is no replay of this version of steersman: {error}") from None
    for problem in _problems(content):
        raise InputError(path, "", "", problem)
    return content


def _problems(content: ReplayFile) -> Iterator[str]:
    if content.version != VERSION:
        yield f"has version {content.version}; expected {VERSION}: simulate the run again"
    if not content.nodes:
        yield "has no nodes"
    for node in content.nodes:
        if not 0 <= node.gpu_count <= MOST_GPUS:
            yield f"node {node.name} has {node.gpu_count} GPUs; expected 0 to {MOST_GPUS}"
    for row in content.pods:
        if not 0 <= row.pod_class < len(content.classes):
            yield f"pod {row.name} has class {row.pod_class} of {len(content.classes)}"
    if content.recorded and len(content.recorded) != len(content.pods):
        yield f"has {len(content.recorded)} recorded placements of {len(content.pods)} pods"


def _row(pod: Pod, pod_class: int) -> ReplayPod:
    limits = pod.latency
    soft, hard = (each if math.isfinite(each) else None for each in (limits.soft, limits.hard))
    latency = ReplayLimits(soft, hard, limits.user)
    return ReplayPod(
        pod_class=pod_class,
        labels=dict(pod.labels),
        latency=latency if latency != ReplayLimits() else None,
        **{name: getattr(pod, name) for name in _SHARED},
    )


def _pod(row: ReplayPod, classes: tuple[PodClass, ...]) -> Pod:
    limits = row.latency or ReplayLimits()
    soft, hard = (math.inf if each is None else each for each in (limits.soft, limits.hard))
    latency = LatencyLimits(soft, hard, limits.user)
    shared = {name: getattr(row, name) for name in _SHARED}
    return Pod(pod_class=classes[row.pod_class], labels=row.labels, latency=latency, **shared)
