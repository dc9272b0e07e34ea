"""`steersman workload record` and `snapshot`: write the decisions and the state of a live cluster to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.completing import objectives, views
from steersman.cli.options.cluster import ClusterOptions, check_new_folder, run_with_client, scheduler
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.output.display import Progress, Warnings, say, status_if_slow
from steersman.cli.output.logs import say_warnings
from steersman.core.errors import UsageError
from steersman.workloads.files import check_writable
from steersman.workloads.workload import Workload, workload_name

if TYPE_CHECKING:
    from steersman.kubernetes.client import Client

MAX_RECORDED_BYTES = 4 << 30


@with_options
def record(
    output: Annotated[Path, path_option("Folder of the recording: new or empty.", metavar="FOLDER")],
    scheduler_name: Annotated[
        str, option("Scheduler whose decisions are recorded.", parser=scheduler, metavar="NAME")
    ] = "default-scheduler",
    view: Annotated[
        str, option("View that agents observe: cluster, or gpu for GPU nodes.", autocompletion=views)
    ] = "cluster",
    objective: Annotated[
        str | None,
        option(
            "Rewarded objective, as in train. [default: allocation with GPUs, else balance]", autocompletion=objectives
        ),
    ] = None,
    decisions: Annotated[int, option("Maximum number of decisions.", min=2)] = 5000,
    minutes: Annotated[float | None, option("Maximum duration in minutes. [default: until Ctrl-C]", min=0)] = None,
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

    from steersman.apps.recorder import recording
    from steersman.apps.runtime.listing import read_nodes
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
    output: Annotated[Path, path_option("A YAML file to write, or a new folder for several.")],
    free: Annotated[bool, option("Leave out where pods run.", "--free")] = False,
    anonymise: Annotated[
        bool, option("Hash names and values of labels; equal ones stay equal.", "--anonymise")
    ] = False,
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

    from steersman.apps.recorder import snapshot as taking
    from steersman.apps.recorder.snapshot import anonymised

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
