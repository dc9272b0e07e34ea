"""`steersman workload run` and `replay`: workloads on live clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.cluster_options import (
    ClusterName,
    Context,
    Kubeconfig,
    Yes,
    ask_cluster,
    dns_label,
    find_cluster,
    optional_dns_label,
    optional_scheduler,
    scheduler,
)
from steersman.cli.deployment_options import (
    CpuLoad,
    CpuRequests,
    Interval,
    MemoryLoad,
    MemoryRequests,
    PodLoad,
    Replicas,
    Resets,
    Wait,
    parse_range,
    value_lists,
)
from steersman.cli.display import Progress, said_if_slow, say
from steersman.cli.logs import say_warnings
from steersman.cli.options import parse_seeds, path
from steersman.errors import UsageError
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.cluster.model import Pod
    from steersman.kube.client import Client
    from steersman.live.driver import Tally as RowTally
    from steersman.live.replay import Tally as PodTally
    from steersman.live.target import Target
    from steersman.workloads.deployments import Row

DEFAULT_SEED = 42

Namespace = Annotated[str, typer.Option(parser=dns_label, metavar="NAME", help="Where the Deployments go.")]
SchedulerName = Annotated[
    str, typer.Option(parser=scheduler, metavar="NAME", help="Who is to schedule the pods (spec.schedulerName).")
]
Patience = Annotated[
    float, typer.Option(min=0, help="Seconds that a Deployment waits for earlier pods that have no node yet.")
]
Image = Annotated[str, typer.Option(help="Image of the containers; it must have the command sleep.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what was stopped.")]
Clean = Annotated[
    bool, typer.Option("--clean", help="Only remove what 'workload run' and 'workload replay' made, and nothing else.")
]


def run(
    cpu_load: CpuLoad = 0.5,
    memory_load: MemoryLoad = 0.5,
    pod_load: PodLoad = 0.5,
    cluster_resets: Resets = 1,
    scheduler_name: SchedulerName = "steersman",
    namespace: Namespace = "default",
    interval: Interval = 10.0,
    wait: Wait = 60.0,
    patience: Patience = 60.0,
    replicas: Replicas = "5-15",
    cpu_requests: CpuRequests = "",
    memory_requests: MemoryRequests = "",
    image: Image = "busybox",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help=f"Which Deployments: the same as in workload generate. [default: {DEFAULT_SEED}]"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A-B", help="Several seeds, one after the other; each fills --resets times.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help="Write what was done as a CSV, which replay and simulate read."),
    ] = None,
    resume: Resume = False,
    clean: Clean = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
    yes: Yes = False,
) -> None:
    """Fill a live cluster with random Deployments as far as asked, clear it, fill it anew.

    The next Deployment comes when --interval is over and all pods have nodes. Loads are shares of the nodes that take
    pods without tolerations; what others' pods use counts. What was done is kept in the cluster (a ConfigMap), so that
    a run that was stopped, or killed, goes on with --resume, with the options that it began with.

    The CSV has the columns name, pod_count, cpu_request, cpu_limit, mem_request, mem_limit, action (add or delete).

    **Example**: steersman workload run --cpu-load 0.5 --resets 2 --interval 2 --output run.csv
    """
    target = find_cluster(kubeconfig, context, name)
    say_warnings()
    if clean:
        _clean(target, yes)
        return
    if output is not None:
        check_writable("--output", output)
    target.require_consent("create and delete Deployments", yes=yes)

    from steersman.live import commands
    from steersman.live.driver import Manner
    from steersman.workloads.deployments import Settings

    if seed is not None and seeds is not None:
        raise UsageError("--seed is one, --seeds are several; give one of them")
    drawn = parse_seeds(seeds) if seeds is not None else (DEFAULT_SEED if seed is None else seed,)
    least, most = parse_range("--replicas", replicas)
    settings = Settings(
        cpu_load=cpu_load,
        memory_load=memory_load,
        pod_load=pod_load,
        resets=cluster_resets,
        interval_seconds=interval,
        wait_seconds=wait,
        min_replicas=least,
        max_replicas=most,
        **value_lists(cpu_requests, memory_requests),
    )
    manner = Manner(scheduler_name, image, interval, wait, patience)
    with Progress("playing Deployments") as progress, _Stoppable(progress) as report:

        async def play(client: Client) -> RowTally:
            place = commands.Place(client, namespace, say)
            if resume:
                return await commands.fill_on(place, output, report)
            return await commands.fill(place, settings, drawn, manner, output, report)

        tally = ask_cluster(target, play)
    _tell_rows(tally)


def replay(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=path,
            metavar="FILE...",
            help="Pods: an openb pod list, or files or folders of Kubernetes YAML; or the CSV of workload run.",
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Seconds of the trace in one second, such as 3600; also shortens --interval, --wait.")
    ] = 1.0,
    rate: Annotated[
        float, typer.Option(help="Pods a second, instead of their times. [default: their times; without, all at once]")
    ] = 0.0,
    scheduler_name: Annotated[
        str,
        typer.Option(
            parser=optional_scheduler,
            metavar="NAME",
            help='Who is to schedule the pods; "": whom they name.',
        ),
    ] = "steersman",
    namespace: Annotated[
        str,
        typer.Option(parser=optional_dns_label, metavar="NAME", help="Put all pods here. [default: where they say]"),
    ] = "",
    create_namespaces: Annotated[
        bool, typer.Option("--create-namespaces", help="Make the pods' namespaces that are missing; they stay.")
    ] = False,
    interval: Interval = 10.0,
    wait: Wait = 60.0,
    patience: Patience = 60.0,
    image: Image = "busybox",
    resume: Resume = False,
    clean: Clean = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
    yes: Yes = False,
) -> None:
    """Play a workload on a live cluster: create its pods at their times, and delete them at theirs.

    A pod runs as long as in the trace from when it got a node, as with --protocol timed in the simulator. Pods without
    an end stay. The CSV of workload run is played as Deployments, with --interval and --wait. A replay that was stopped
    goes on with --resume and the same files.

    **Example**: steersman workload replay pods.csv --speed 3600 --scheduler-name default-scheduler
    """
    target = find_cluster(kubeconfig, context, name)
    say_warnings()
    if clean:
        _clean(target, yes)
        return
    if not files:
        raise UsageError("replay needs a FILE of pods or Deployments")
    target.require_consent("create and delete pods", yes=yes)

    from steersman.live import commands
    from steersman.live.driver import Manner
    from steersman.live.replay import Pace, placed

    pace = Pace(speed, rate)
    with said_if_slow("reading the workload"):
        source = _read(files)
    with Progress("playing the workload") as progress, _Stoppable(progress) as report:
        if source.rows:
            manner = Manner(scheduler_name or "steersman", image, interval / speed, wait / speed, patience)

            async def play_rows(client: Client) -> RowTally:
                place, file = commands.Place(client, namespace or "default", say), str(files[0])
                return await commands.replay_rows(place, source.rows, manner, file, report, resume=resume)

            _tell_rows(ask_cluster(target, play_rows))
            return

        async def play(client: Client) -> PodTally:
            pods = placed(source.pods, scheduler_name, namespace)
            place = commands.Place(client, namespace or "default")
            return await commands.replay_pods(
                place, pods, pace, report, image=image, resume=resume, create_namespaces=create_namespaces
            )

        tally = ask_cluster(target, play)
    waiting = f"; {tally.waiting} have no node" if tally.waiting else ""
    say(f"created {tally.created} pods, deleted {tally.deleted}{waiting}")


@dataclass(frozen=True, slots=True)
class _Source:
    """What files hold: Deployments as CSV, or pods."""

    rows: tuple[Row, ...] = ()
    pods: tuple[Pod, ...] = ()


class _Stoppable:
    """Hands on how far a command is, and says how to go on where it is stopped after it has begun."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.begun = progress, False

    def __enter__(self) -> Callable[[int, int], None]:
        return self._report

    def _report(self, done: int, total: int) -> None:
        self.begun = True
        self.progress.update(done, total)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.begun and kind is not None and issubclass(kind, KeyboardInterrupt):
            say("stopped; the same command with --resume goes on, with --clean it removes what was made")


def _clean(target: Target, yes: bool) -> None:
    from steersman.live.cleaning import clean

    target.require_consent("delete what 'steersman workload' made", yes=yes)
    with Progress("deleting pods") as progress:
        count = ask_cluster(target, lambda client: clean(client, progress.update))
    say(f"deleted {count} pods")


def _tell_rows(tally: RowTally) -> None:
    late = f"; {tally.waited} times pods still had no node after --patience" if tally.waited else ""
    say(f"made {tally.deployments} Deployments of {tally.pods} pods{late}")


def _read(files: list[Path]) -> _Source:
    """Deployments if there is nothing else, else pods."""
    from steersman.workloads.loading import load_pods, open_source

    found = [open_source(file).deployment_rows() for file in files]
    if all(rows is not None for rows in found):
        return _Source(rows=tuple(row for rows in found for row in rows or ()))
    pods = tuple(pod for file in files for pod in load_pods(file))
    twice = [key for key, count in Counter(f"{pod.namespace}/{pod.name}" for pod in pods).items() if count > 1]
    if twice:
        raise UsageError(f"pod {twice[0]} is in several of these files; names must be unique")
    return _Source(pods=pods)
