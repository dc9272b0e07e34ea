"""Options for a command's workload: files, a packaged one by name, or a live cluster, and how they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from steersman.cli.completing import POLICY_SUFFIX, workloads
from steersman.cli.options.arrivals import ON_WORKLOADS
from steersman.cli.options.cluster import ClusterOptions, KubeconfigOptions
from steersman.cli.options.common import NODES_HELP, path_option
from steersman.cli.options.declaring import Excludes, RequiresOption, RequiresProtocol, advanced, given_options, option
from steersman.cli.output.display import Warnings, one_line, say, status_if_slow
from steersman.core.errors import SteersmanError, UsageError, unknown_name
from steersman.workloads.files import check_writable
from steersman.workloads.workload import RunningPods, Workload

FASTER = " (kubectl's -o json is read some 25 times as fast)"


def read_workload(
    nodes: Path | None, pods: Path, running: RunningPods, warn: Warnings, *, strict: bool = False, lives: bool = False
) -> Workload:
    from steersman.workloads.loading import load_workload

    yaml = pods.name.removesuffix(".gz").endswith((".yaml", ".yml"))
    with status_if_slow(f"reading {pods}{FASTER if yaml else ''}"):
        workload = load_workload(nodes, pods, running=running, strict=strict, lives=lives)
    say_understood(workload, warn)
    return workload


def holds_nodes(file: Path) -> bool:
    """Return whether a file or folder of pods holds nodes, too. Raises InputError: it is missing or invalid."""
    from steersman.workloads.loading import open_source

    return open_source(file).has_nodes()


def say_understood(workload: Workload, warn: Warnings) -> None:
    if workload.understood:
        say(one_line(f"{workload.name}: {workload.understood}"))
    if workload.nodes and workload.account.left_out:
        say(one_line(f"{workload.name}: {workload.account.sentence}"))
    warn(workload.warnings)


def is_named(spec: str, namespace: str, name: str) -> bool:
    """Return whether NAME or NAMESPACE/NAME specifies a pod of this namespace and name."""
    wanted, slash, own = spec.rpartition("/")
    return name == own and (not slash or namespace == wanted)


def pod_index(workload: Workload, spec: str) -> int:
    """Return the index of the pod that NAME or NAMESPACE/NAME specifies."""
    matches = [i for i, pod in enumerate(workload.pods) if is_named(spec, pod.namespace, pod.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise several_pods(spec, [(workload.pods[i].namespace, workload.pods[i].name) for i in matches])
    raise SteersmanError(f"--pod {spec}: there is no such pod among the {len(workload.pods)} of {workload.name}")


def several_pods(spec: str, keys: Sequence[tuple[str, str]]) -> SteersmanError:
    candidates = ", ".join(sorted(f"{namespace}/{name}" for namespace, name in keys))
    return SteersmanError(f"--pod {spec}: several pods have that name; choose one of {candidates}")


def check_model_output(output: Path, kind: str, read: Callable[[Path], object], else_what: str = "") -> None:
    """Check that a file of weights can be written, before anything is computed.

    Args:
        kind: what it will be, such as `a policy file`.
        else_what: end of the error about its name, for other files that the command writes.
    """
    if output.suffix != POLICY_SUFFIX:
        raise UsageError(f"--output {output}: the name of {kind} must end in {POLICY_SUFFIX}{else_what}")
    check_overwriting(output, kind, read)


def check_overwriting(output: Path, kind: str, read: Callable[[Path], object]) -> None:
    """Check that --output can be written and overwrites nothing but a file of its kind, see `check_model_output`."""
    if output.exists():
        try:
            read(output)
        except SteersmanError:
            raise UsageError(f"--output {output}: exists and is not {kind}; name another file") from None
    check_writable("--output", output)


EMBEDDED_HELP = "a packaged openb workload: default, gpushare40, ..., or default-small (64 nodes)"
WAYS = "--nodes with --pods, --workload NAME, or --cluster"

FromCluster = Annotated[
    bool,
    option("Instead of files: the nodes, pods and controllers of a live cluster, read once; nothing is written."),
    ON_WORKLOADS,
]
Pinned = Annotated[
    bool,
    advanced(
        "Kubernetes objects: running pods stay where they are, and pods drawn from them in inflation may only go "
        "to the same node. [default: they are placed again, except those of DaemonSets, static ones, and those that "
        "no other node allows, that are being deleted or whose node offers less than runs there]"
    ),
    RequiresProtocol("inflation", "arrivals"),
    RequiresOption("nodes", "cluster"),
    Excludes("from_now"),
]
FromNow = Annotated[
    bool,
    advanced(
        "Kubernetes objects: running pods stay where they are, then pending ones arrive, then in inflation "
        "more like them. [default: all are placed from scratch]"
    ),
    RequiresProtocol("inflation", "arrivals"),
    RequiresOption("nodes", "cluster"),
]


@dataclass(frozen=True, slots=True)
class FileInputs:
    nodes: Path | None = path_option(NODES_HELP, ON_WORKLOADS)
    pods: list[Path] | None = path_option(
        "Pods: a CSV table (openb, Philly, jobs, ...), a log of jobs (.swf), or a file or folder of Kubernetes "
        "YAML; evaluate takes several. Without --nodes it must hold nodes, or the size of a machine.",
        ON_WORKLOADS,
    )
    workload: list[str] | None = option(
        f"Instead of --nodes and --pods: {EMBEDDED_HELP}.", ON_WORKLOADS, metavar="NAME", autocompletion=workloads
    )
    strict: bool = advanced(
        "Kubernetes objects in files: an invalid one is an error. [default: it is named and left out]",
        RequiresOption("nodes"),
        default=False,
    )

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

    def read(self, warn: Warnings, running: RunningPods | None = None, *, lives: bool = False) -> tuple[Workload, ...]:
        """Return the workloads, at least one, and print their summaries and warnings.

        Args:
            running: what becomes of running pods; None: what the options say.
            lives: whether to read when pods were created, began to run and ended.
        """
        from steersman.workloads.formats.openb import embedded

        result = tuple(embedded(name) for name in self.workload or ())
        for workload in result:
            say_understood(workload, warn)
        running = running or self.running
        return result or tuple(
            read_workload(self.nodes, file, running, warn, strict=self.strict, lives=lives) for file in self.pods or ()
        )


@dataclass(frozen=True, slots=True)
class Inputs(FileInputs):
    cluster: FromCluster = False
    live: ClusterOptions = field(default_factory=ClusterOptions)
    pinned: Pinned = False

    @property
    def running(self) -> RunningPods:
        return RunningPods.PINNED if self.pinned else RunningPods.FREE

    def read(self, warn: Warnings, running: RunningPods | None = None, *, lives: bool = False) -> tuple[Workload, ...]:
        if self.cluster:
            return (read_cluster(self.live, running or self.running, warn, lives=lives),)
        return FileInputs.read(self, warn, running, lives=lives)

    def _used(self) -> list[str]:
        return [*FileInputs._used(self), *(["--cluster"] if self.cluster else [])]


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
    from steersman.live.load.live_cluster import LiveCluster

    cluster = LiveCluster(live.find())
    with status_if_slow(f"reading the cluster of context {cluster.name}"):
        result = cluster.workload(running=running, lives=lives)
    say_understood(result, warn)
    return result


def reads_files(inputs: FileInputs, cluster: ClusterOptions) -> bool:
    """Return whether a cluster is read from files; else none are given, and the live one is asked."""
    if not given_options(inputs):
        return False
    if given_options(cluster):
        raise UsageError(
            "--kubeconfig, --context and --name select a live cluster; leave them out, or leave out --nodes, "
            "--pods and --workload"
        )
    inputs.check()
    return True


NowOption = Annotated[
    str | None,
    option(
        "Files: the time that counts as now, such as 2026-11-01T12:00:00Z; without a zone it is local. [default: the "
        "latest time that their objects state as past; give it if the clock of one object is far ahead]",
        metavar="TIME",
    ),
]


class AssumedNow(NamedTuple):
    seconds: float | None  # since 1970; None: it is unknown
    sentence: str = ""  # which time it is, and why; "": it is the present, or unknown


def read_now(
    inputs: FileInputs, target: ClusterOptions, warn: Warnings, now: str | None = None
) -> tuple[Workload, AssumedNow]:
    """Return a cluster, whose running pods stay where they are, and the time that counts as now.

    Args:
        now: the time of the files; None: they are as old as the last thing that they tell of.
    """
    try:
        stated = None if now is None else datetime.fromisoformat(now).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"--now {now}: is not a time; expected one such as 2026-11-01T12:00:00Z") from None
    if reads_files(inputs, target):
        source = inputs.read(warn, RunningPods.FROM_NOW, lives=True)[0]
        seconds = source.lives.latest if stated is None else stated
        if seconds is None:
            return source, AssumedNow(None)
        if stated is not None:
            # What ended later is not known yet.
            ended = tuple(each for each in source.lives.ended if each.ended <= stated)
            source = replace(source, lives=replace(source.lives, ended=ended))
        why = "the latest time in the files" if stated is None else "as --now says"
        return source, AssumedNow(seconds, f"taken as now: {clock(seconds)}, {why}")
    if stated is not None:
        raise UsageError("--now is for a cluster in files; leave it out, or give --nodes and --pods")
    source = read_cluster(target, RunningPods.FROM_NOW, warn, lives=True)
    return source, AssumedNow(time.time())


def check_moment(source: Workload) -> None:
    """Raise UsageError for a trace, whose pods arrive over time: it is not a snapshot of a cluster."""
    if any(pod.deletion_time is not None for pod in source.pods):
        expected = "expected a cluster's objects, as kubectl get nodes,pods -A -o yaml writes them"
        raise UsageError(f"{source.name} is a trace, whose pods state when they end; {expected}")


def say_if_gone(workload: Workload, spec: str) -> None:
    """Raise SteersmanError for a pod of a cluster, read with `lives`, that no scheduler looks at."""
    if any(is_named(spec, pod.namespace, pod.name) for pod in workload.pods):
        return
    ended = {(each.pod.namespace, each.pod.name): each.ended for each in workload.lives.ended}
    matches = sorted(key for key in {*ended, *workload.lives.present} if is_named(spec, *key))
    if len(matches) > 1:
        raise several_pods(spec, matches)
    if matches and matches[0] in ended:
        raise SteersmanError(f"--pod {spec}: it does not wait: it ended at {clock(ended[matches[0]])}")
    if matches:
        raise SteersmanError(f"--pod {spec}: no scheduler looks at it: it has scheduling gates, or is being deleted")


def clock(seconds: float) -> str:
    """Return a time of day with its date, here, of seconds since 1970."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
