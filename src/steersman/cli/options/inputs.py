"""Options for a command's workload: files, a packaged one by name, or a live cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.completing import contexts, workloads
from steersman.cli.options.cluster import DEFAULT_CLUSTER, find_cluster
from steersman.cli.options.common import path
from steersman.cli.output.display import Warnings, status_if_slow
from steersman.cli.reading import read_workload, say_understood
from steersman.core.errors import UsageError, unknown_name
from steersman.workloads.workload import RunningPods

if TYPE_CHECKING:
    from steersman.workloads.workload import Workload

EMBEDDED_HELP = "a packaged openb workload by name: default, gpushare40, ..., or default-small (64 nodes of default)"

WorkloadName = Annotated[
    str | None,
    typer.Option(
        "--workload", metavar="NAME", autocompletion=workloads, help=f"Instead of --nodes and --pods: {EMBEDDED_HELP}."
    ),
]
WorkloadNames = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        autocompletion=workloads,
        help=f"Instead of --nodes and --pods: {EMBEDDED_HELP}; one or several.",
    ),
]
FromCluster = Annotated[
    bool,
    typer.Option(
        "--cluster",
        help="Instead of files: the nodes, pods and controllers of a live cluster, read once; nothing is written.",
    ),
]
ClusterKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        parser=path,
        metavar="FILE",
        help=f"With --cluster: its kubeconfig. [default: {DEFAULT_CLUSTER}]",
    ),
]
ClusterContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        autocompletion=contexts,
        help="With --cluster: a context. [default: the current one]",
    ),
]
ClusterOfName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="With --cluster: a cluster of 'steersman cluster up --name'."),
]

NONE_RUNS = "no pods of embedded workloads run"
WAYS = "--nodes with --pods, --workload NAME, or --cluster"


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The live cluster to read, if any.

    Attributes:
        cluster: whether to read one.
        kubeconfig, context: which; None: as kubectl finds it.
        name: a cluster of `steersman cluster up --name` instead.

    Raises:
        UsageError: one of these is given without `cluster`.
    """

    cluster: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for flag, value in (("--kubeconfig", self.kubeconfig), ("--context", self.context), ("--name", self.name)):
            if value is not None and not self.cluster:
                raise UsageError(f"{flag} {value}: belongs to --cluster; give that too, or leave it out")

    def read(self, running: RunningPods, warn: Warnings) -> Workload:
        """Return the workload of the cluster, and print a summary.

        Raises:
            SteersmanError: it does not answer or denies access.
        """
        from steersman.apps.load.live_cluster import LiveCluster

        cluster = LiveCluster(find_cluster(self.kubeconfig, self.context, self.name))
        with status_if_slow(f"reading the cluster of context {cluster.name}"):
            result = cluster.workload(running=running)
        say_understood(result, warn)
        return result

    def to_arguments(self) -> list[str]:
        """Return the options as they were given, without the machine's paths."""
        result = ["--cluster"] if self.cluster else []
        result += ["--kubeconfig", self.kubeconfig.name] if self.kubeconfig is not None else []
        result += ["--context", self.context] if self.context is not None else []
        return result + (["--name", self.name] if self.name is not None else [])


@dataclass(frozen=True, slots=True)
class Inputs:
    """A command's workloads; exactly one kind of source is used.

    Attributes:
        nodes, pods: files or folders.
        names: packaged workloads.
        live: a live cluster.
        running: what to do with running pods.
        strict: whether an invalid object in a file is an error.

    Raises:
        UsageError: no or several kinds of sources are used, one of two files is missing, no packaged workload has that
            name, its pods are to be taken as running, or `strict` is given without files.
    """

    nodes: Path | None = None
    pods: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    live: LiveSource = LiveSource()
    running: RunningPods = RunningPods.FREE
    strict: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        by_files = self.nodes is not None or bool(self.pods)
        used = [
            flags
            for flags, is_used in (
                ("--nodes and --pods" if self.nodes and self.pods else "--nodes" if self.nodes else "--pods", by_files),
                ("--workload", bool(self.names)),
                ("--cluster", self.live.cluster),
            )
            if is_used
        ]
        if len(used) > 1:
            raise UsageError(f"{' and '.join(used)} say both what the workload is; give one: {WAYS}")
        if not used:
            raise UsageError(f"there is no workload; give {WAYS} (see --help)")
        if by_files and not (self.nodes and self.pods):
            raise UsageError(f"{used[0]} is half a workload: --nodes and --pods go together")
        if self.strict and not by_files:
            raise UsageError("--strict belongs to --nodes and --pods; leave it out")
        for name in self.names:
            check_embedded(name)
        if self.names and self._running_arguments():
            (option,) = self._running_arguments()
            raise UsageError(f"{option} belongs to --nodes and --pods, or --cluster; {NONE_RUNS}")

    @property
    def count(self) -> int:
        """Return the number of workloads."""
        return len(self.pods) or len(self.names) or 1

    def read(self, warn: Warnings) -> tuple[Workload, ...]:
        """Return the workloads, at least one, and print their summaries and warnings.

        Raises:
            SteersmanError: a file is invalid, or a cluster does not answer.
        """
        from steersman.workloads.formats.openb.traces import embedded

        if self.live.cluster:
            return (self.live.read(self.running, warn),)
        result = tuple(embedded(name) for name in self.names)
        for workload in result:
            say_understood(workload, warn)
        return result or tuple(
            read_workload(self.nodes, file, self.running, warn, strict=self.strict) for file in self.pods
        )

    def to_arguments(self) -> list[str]:
        """Return the options as they were given, without the machine's paths."""
        files = ["--nodes", self.nodes.name, "--pods", *(file.name for file in self.pods)] if self.nodes else []
        names = [part for name in self.names for part in ("--workload", name)]
        strict = ["--strict"] if self.strict else []
        return [*files, *names, *self.live.to_arguments(), *self._running_arguments(), *strict]

    def _running_arguments(self) -> list[str]:
        """Return the option about running pods, if one was given."""
        return {RunningPods.PINNED: ["--pinned"], RunningPods.FROM_NOW: ["--from-now"]}.get(self.running, [])


def check_embedded(name: str) -> None:
    """Check that there is a packaged workload of that name. Raises UsageError: there is none."""
    from steersman.workloads.formats.openb.traces import known_names

    if name not in known_names():
        raise unknown_name("--workload", name, known_names(), "--nodes FILE --pods FILE")
