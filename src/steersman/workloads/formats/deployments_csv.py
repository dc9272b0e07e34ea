"""AAML's CSV of Deployments that are added and deleted, `deployments.csv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.errors import InputError
from steersman.workloads import deployments, openb
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.formats.base import Content, Losses, WorkloadFormat, differences
from steersman.workloads.kubernetes import Expanded, write_nodes
from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class DeploymentsContent(Content):
    """Rows of Deployments, whose replay gives the pods."""

    files: tuple[Path, ...]

    def has_pods(self) -> bool:
        """See `Content`."""
        return True

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """See `Content`."""
        return [
            pod for file in self.files for pod in deployments.replay(deployments.read_rows(file), file=str(file))
        ], None

    def deployment_rows(self) -> Sequence[deployments.Row]:
        """See `Content`."""
        return [row for file in self.files for row in deployments.read_rows(file)]


class DeploymentsCsv(WorkloadFormat):
    """The format of AAML's workloads; nodes beside it are written as YAML."""

    name = "deployments"
    title = "Deployments as CSV"
    suffixes = CSV_SUFFIXES
    header = f"Deployments {','.join(deployments.COLUMNS)}"

    def recognises(self, file: Path) -> bool:
        """See `WorkloadFormat`."""
        return deployments.is_deployments(openb.header_of(file))

    def open(self, files: Sequence[Path]) -> DeploymentsContent:
        """See `WorkloadFormat`."""
        return DeploymentsContent(tuple(files))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write rows whose replay gives the pods, as far as it does; see `WorkloadFormat`."""
        losses.note_services(workload)
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if not workload.pods:
            return
        rows, originals = deployments.rows_of(workload.pods)
        try:
            replayed = deployments.replay(rows)
        except InputError as error:
            problem = f"these pods cannot be said in {losses.target}: {error.where}: {error.problem}"
            raise losses.error("pod", problem) from None
        for pod, other in zip(originals, replayed, strict=True):
            losses.note("pod", pod.name, differences(_with_limits(pod), other))
        deployments.write_rows(rows, folder / "deployments.csv")


def _with_limits(pod: Pod) -> Pod:
    """Return the pod with its requests for limits where it has none: a row of a Deployment must state some."""
    return dataclasses.replace(
        pod,
        cpu_limit_milli=pod.cpu_limit_milli or pod.requests.cpu_milli,
        memory_limit_bytes=pod.memory_limit_bytes or pod.requests.memory_bytes,
    )
