"""`steersman workload record` and `snapshot`: what a live cluster and its scheduler did, as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.cluster_options import (
    ClusterName,
    Context,
    Kubeconfig,
    ask_cluster,
    check_new_folder,
    find_cluster,
    scheduler,
)
from steersman.cli.display import Progress, Warnings, said_if_slow, say
from steersman.cli.logs import say_warnings
from steersman.cli.options import path
from steersman.errors import UsageError

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.workloads.workload import Workload

MAX_RECORDED_BYTES = 4 << 30


def record(
    output: Annotated[
        Path,
        typer.Option(parser=path, metavar="FOLDER", help="Where the recording goes: a folder that is new or empty."),
    ],
    scheduler_name: Annotated[
        str, typer.Option(parser=scheduler, metavar="NAME", help="Whose decisions are recorded.")
    ] = "default-scheduler",
    view: Annotated[str, typer.Option(help="What agents will see: cluster, or gpu for GPU nodes.")] = "cluster",
    objective: Annotated[
        str | None,
        typer.Option(
            help="What agents will be rewarded for, as in train. [default: allocation with GPUs, else balance]"
        ),
    ] = None,
    decisions: Annotated[int, typer.Option(min=2, help="End after so many.")] = 5000,
    minutes: Annotated[float | None, typer.Option(min=0, help="End after so many. [default: at Ctrl-C]")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Watch a scheduler of a live cluster at work, and write its decisions as data to learn from.

    Ends after --decisions or --minutes, or at Ctrl-C. The folder has transitions.npz for train --recording, and
    nodes.yaml and pods.yaml, the workload that was scheduled. Nothing is changed in the cluster.

    **Example**: steersman workload record --minutes 10 --output seen, then
    steersman train --algorithm imitation --recording seen/transitions.npz --nodes seen/nodes.yaml
    --workload seen/pods.yaml --protocol timed --output imitator
    """
    target = find_cluster(kubeconfig, context, name)
    say_warnings()

    from steersman.features import view as find_view
    from steersman.live import recorder
    from steersman.live.reading import read_nodes
    from steersman.objectives import registry

    seen = find_view(view)
    if objective is not None:
        registry.resolve(objective)
    check_new_folder(output)
    with Progress("recording decisions") as progress:
        nodes = ask_cluster(target, read_nodes)
        needed = 2 * 4 * decisions * len(nodes) * len(seen.node)
        if needed > MAX_RECORDED_BYTES:
            most = decisions * MAX_RECORDED_BYTES // needed
            raise UsageError(f"--decisions {decisions} on {len(nodes)} nodes do not fit into memory; {most} do")
        mix = registry.resolve(objective or ("allocation" if any(node.gpu_count for node in nodes) else "balance"))
        registry.check(mix, "the cluster", nodes, None)
        limit = None if minutes is None else 60 * minutes
        journal = ask_cluster(
            target,
            lambda client: recorder.watch(
                client,
                scheduler_name,
                decisions,
                limit,
                report=lambda done: progress.update(done, decisions),
                started=lambda: say(f"recording {scheduler_name}; Ctrl-C ends it"),
            ),
        )
    with said_if_slow(f"working out what was seen before {journal.decisions} decisions"):
        written = recorder.write(journal, seen, mix, output)
    left_out = f"; {written.left_out} decisions were left out: their order is not known" if written.left_out else ""
    say(
        f"wrote {output}: {written.transitions} transitions ({mix.name}), {written.nodes} nodes, {written.pods} pods"
        f"{left_out}"
    )


def snapshot(
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FILE", help="A YAML file to write, or a new folder for several.")
    ],
    free: Annotated[
        bool,
        typer.Option("--free", help="Leave out where pods run, so that nobody can tell how the cluster did."),
    ] = False,
    anonymise: Annotated[
        bool,
        typer.Option("--anonymise", help="Hashes instead of names and of values of labels; who equals whom stays."),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Write a live cluster as a workload: its nodes, its pods and where they run, and what selects them.

    What would another policy have done with these pods, and what would it do from now on? **evaluate** on a snapshot
    says it. Only what scheduling looks at is written: no environment, no commands, no secrets.

    **Example**: steersman workload snapshot --output mine.yaml, then
    steersman evaluate --nodes mine.yaml --pods mine.yaml --protocol arrivals --policy kube-default fgd --output out
    """
    target = find_cluster(kubeconfig, context, name)

    from steersman.live import snapshot as taking
    from steersman.live.anonymise import anonymised
    from steersman.workloads.files import check_writable
    from steersman.workloads.workload import workload_name

    if taking.is_file(output):
        check_writable("--output", output)
    else:
        check_new_folder(output)

    async def take(client: Client) -> tuple[Workload, str]:
        found = await taking.take(client, workload_name(output), free=free)
        return found, await taking.identity(client) if anonymise else ""

    with said_if_slow("reading the cluster"):
        found, secret = ask_cluster(target, take)
    Warnings()(found.warnings)
    if anonymise:
        found = anonymised(found, secret)
    with said_if_slow(f"writing {len(found.nodes)} nodes and {len(found.pods)} pods"):
        taking.write(found, output)
    bound = sum(bool(pod.constraints.node_name) for pod in found.pods)
    say(f"wrote {output}: {len(found.nodes)} nodes, {len(found.pods)} pods, {bound} of them on their nodes")
