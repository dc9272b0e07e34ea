"""Options for a command's workload: files, a packaged one by name, or a live cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from steersman.cli.completing import workloads
from steersman.cli.options.arrivals import ON_WORKLOADS
from steersman.cli.options.cluster import ClusterOptions, KubeconfigOptions
from steersman.cli.options.common import NODES_HELP, path_option
from steersman.cli.options.declaring import Excludes, RequiresOption, RequiresProtocol, advanced, option
from steersman.cli.output.display import Warnings, status_if_slow
from steersman.cli.reading import holds_nodes, read_workload, say_understood
from steersman.core.errors import UsageError, unknown_name
from steersman.workloads.workload import RunningPods, Workload

EMBEDDED_HELP = "a packaged openb workload: default, gpushare40, ..., or default-small (64 nodes)"
WAYS = "--nodes with --pods, --workload NAME, or --cluster"

FromCluster = Annotated[
    bool,
    option(
        "Instead of files: the nodes, pods and controllers of a live cluster, read once; nothing is written.",
        "--cluster",
    ),
    ON_WORKLOADS,
]
Pinned = Annotated[
    bool,
    advanced(
        "Kubernetes objects: running pods stay where they are, and pods drawn from them in inflation may only go "
        "to the same node. [default: they are placed again, except those of DaemonSets, static ones, and those that "
        "no other node allows, that are being deleted or whose node offers less than runs there]",
        "--pinned",
    ),
    RequiresProtocol("inflation", "arrivals"),
    RequiresOption("nodes", "cluster"),
    Excludes("from_now"),
]
FromNow = Annotated[
    bool,
    advanced(
        "Kubernetes objects: running pods stay where they are, then pending ones arrive, then in inflation "
        "more like them. [default: all are placed from scratch]",
        "--from-now",
    ),
    RequiresProtocol("inflation", "arrivals"),
    RequiresOption("nodes", "cluster"),
]


@dataclass(frozen=True, slots=True)
class FileInputs:
    """Workloads in files, or packaged ones."""

    nodes: Annotated[Path | None, path_option(NODES_HELP), ON_WORKLOADS] = None
    pods: Annotated[
        list[Path] | None,
        path_option(
            "Pods: a CSV table (openb, Philly, jobs, ...), a log of jobs (.swf), or a file or folder of Kubernetes "
            "YAML; evaluate takes several. Without --nodes it must hold nodes, or the size of a machine."
        ),
        ON_WORKLOADS,
    ] = None
    workload: Annotated[
        list[str] | None,
        option(f"Instead of --nodes and --pods: {EMBEDDED_HELP}.", metavar="NAME", autocompletion=workloads),
        ON_WORKLOADS,
    ] = None
    strict: Annotated[
        bool,
        advanced(
            "Kubernetes objects in files: an invalid one is an error. [default: it is named and left out]", "--strict"
        ),
        RequiresOption("nodes"),
    ] = False

    @property
    def count(self) -> int:
        return len(self.pods or self.workload or ())

    def check(self, *, several: bool = False) -> None:
        """Check that there is exactly one kind of source, and one workload unless a command takes several."""
        used = self._used()
        if len(used) > 1:
            raise UsageError(f"{' and '.join(used)} say both what the workload is; give one: {WAYS}")
        if not used:
            raise UsageError(f"there is no workload; give {WAYS} (see --help)")
        is_half = bool(self.nodes) != bool(self.pods)
        if is_half and not (self.pods and all(map(holds_nodes, self.pods))):
            if self.nodes:
                raise UsageError("--pods is missing: --nodes alone is half a workload")
            names = ", ".join(map(str, self.pods or ()))
            raise UsageError(f"--nodes is missing: found no nodes in {names}")
        if self.count > 1 and not several:
            raise UsageError(f"{used[0].split()[-1]} names {self.count} workloads; give one")
        from steersman.workloads.formats.openb import known_names

        for name in self.workload or ():
            if name not in known_names():
                raise unknown_name("--workload", name, known_names(), "--nodes FILE --pods FILE")

    def _used(self) -> list[str]:
        files = [flag for flag, value in (("--nodes", self.nodes), ("--pods", self.pods)) if value]
        return [*([" and ".join(files)] if files else []), *(["--workload"] if self.workload else [])]

    @property
    def running(self) -> RunningPods:
        return RunningPods.FREE

    @property
    def lives(self) -> bool:
        """Return whether to read when pods were created, began to run and ended."""
        return False

    def read(self, warn: Warnings, *, replayed: bool = False) -> tuple[Workload, ...]:
        """Return the workloads, at least one, and print their summaries and warnings.

        `replayed`: whether pods of Kubernetes objects arrive and leave when they did.
        """
        from steersman.workloads.formats.openb import embedded

        result = tuple(embedded(name) for name in self.workload or ())
        for workload in result:
            say_understood(workload, warn)
        return result or tuple(
            read_workload(
                self.nodes,
                file,
                RunningPods.REPLAYED if replayed else self.running,
                warn,
                strict=self.strict,
                lives=self.lives,
            )
            for file in self.pods or ()
        )


@dataclass(frozen=True, slots=True)
class Inputs(FileInputs):
    """Workloads in files, packaged ones, or a live cluster."""

    cluster: FromCluster = False
    live: ClusterOptions = field(default_factory=ClusterOptions)
    pinned: Pinned = False

    @property
    def running(self) -> RunningPods:
        return RunningPods.PINNED if self.pinned else RunningPods.FREE

    def read(self, warn: Warnings, *, replayed: bool = False) -> tuple[Workload, ...]:
        if self.cluster:
            running = RunningPods.REPLAYED if replayed else self.running
            return (read_cluster(self.live, running, warn, lives=self.lives),)
        return FileInputs.read(self, warn, replayed=replayed)

    def _used(self) -> list[str]:
        return [*FileInputs._used(self), *(["--cluster"] if self.cluster else [])]


class PresentCluster:
    """Inputs whose running pods stay, read with the times at which pods were created, began to run and ended."""

    __slots__ = ()

    @property
    def running(self) -> RunningPods:
        return RunningPods.FROM_NOW

    @property
    def lives(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class InputsWithRunningPods(Inputs):
    """Inputs whose running pods may stay while more arrive."""

    from_now: FromNow = False

    @property
    def running(self) -> RunningPods:
        return running_pods(self.pinned, self.from_now)


def running_pods(pinned: bool, from_now: bool) -> RunningPods:
    return RunningPods.PINNED if pinned else RunningPods.FROM_NOW if from_now else RunningPods.FREE


def read_cluster(live: KubeconfigOptions, running: RunningPods, warn: Warnings, *, lives: bool = False) -> Workload:
    from steersman.apps.load.live_cluster import LiveCluster

    cluster = LiveCluster(live.find())
    with status_if_slow(f"reading the cluster of context {cluster.name}"):
        result = cluster.workload(running=running, lives=lives)
    say_understood(result, warn)
    return result
