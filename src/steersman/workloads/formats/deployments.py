"""The CSV of AAML's scheduler: Deployments that are created and deleted, `deployments.csv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.core.errors import InputError
from steersman.workloads.formats.base import Losses, PodContent, TableFormat, differences
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import write_nodes
from steersman.workloads.generators import deployments
from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class DeploymentsContent(PodContent):
    """Rows of Deployments; replaying them gives the pods."""

    files: tuple[Path, ...]

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods of a replay, see `FormatContent`."""
        return [
            pod for file in self.files for pod in deployments.replay(deployments.read_rows(file), file=str(file))
        ], None

    def deployment_rows(self) -> Sequence[deployments.Row]:
        """Return the rows, see `FormatContent`."""
        return [row for file in self.files for row in deployments.read_rows(file)]


class DeploymentsCsv(TableFormat):
    """The format of AAML's workloads; nodes beside it are written as YAML."""

    name = "deployments"
    title = "Deployments as CSV"
    headers = ((deployments.TITLE, deployments.COLUMNS),)

    def has_header(self, columns: Set[str]) -> bool:
        """Return whether a header is the format's, see `TableFormat`."""
        return deployments.is_deployments(columns)

    def open(self, files: Sequence[Path]) -> DeploymentsContent:
        """Return the rows of the files, see `WorkloadFormat`."""
        return DeploymentsContent(tuple(files))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write rows whose replay gives the pods, as far as rows can; see `WorkloadFormat`."""
        losses.note_services(workload)
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if not workload.pods:
            return
        rows, originals = deployments.rows_of(workload.pods)
        try:
            replayed = deployments.replay(rows)
        except InputError as error:
            problem = f"these pods cannot be represented in {losses.target}: {error.where}: {error.problem}"
            raise losses.error("pod", problem) from None
        for pod, other in zip(originals, replayed, strict=True):
            losses.note("pod", pod.name, differences(_with_limits(pod), other))
        deployments.write_rows(rows, folder / "deployments.csv")


def _with_limits(pod: Pod) -> Pod:
    """Return the pod with its requests as limits where it has none: a row of a Deployment must state limits."""
    return dataclasses.replace(
        pod,
        cpu_limit_milli=pod.cpu_limit_milli or pod.requests.cpu_milli,
        memory_limit_bytes=pod.memory_limit_bytes or pod.requests.memory_bytes,
    )
