"""`steersman explain`: why a policy would put a pod where it would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.cluster_options import ClusterName, Context, Kubeconfig, ask_cluster, find_cluster
from steersman.cli.display import Warnings, print_table, print_text, said_if_slow
from steersman.cli.inputs import Inputs, WorkloadName
from steersman.cli.options import NODES_HELP, POLICIES_HELP, Format, FormatOption, path
from steersman.errors import SteersmanError, UsageError
from steersman.workloads.collection import no_collection
from steersman.workloads.workload import Running

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.service.messages import Explanation
    from steersman.workloads.workload import Workload

FEATURES = 10
"""Shown; --format json has all."""


def explain(
    pod: Annotated[str, typer.Option(metavar="NAME", help="Which pod, as NAME or NAMESPACE/NAME.")],
    policy: Annotated[str, typer.Option(metavar="POLICY", help=f"Who decides: {POLICIES_HELP}")] = "steersman",
    nodes: Annotated[
        Path | None, typer.Option(parser=path, metavar="FILE", help=f"Instead of a live cluster: {NODES_HELP}")
    ] = None,
    pods: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help="And its pods; those with spec.nodeName run there already."),
    ] = None,
    workload: WorkloadName = None,
    output_format: FormatOption = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Say where a policy would put a pod, what told that node from the runner-up, and why others are out.

    Of a live cluster, of one in files, or of an embedded workload. Nothing is changed. A pod that runs is looked at as
    if it did not.

    **Example**: steersman explain --policy steersman --pod training/worker-0
    """
    by_files = nodes is not None or pods is not None or workload is not None
    if by_files and (kubeconfig or context or name):
        raise UsageError("--kubeconfig, --context and --name are of a live cluster; leave them out, or the workload")
    files, names = (pods,) if pods else (), (workload,) if workload else ()
    inputs = Inputs(nodes, files, names, running=Running.AS_WRITTEN) if by_files else None
    if output_format is Format.CSV:
        raise UsageError("--format csv does not fit an explanation; table and json do")

    with no_collection():  # nodes, pods and modules stay to the end: looking through them takes 0.3 s
        from steersman.policies.registry import resolve
        from steersman.service.explaining import explain_pod

        decides = resolve(policy)
        warn = Warnings()
        cluster = inputs.read(warn)[0] if inputs is not None else _take(kubeconfig, context, name, warn)
        with said_if_slow("working out what the policy sees"):
            explanation = explain_pod(decides, cluster, _find(cluster, pod))
    if output_format is Format.JSON:
        import msgspec

        print_text(msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode())
    else:
        _show(explanation, pod)


def _take(kubeconfig: Path | None, context: str | None, name: str | None, warn: Warnings) -> Workload:
    """Return a live cluster as a workload. Raises SteersmanError: there is none, or it does not answer."""
    from steersman.live import snapshot

    async def take(client: Client) -> Workload:
        return await snapshot.take(client, "the cluster", free=False)

    cluster = ask_cluster(find_cluster(kubeconfig, context, name), take)
    warn(cluster.warnings)
    return cluster


def _find(workload: Workload, wanted: str) -> int:
    """The number of a pod. Raises SteersmanError: there is none of the name, or several."""
    namespace, slash, name = wanted.rpartition("/")
    found = [
        i for i, each in enumerate(workload.pods) if each.name == name and (not slash or each.namespace == namespace)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        there = ", ".join(sorted(f"{workload.pods[i].namespace}/{name}" for i in found))
        raise SteersmanError(f"--pod {wanted}: there are {there}; one of them is right")
    raise SteersmanError(f"--pod {wanted}: there is no such pod among the {len(workload.pods)} of {workload.name}")


def _show(found: Explanation, pod: str) -> None:
    from rich import box
    from rich.table import Table

    who = f"{found.policy} (its member {found.member})" if found.member else found.policy
    if not found.node:
        print_text(f"{who} finds no node for {pod}: it fits on none of {found.nodes}")
    else:
        others = ", ".join(f"{each.node} {each.points:.1f}" for each in found.runners_up)
        then = f"; then {others}" if others else ""
        print_text(f"{who} puts {pod} on {found.node} ({found.points:.1f} points, score {found.score:.4g}){then}")
        same = f"{found.equal} other {'nodes have' if found.equal > 1 else 'node has'} the same score; "
        print_text(f"{same if found.equal else ''}what decided: {found.decided_by}")
        if found.runners_up:
            print_text(f"0 and 100 points are the worst and the best of the nodes it fits on, {found.spread:.4g} apart")
    if found.features:
        table = Table("What told them apart", box=box.SIMPLE_HEAD, title=f"{found.node} and {found.compared_with}")
        for title in (found.node, found.compared_with, "points"):
            table.add_column(title, justify="right")
        for each in found.features[:FEATURES]:
            table.add_row(each.name, f"{each.value:.4g}", f"{each.other:.4g}", f"{each.points:+.1f}")
        rest = found.features[FEATURES:]
        if rest:
            table.add_row(f"{len(rest)} more", "", "", f"{sum(each.points for each in rest):+.1f}")
        print_table(table)
    if found.refused:
        table = Table("Why nodes are out", box=box.SIMPLE_HEAD)
        table.add_column("nodes", justify="right")
        for reason, count in sorted(found.refused.items(), key=lambda item: -item[1]):
            table.add_row(reason, str(count))
        print_table(table)
