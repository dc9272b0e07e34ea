"""The CSV of `workload run` as columns: what its Deployments request after each step, and each filling's peak.

The file says which Deployments were created and deleted, in order; those that follow each other in being deleted are
deleted together. It has no times, and no nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from steersman.apps.dashboard.workload.sampling import chosen_rows
from steersman.core.quantities import bytes_, cpu_milli
from steersman.workloads.generators.deployments import ADD, Row

MOST_LISTED = 500
"""Deployments that are listed, and fillings."""
GIB = 1 << 30


class Filling(msgspec.Struct, kw_only=True):
    """The time between two clearings.

    Attributes:
        steps: first and last step.
        deployments, pods, cpu, memory: most Deployments that were there, and what these requested: cores, GiB.
    """

    steps: tuple[int, int]
    deployments: int
    pods: int
    cpu: float
    memory: float


class DeploymentRow(msgspec.Struct, kw_only=True):
    """A Deployment: its requests for each pod, and the steps that created and deleted it (None: it stayed)."""

    name: str
    pods: int
    cpu: float
    memory: float
    created: int
    deleted: int | None = None


class DeploymentsDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """A file of `workload run`.

    Attributes:
        step: [T] numbers of steps, the first is 1.
        deployments, pods, cpu, memory: [T] what is there after the step: cores and GiB are requested.
        resets: steps after which nothing was there any more.
        fillings: the time before each reset, and after the last.
        list: Deployments in the order of their creation.
        left_out: number of Deployments that are not listed.
    """

    step: list[int]
    deployments: list[int]
    pods: list[int]
    cpu: list[float]
    memory: list[float]
    resets: list[int]
    fillings: list[Filling]
    list: list[DeploymentRow]
    left_out: int


def deployments_document(rows: Sequence[Row]) -> DeploymentsDocument:
    """Return the document of rows."""
    running: dict[str, tuple[Row, int]] = {}
    listed: list[DeploymentRow] = []
    sums: list[_Sum] = []
    resets: list[int] = []
    for i, row in enumerate(rows):
        if row.action == ADD or not sums or rows[i - 1].action == ADD:
            sums.append(sums[-1] if sums else _Sum())
        if row.action == ADD:
            running[row.name] = row, len(listed)
            cpu, memory = cpu_milli(row.cpu_request) / 1000, bytes_(row.mem_request) / GIB
            listed.append(DeploymentRow(name=row.name, pods=row.pod_count, cpu=cpu, memory=memory, created=len(sums)))
            sums[-1] = sums[-1].plus(row, 1)
        elif row.name in running:  # else it was created before the file began
            created, at = running.pop(row.name)
            listed[at].deleted = len(sums)
            sums[-1] = sums[-1].plus(created, -1)
            if not running:
                resets.append(len(sums))
    parts = _parts(len(sums), resets)
    peaks = [max(range(first - 1, last), key=lambda i: sums[i].pods) for first, last in parts]
    shown = chosen_rows(len(sums), keep=[*peaks, *(step - 1 for step in resets)])
    return DeploymentsDocument(
        step=[i + 1 for i in shown],
        deployments=[sums[i].deployments for i in shown],
        pods=[sums[i].pods for i in shown],
        cpu=[sums[i].cores for i in shown],
        memory=[sums[i].gib for i in shown],
        resets=resets,
        fillings=[
            Filling(
                steps=part,
                deployments=sums[i].deployments,
                pods=sums[i].pods,
                cpu=sums[i].cores,
                memory=sums[i].gib,
            )
            for part, i in zip(parts, peaks, strict=True)
        ][:MOST_LISTED],
        list=listed[:MOST_LISTED],
        left_out=max(0, len(listed) - MOST_LISTED),
    )


@dataclass(frozen=True, slots=True)
class _Sum:
    """What is there after a step; `cpu` in milli-CPU, `memory` in bytes."""

    deployments: int = 0
    pods: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, row: Row, sign: int) -> _Sum:
        pods = sign * row.pod_count
        cpu, memory = self.cpu + pods * cpu_milli(row.cpu_request), self.memory + pods * bytes_(row.mem_request)
        return _Sum(self.deployments + sign, self.pods + pods, cpu, memory)

    @property
    def cores(self) -> float:
        return self.cpu / 1000

    @property
    def gib(self) -> float:
        return round(self.memory / GIB, 3)


def _parts(count: int, resets: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last step of each filling."""
    ends = [*resets, *([count] if not resets or resets[-1] < count else [])]
    # Not strict: there is one beginning more than ends.
    return list(zip([1, *(end + 1 for end in ends)], ends, strict=False))
