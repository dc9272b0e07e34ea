"""Options that say which workload a command works on: files, an embedded one by name, or a live cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.cluster_options import DEFAULT_CLUSTER, ask_cluster, find_cluster
from steersman.cli.display import Warnings, said_if_slow
from steersman.cli.options import path
from steersman.cli.reading import read_workload, say_understood
from steersman.errors import UsageError
from steersman.workloads.workload import Running

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.workloads.workload import Workload

EMBEDDED_HELP = "an embedded openb workload by name: default, gpushare40, ..., or default-small (64 nodes of default)"

WorkloadName = Annotated[
    str | None, typer.Option("--workload", metavar="NAME", help=f"Instead of --nodes and --pods: {EMBEDDED_HELP}.")
]
WorkloadNames = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="NAME", help=f"Instead of --nodes and --pods: {EMBEDDED_HELP}; one or several."),
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
        help=f"With --cluster: which one. [default: {DEFAULT_CLUSTER}]",
    ),
]
ClusterContext = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="With --cluster: a context. [default: the current one]"),
]

NONE_RUNS = "no pods of embedded workloads run"
WAYS = "--nodes with --pods, --workload NAME, or --cluster"
CLUSTER_NAME = "cluster"
"""The workload of a live cluster is called by its context, and so where there is none."""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """Which live cluster is read, if any.

    Attributes:
        cluster: whether one is.
        kubeconfig, context: which; None: as kubectl finds it.

    Raises:
        UsageError: it is said which, but not that one is read.
    """

    cluster: bool = False
    kubeconfig: Path | None = None
    context: str | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--kubeconfig", self.kubeconfig), ("--context", self.context)):
            if value is not None and not self.cluster:
                raise UsageError(f"{flag} {value}: belongs to --cluster; give that too, or leave it out")

    def read(self, running: Running, warn: Warnings) -> Workload:
        """Return the workload of the cluster, and say what it was understood to be.

        Raises:
            SteersmanError: it does not answer or does not let us look.
        """
        from steersman.live import workload

        target = find_cluster(self.kubeconfig, self.context, None)
        name = target.config.context or CLUSTER_NAME

        async def read(client: Client) -> Workload:
            return await workload.read_workload(client, name, running)

        with said_if_slow(f"reading the cluster of context {name}"):
            found = ask_cluster(target, read)
        say_understood(found, warn)
        return found

    def words(self) -> list[str]:
        """Return the options as they were given, without the machine's paths."""
        found = ["--cluster"] if self.cluster else []
        found += ["--kubeconfig", self.kubeconfig.name] if self.kubeconfig is not None else []
        return found + (["--context", self.context] if self.context is not None else [])


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a command was told about its workloads; exactly one way is used.

    Attributes:
        nodes, pods: files or folders.
        names: embedded workloads.
        live: a live cluster.
        running: what becomes of pods that run.

    Raises:
        UsageError: none or several ways are used, one of two files is missing, no embedded workload has that name, or
            its pods are to be taken as running.
    """

    nodes: Path | None = None
    pods: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    live: LiveSource = LiveSource()
    running: Running = Running.FREE

    def __post_init__(self) -> None:
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
        for name in self.names:
            check_embedded(name)
        if self.names and self._running_words():
            (option,) = self._running_words()
            raise UsageError(f"{option} belongs to --nodes and --pods, or --cluster; {NONE_RUNS}")

    @property
    def count(self) -> int:
        """How many workloads there are."""
        return len(self.pods) or len(self.names) or 1

    def read(self, warn: Warnings) -> tuple[Workload, ...]:
        """Return the workloads, at least one, and say what there is to say about them.

        Raises:
            SteersmanError: a file is wrong, or a cluster does not answer.
        """
        from steersman.workloads.openb import embedded

        if self.live.cluster:
            return (self.live.read(self.running, warn),)
        found = tuple(embedded(name) for name in self.names)
        for workload in found:
            say_understood(workload, warn)
        return found or tuple(read_workload(self.nodes, file, self.running, warn) for file in self.pods)

    def words(self) -> list[str]:
        """Return the options as they were given, without the machine's paths."""
        files = ["--nodes", self.nodes.name, "--pods", *(file.name for file in self.pods)] if self.nodes else []
        names = [part for name in self.names for part in ("--workload", name)]
        return [*files, *names, *self.live.words(), *self._running_words()]

    def _running_words(self) -> list[str]:
        """Return the option that says what becomes of pods that run, if there is one."""
        return {Running.PINNED: ["--pinned"], Running.FROM_NOW: ["--from-now"]}.get(self.running, [])


def check_embedded(name: str) -> None:
    """Raise UsageError if no embedded workload is called so."""
    from steersman.workloads.openb import known_names

    if name not in known_names():
        raise UsageError(
            f"--workload {name}: there is no such embedded workload; there are {', '.join(known_names())}, and files "
            "are given by --nodes and --pods"
        )
