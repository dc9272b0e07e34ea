"""What `steersman workload run` is to do, as it is kept in the cluster: from options to rows, the same at any time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import msgspec
import numpy as np

from steersman.cluster.model import Node
from steersman.errors import SteersmanError, UsageError
from steersman.live.driver import Manner
from steersman.live.reading import Room
from steersman.live.state import RunState, new_id
from steersman.workloads.deployments import Row, Settings, generate

RESOURCES = ("cpu", "memory", "pods")
LOADS = ("cpu_load", "memory_load", "pod_load")


@dataclass(frozen=True, slots=True)
class Filling:
    """A cluster that is filled and cleared.

    Attributes:
        settings: which Deployments come, up to which loads of the whole cluster, and how often it is filled.
        seeds: of the Deployments; with each of them the cluster is filled `settings.resets` times.
        room: of the cluster when this began, so that a run that is resumed does what it was to do.
        manner: how the Deployments are made.
    """

    settings: Settings
    seeds: tuple[int, ...]
    room: Room
    manner: Manner

    def rows(self) -> tuple[Row, ...]:
        """The Deployments, those of `generate` for nodes with this room and what others leave of the loads.

        Raises:
            SteersmanError: others use as much already.
            UsageError: no node could hold a pod, or there would be too many.
        """
        loads = {}
        for name, resource, used in zip(LOADS, RESOURCES, self.room.used, strict=True):
            target = getattr(self.settings, name)
            if used >= target:
                raise SteersmanError(
                    f"pods use {100 * used:.0f} % of the cluster's {resource} already, and --{name.replace('_', '-')} "
                    f"is {100 * target:.0f} %"
                )
            loads[name] = target - used
        settings = replace(self.settings, **loads)
        nodes = _nodes(self.room)
        return tuple(row for seed in self.seeds for row in generate(settings, nodes, np.random.default_rng(seed)))

    def state(self, rows: Sequence[Row]) -> RunState:
        """The state of a run that begins."""
        return RunState("run", new_id(), digest(rows), msgspec.to_builtins(self), len(rows))

    @classmethod
    def of(cls, state: RunState) -> Filling:
        """What a run that was stopped is to do. Raises SteersmanError: it is of another version of steersman."""
        try:
            return msgspec.convert(state.options, cls)
        except (msgspec.ValidationError, UsageError):
            raise SteersmanError(OTHER_VERSION) from None


OTHER_VERSION = "this run was begun by another version of steersman; --clean removes what it made"


def digest(rows: Sequence[Row]) -> str:
    """What tells rows from other rows."""
    found = hashlib.sha256()
    for row in rows:
        found.update("\0".join(str(getattr(row, field.name)) for field in fields(row)).encode() + b"\n")
    return found.hexdigest()[:16]


def check_digest(state: RunState, found: str, problem: str) -> None:
    """Raise SteersmanError with this problem if a run that is resumed would do something else than it began."""
    if state.digest != found:
        raise SteersmanError(problem)


def _nodes(room: Room) -> list[Node]:
    """Nodes with this room: all that matters is their sum, and what the largest one has."""
    nodes, cpu, memory, pods = list[Node](), room.cpu_milli, room.memory_bytes, room.pods
    while cpu or memory:
        part, share = min(cpu, room.largest_cpu_milli), min(memory, room.largest_memory_bytes)
        nodes.append(Node(f"node-{len(nodes)}", part, share, pods))
        cpu, memory, pods = cpu - part, memory - share, 0
    return nodes
