"""Plan of `steersman workload run`, stored in the cluster: from options to rows, the same whenever it is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import msgspec
import numpy as np

from steersman.apps.load.capacity import ClusterCapacity
from steersman.apps.load.driver import FillOptions
from steersman.apps.load.run_state import RunState, new_id
from steersman.cluster.model import Node
from steersman.core.errors import SteersmanError, UsageError
from steersman.workloads.generators.deployments import DeploymentSettings, Row, generate

RESOURCES = ("cpu", "memory", "pods")
LOADS = ("cpu_load", "memory_load", "pod_load")


@dataclass(frozen=True, slots=True)
class FillPlan:
    """How a cluster is filled and cleared.

    Attributes:
        settings: which Deployments are drawn, up to which load of the whole cluster, and how often it is filled.
        seeds: seeds of the Deployments; with each of them the cluster is filled `settings.resets` times.
        room: capacity of the cluster when the run began, so that a resumed run does the same.
        fill_options: how the Deployments are created.
    """

    settings: DeploymentSettings
    seeds: tuple[int, ...]
    room: ClusterCapacity
    fill_options: FillOptions

    def rows(self) -> tuple[Row, ...]:
        """Return the Deployments that `generate` draws for this capacity and the load that other pods leave.

        Raises:
            SteersmanError: other pods use as much already.
            UsageError: no node could hold a pod, or there would be too many pods.
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
        """Return the state of a new run."""
        return RunState("run", new_id(), digest(rows), msgspec.to_builtins(self), len(rows))

    @classmethod
    def of(cls, state: RunState) -> FillPlan:
        """Return the plan of a stopped run. Raises SteersmanError: it is of another version of steersman."""
        try:
            return msgspec.convert(state.options, cls)
        except (msgspec.ValidationError, UsageError):
            raise SteersmanError(OTHER_VERSION) from None


OTHER_VERSION = "this run was begun by another version of steersman; --clean removes what it made"


def digest(rows: Sequence[Row]) -> str:
    """Return a digest of rows."""
    sha256 = hashlib.sha256()
    for row in rows:
        sha256.update("\0".join(str(getattr(row, field.name)) for field in fields(row)).encode() + b"\n")
    return sha256.hexdigest()[:16]


def check_digest(state: RunState, result: str, problem: str) -> None:
    """Raise SteersmanError with this problem if a resumed run would do something else than it began."""
    if state.digest != result:
        raise SteersmanError(problem)


def _nodes(room: ClusterCapacity) -> list[Node]:
    """Return nodes of this capacity: only their sum and the largest node matter."""
    nodes, cpu, memory, pods = list[Node](), room.cpu_milli, room.memory_bytes, room.pods
    while cpu or memory:
        part, share = min(cpu, room.largest_cpu_milli), min(memory, room.largest_memory_bytes)
        # All places for pods are on the first node, since only their sum matters.
        nodes.append(Node(f"node-{len(nodes)}", part, share, pods))
        cpu, memory, pods = cpu - part, memory - share, 0
    return nodes
