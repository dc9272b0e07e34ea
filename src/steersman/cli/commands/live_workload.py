"""`steersman workload run`, `replay`, `record` and `snapshot`: workloads and live clusters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from steersman.cli.completing import objectives, views
from steersman.cli.options.arrivals import FillingOptions, Interval, Wait
from steersman.cli.options.cluster import (
    ClusterOptions,
    WritableClusterOptions,
    check_new_folder,
    dns_label,
    optional_dns_label,
    optional_scheduler,
    run_with_client,
    scheduler,
)
from steersman.cli.options.common import advanced_path, parse_seeds, path, path_option
from steersman.cli.options.declaring import Excludes, RequiresOption, advanced, option, with_options
from steersman.cli.output.display import Progress, Warnings, say, status_if_slow
from steersman.cli.output.logs import MessagesFileOption, check_log_file, log_messages, say_warnings
from steersman.cluster.model import Pod, limits_of
from steersman.core.errors import UsageError
from steersman.workloads.files import check_writable
from steersman.workloads.workload import FIRST_SEED, Workload, workload_name

if TYPE_CHECKING:
    from steersman.kubernetes.client import Client
    from steersman.live.load.copies import CopyOptions, CopyStats
    from steersman.live.load.driver import FillStats
    from steersman.live.load.live_cluster import ClusterTarget
    from steersman.live.load.replay import ReplayStats
    from steersman.workloads.generators.deployments import Row

ANNOTATION_KEY = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True, slots=True)
class PlaybackOptions:
    patience: float = advanced("Seconds that a Deployment waits for earlier pods to be bound.", default=60.0, min=0)
    image: str = advanced("Image of the containers; it must have the command sleep.", default="busybox")
    resume: bool = option("Continue a run that was stopped.", default=False)
    clean: bool = option("Only delete what 'workload run' and 'workload replay' created.", default=False)
    log_file: MessagesFileOption = None

    def find(self, cluster: WritableClusterOptions) -> ClusterTarget | None:
        """Return the cluster; None: it was only to be cleaned, and is."""
        target = cluster.find()
        log_messages(self.log_file)
        say_warnings()
        if not self.clean:
            return target
        from steersman.live.load.run_state import clean

        target.require_consent("delete what 'steersman workload' made", yes=cluster.yes)
        with Progress("deleting pods") as progress:
            count = run_with_client(target, lambda client: clean(client, progress.update))
        say(f"deleted {count} pods")
        return None


@dataclass(frozen=True, slots=True)
class DeploymentCopyOptions:
    RULES: ClassVar = (RequiresOption("manifest"),)

    manifest: Path | None = advanced_path(
        "Create and delete copies of the Deployments of this file instead of random ones.", Excludes("resume")
    )
    copies: int | None = advanced("With --manifest: copies at a time of each Deployment. [default: 30]", min=1)
    pause: float | None = advanced(
        "With --manifest: seconds from when all pods have nodes to deletion. [default: 10]", min=0
    )
    cycles: int | None = advanced("With --manifest: how often. [default: until it is stopped]", min=1)


@dataclass(frozen=True, slots=True)
class RunRecordOptions:
    annotation: list[str] | None = advanced(
        "Annotation of the pods, such as latencySoftConstraint=35 (milliseconds); repeatable.", metavar="KEY=VALUE"
    )
    scheduler_name: str | None = option(
        "Scheduler of the pods (spec.schedulerName). [default: steersman; with --manifest the one it names]",
        parser=scheduler,
        metavar="NAME",
    )
    namespace: str = advanced("Namespace of the Deployments.", default="default", parser=dns_label, metavar="NAME")
    seed: int | None = advanced(
        f"Seed of the Deployments, as in workload generate. [default: {FIRST_SEED}]", Excludes("seeds"), min=0
    )
    seeds: str | None = advanced(
        "Several seeds in turn: their number, or e.g. 42-51; each fills --resets times.", metavar="SEEDS"
    )
    output: Path | None = path_option("CSV file of the run, for replay and simulate.")


@with_options
def run(
    filling: FillingOptions,
    copies: DeploymentCopyOptions,
    options: RunRecordOptions,
    playing: PlaybackOptions,
    cluster: WritableClusterOptions,
) -> None:
    """Fill a live cluster with random Deployments to a target load, clear it, and fill it again.

    The next Deployment is created when --interval is over and all pods are bound. Loads are shares of the nodes that
    take pods without tolerations; other pods' requests count. The state is kept in the cluster (a ConfigMap), so that a
    run that was stopped or killed continues with --resume, with its original options.

    The CSV has the columns name, pod_count, cpu_request, cpu_limit, mem_request, mem_limit, action (add or delete).

    With --manifest copies of its Deployments (nginx-1, nginx-2, ...) are created, --interval apart. When all pods have
    nodes, or --patience is over, and then --pause, all are deleted, and the next cycle begins. Ctrl-C deletes them.

    **Example**: steersman workload run --cpu-load 0.5 --resets 2 --interval 2 --output run.csv

    **Copies**: steersman workload run --manifest nginx.yaml --copies 30 --interval 2 --pause 10 --cycles 5
    """
    check_log_file(playing.log_file)
    annotations = _annotations(options.annotation or [])
    target = playing.find(cluster)
    if target is None:
        return
    if options.output is not None:
        check_writable("--output", options.output)
    target.require_consent("create and delete Deployments", yes=cluster.yes)
    if copies.manifest is not None:
        from steersman.live.load.copies import DEFAULT_COPIES, DEFAULT_PAUSE, CopyOptions

        manner = CopyOptions(
            copies=copies.copies or DEFAULT_COPIES,
            interval=filling.interval,
            patience=playing.patience,
            pause=DEFAULT_PAUSE if copies.pause is None else copies.pause,
            cycles=copies.cycles,
            scheduler_name=options.scheduler_name or "",
            annotations=annotations,
        )
        _run_copies(target, copies.manifest, manner, options)
        return

    from steersman.live.load.driver import FillOptions
    from steersman.live.load.load_driver import LoadDriver

    default = FIRST_SEED if options.seed is None else options.seed
    drawn = (default,) if options.seeds is None else parse_seeds(options.seeds)
    chosen = options.scheduler_name or "steersman"
    fill = FillOptions(chosen, playing.image, filling.interval, filling.wait, playing.patience, annotations)
    with Progress("playing Deployments") as progress, _stoppable(progress) as report:
        driver = LoadDriver(
            target,
            filling.settings,
            fill,
            drawn,
            options.namespace,
            options.output,
            report=report,
            say=say,
            yes=cluster.yes,
        )
        tally = driver.run(resume=playing.resume)
    if tally is not None:
        _tell_rows(tally)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=path,
            metavar="FILE...",
            help="Pods: an openb pod list, or files or folders of Kubernetes YAML; or the CSV of workload run.",
        ),
    ] = None
    speed: float = option(
        "Seconds of the trace per second, such as 3600; also shortens --interval, --wait.", default=1.0
    )
    rate: float = option(
        "Pods per second, instead of their times. [default: their times; without, all at once]", default=0.0
    )
    scheduler_name: str = option(
        'Scheduler of the pods; "": the one they name.', default="steersman", parser=optional_scheduler, metavar="NAME"
    )
    namespace: str = advanced(
        "Namespace of all pods. [default: their own]", default="", parser=optional_dns_label, metavar="NAME"
    )
    create_namespaces: bool = advanced("Create missing namespaces of the pods; they are kept.", default=False)
    interval: Interval = 10.0
    wait: Wait = 60.0


@with_options
def replay(options: ReplayOptions, playing: PlaybackOptions, cluster: WritableClusterOptions) -> None:
    """Replay a workload on a live cluster: create and delete its pods at their times.

    A pod runs as long as in the trace from when it is bound, as with --protocol timed in the simulator. Pods without an
    end stay. The CSV of workload run is replayed as Deployments, with --interval and --wait. A replay that was stopped
    continues with --resume and the same files.

    **Example**: steersman workload replay pods.csv --speed 3600 --scheduler-name default-scheduler
    """
    check_log_file(playing.log_file)
    target = playing.find(cluster)
    if target is None:
        return
    if not options.files:
        raise UsageError("replay needs a FILE of pods or Deployments")
    target.require_consent("create and delete pods", yes=cluster.yes)

    from steersman.live.load import commands
    from steersman.live.load.driver import FillOptions
    from steersman.live.load.replay import ReplaySpeed, placed

    pace, speed, files = ReplaySpeed(options.speed, options.rate), options.speed, options.files
    chosen, image, resume = options.scheduler_name, playing.image, playing.resume
    with status_if_slow("reading the workload"):
        rows, pods = _read(files)
    with Progress("playing the workload") as progress, _stoppable(progress) as report:
        if rows:
            manner = FillOptions(
                chosen or "steersman", image, options.interval / speed, options.wait / speed, playing.patience
            )

            async def play_rows(client: Client) -> FillStats:
                place, file = commands.RunTarget(client, options.namespace or "default", say), str(files[0])
                return await commands.replay_rows(place, rows, manner, file, report, resume=resume)

            _tell_rows(run_with_client(target, play_rows))
            return

        async def play(client: Client) -> ReplayStats:
            moved = placed(pods, chosen, options.namespace)
            place, create = commands.RunTarget(client, options.namespace or "default"), options.create_namespaces
            return await commands.replay_pods(
                place, moved, pace, report, image=image, resume=resume, create_namespaces=create
            )

        tally = run_with_client(target, play)
    waiting = f"; {tally.waiting} have no node" if tally.waiting else ""
    say(f"created {tally.created} pods, deleted {tally.deleted}{waiting}")


@contextmanager
def _stoppable(progress: Progress) -> Iterator[Callable[[int, int], None]]:
    """Forward progress, and print how to continue if the command is stopped after it has begun."""
    has_begun = False

    def report(done: int, total: int) -> None:
        nonlocal has_begun
        has_begun = True
        progress.update(done, total)

    try:
        yield report
    except KeyboardInterrupt:
        # Before the first progress nothing was created that --resume could continue.
        if has_begun:
            say("stopped; the same command with --resume goes on, with --clean it removes what was made")
        raise


def _run_copies(target: ClusterTarget, manifest: Path, options: CopyOptions, played: RunRecordOptions) -> None:
    from steersman.live.load.copies import CopyLoop, check_names, read_manifest
    from steersman.live.load.driver import RowLog

    deployments = read_manifest(manifest)
    check_names(deployments, options.copies, manifest)
    pods = options.copies * sum(each.replicas for each in deployments)
    often = "until it is stopped" if options.cycles is None else f"{options.cycles} times"
    say(f"{options.copies * len(deployments)} Deployments of {pods} pods are created and deleted, {often}")
    with Progress("playing copies", estimate=False) as progress:

        async def play(client: Client) -> CopyStats:
            log = RowLog(played.output, ())
            return await CopyLoop(client, played.namespace, deployments, options, log, progress.update, say).run()

        try:
            tally = run_with_client(target, play)
        except KeyboardInterrupt:
            say("stopped; what was created is deleted")
            raise
    timed_out = tally.timed_out_cycles
    late = f"; in {timed_out} of them pods still had no node after --patience" if timed_out else ""
    say(f"{tally.cycles} cycles: made {tally.deployments} Deployments of {tally.pods} pods{late}")


def _annotations(given: list[str]) -> dict[str, str]:

    result = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not (separator and re.fullmatch(ANNOTATION_KEY, key)):
            raise UsageError(f"--annotation {text}: expected KEY=VALUE, such as latencySoftConstraint=35")
        if key in result:
            raise UsageError(f"--annotation {text}: {key} is given twice")
        result[key] = value
    for problem in limits_of(result).ignored:
        raise UsageError(f"--annotation: {problem.removesuffix('; it is ignored')}")
    return result


def _tell_rows(tally: FillStats) -> None:
    late = f"; {tally.timed_out} times pods still had no node after --patience" if tally.timed_out else ""
    say(f"made {tally.deployments} Deployments of {tally.pods} pods{late}")


def _read(files: list[Path]) -> tuple[tuple[Row, ...], tuple[Pod, ...]]:
    """Return the content of files: Deployments as CSV, or pods."""
    from steersman.workloads.loading import load_pods, open_source

    result = [open_source(file).deployment_rows() for file in files]
    if all(rows is not None for rows in result):
        return tuple(row for rows in result for row in rows or ()), ()
    pods = tuple(pod for file in files for pod in load_pods(file))
    twice = [key for key, count in Counter(f"{pod.namespace}/{pod.name}" for pod in pods).items() if count > 1]
    if twice:
        raise UsageError(f"pod {twice[0]} is in several of these files; names must be unique")
    return (), pods


MAX_RECORDED_BYTES = 4 << 30


@with_options
def record(
    output: Path = path_option("Folder of the recording: new or empty.", default=..., metavar="FOLDER"),
    scheduler_name: str = option(
        "Scheduler whose decisions are recorded.", default="default-scheduler", parser=scheduler, metavar="NAME"
    ),
    view: str = option(
        "View that agents observe: cluster, or gpu for GPU nodes.", default="cluster", autocompletion=views
    ),
    objective: str | None = option(
        "Rewarded objective, as in train. [default: allocation with GPUs, else balance]", autocompletion=objectives
    ),
    decisions: int = option("Maximum number of decisions.", default=5000, min=2),
    minutes: float | None = option("Maximum duration in minutes. [default: until Ctrl-C]", min=0),
    *,
    cluster: ClusterOptions,
) -> None:
    """Record the decisions of a live cluster's scheduler as training data.

    Ends after --decisions or --minutes, or at Ctrl-C. The folder has transitions.npz for train --recording, and
    nodes.yaml and pods.yaml, the workload that was scheduled. Nothing is changed in the cluster.

    **Example**: steersman workload record --minutes 10 --output recording, then
    steersman train --algorithm imitation --recording recording/transitions.npz --nodes recording/nodes.yaml
    --workload recording/pods.yaml --protocol timed --output imitator
    """
    target = cluster.find()
    say_warnings()

    from steersman.live.recorder import recording
    from steersman.live.runtime.listing import read_nodes
    from steersman.objectives import registry
    from steersman.policies.features import view as find_view

    seen = find_view(view)
    if objective is not None:
        registry.resolve(objective)
    check_new_folder(output)
    with Progress("recording decisions") as progress:
        nodes = run_with_client(target, read_nodes)
        # Features before and after each decision, as 32-bit numbers.
        needed = 2 * 4 * decisions * len(nodes) * len(seen.node)
        if needed > MAX_RECORDED_BYTES:
            most = decisions * MAX_RECORDED_BYTES // needed
            raise UsageError(f"--decisions {decisions} on {len(nodes)} nodes do not fit into memory; {most} do")
        rewarded = registry.resolve(objective or ("allocation" if any(node.gpu_count for node in nodes) else "balance"))
        registry.check(rewarded, "the cluster", nodes, None)
        limit = None if minutes is None else 60 * minutes
        journal = run_with_client(
            target,
            lambda client: recording.watch(
                client,
                scheduler_name,
                decisions,
                limit,
                report=lambda done: progress.update(done, decisions),
                started=lambda: say(f"recording {scheduler_name}; Ctrl-C ends it"),
            ),
        )
    with status_if_slow(f"working out what was seen before {journal.decisions} decisions"):
        written = recording.write(journal, seen, rewarded, output)
    count = written.skipped_decisions
    skipped = f"; {count} decisions were left out: their order is not known" if count else ""
    say(
        f"wrote {output}: {written.transitions} transitions ({rewarded.name}), "
        f"{written.nodes} nodes, {written.pods} pods{skipped}"
    )


@with_options
def snapshot(
    output: Path = path_option("A YAML file to write, or a new folder for several.", default=...),
    free: bool = option("Leave out where pods run.", default=False),
    anonymise: bool = option("Hash names and values of labels; equal ones stay equal.", default=False),
    *,
    cluster: ClusterOptions,
) -> None:
    """Write a live cluster as a workload: its nodes, its pods and where they run, and the selectors of its Services.

    Run **evaluate** on a snapshot to see what another policy would have done with these pods, and what it would do
    from now on. Only fields that scheduling reads are written: no environment, no commands, no secrets.

    **Example**: steersman workload snapshot --output mine.yaml, then
    steersman evaluate --nodes mine.yaml --pods mine.yaml --protocol arrivals --policy kube-default fgd --output out
    """
    target = cluster.find()

    from steersman.live.recorder import snapshot as taking
    from steersman.live.recorder.snapshot import anonymised

    if taking.is_file(output):
        check_writable("--output", output)
    else:
        check_new_folder(output)

    async def take(client: Client) -> tuple[Workload, str]:
        workload = await taking.take_snapshot(client, workload_name(output), free=free)
        return workload, await taking.identity(client) if anonymise else ""

    with status_if_slow("reading the cluster"):
        workload, secret = run_with_client(target, take)
    Warnings()(workload.warnings)
    if anonymise:
        workload = anonymised(workload, secret)
    with status_if_slow(f"writing {len(workload.nodes)} nodes and {len(workload.pods)} pods"):
        taking.write_snapshot(workload, output)
    bound = sum(bool(pod.constraints.node_name) for pod in workload.pods)
    say(f"wrote {output}: {len(workload.nodes)} nodes, {len(workload.pods)} pods, {bound} of them on their nodes")
