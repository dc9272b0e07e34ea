"""`steersman cluster nodes`: list, add and remove the nodes of a local cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.commands.cluster.records import DEFAULT_NAME, CreateYes, ExistingCluster, Name, ask, record_of
from steersman.cli.options.common import Format, FormatOption
from steersman.cli.options.declaring import RequiresOption, option, with_options
from steersman.cli.output.display import Progress, print_json, print_table, say, status_if_slow
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.workloads.topology import Hierarchy

app = typer.Typer(rich_markup_mode="markdown")
"""The sub-commands of `steersman cluster nodes`."""

DEFAULT_SHAPES = ("64cpu,256Gi,110pods",)
MAX_NODE_WARNINGS = 10
"""Nodes with problems that are named one by one; further ones are counted."""


@dataclass(frozen=True, slots=True)
class NodeCreationOptions:
    """The simulated nodes to create."""

    node_shape: Annotated[
        list[str],
        option(
            "Capacity of each node. Add 8gpu:A100 for 8 GPUs that pods can share, or 8nvidia.com/gpu:A100 for the "
            "whole GPUs of a device plugin. Several shapes, each with a name: a=8cpu,32Gi:5 b=64cpu,256Gi:20.",
            metavar="[NAME=]SHAPE[:COUNT]",
        ),
    ] = field(default_factory=lambda: [*DEFAULT_SHAPES])
    servers_per_rack: Annotated[int, option("Nodes in a rack (label rack), assigned in order; 0: no racks.", min=0)] = 0
    racks_per_zone: Annotated[
        int,
        option("Racks in a zone (label topology.kubernetes.io/zone); 0: no zones.", min=0),
        RequiresOption("servers_per_rack"),
    ] = 0
    kwok_taint: Annotated[
        bool, option("Taint the nodes with kwok.x-k8s.io/node; only pods that tolerate it run.", "--kwok-taint")
    ] = False

    @property
    def hierarchy(self) -> Hierarchy | None:
        from steersman.workloads.topology import Hierarchy

        return Hierarchy(self.servers_per_rack, self.racks_per_zone) if self.servers_per_rack else None


@app.callback(invoke_without_command=True)
def nodes(context: typer.Context, name: Name = DEFAULT_NAME, output: FormatOption = Format.TABLE) -> None:
    """List the nodes with the resources that their pods request, or add and remove nodes.

    In the table, CPU, memory, pods and GPUs are shown as requested / allocatable.
    """
    if context.invoked_subcommand is not None:
        return
    from steersman.apps.local_cluster.occupancy import node_rows
    from steersman.apps.local_cluster.record import check_name, require
    from steersman.cli.output import cluster_tables

    record = require(check_name(name))
    with status_if_slow("reading nodes and pods"):
        rows, problems = ask(record, node_rows)
    if output is Format.TABLE:
        print_table(cluster_tables.nodes_table(name, rows))
    elif output is Format.JSON:
        print_json(rows)
    else:
        print(cluster_tables.to_csv(rows), end="")
    node_problems = [problem for problem in problems if problem.where.startswith("Node ")]
    for problem in node_problems[:MAX_NODE_WARNINGS]:
        say(f"warning: steersman places no pods on {problem.where}: {problem.field}: {problem.problem}")
    if len(node_problems) > MAX_NODE_WARNINGS:
        say(f"warning: steersman places no pods on {len(node_problems) - MAX_NODE_WARNINGS} more nodes")
    if len(problems) > len(node_problems):
        problems = [problem for problem in problems if problem not in node_problems]
        say(f"warning: {len(problems)} objects are invalid and ignored, such as: {problems[0]}")


@app.command("add")
@with_options
def add_nodes(
    new: NodeCreationOptions,
    existing: ExistingCluster,
    count: Annotated[int, option("Number of nodes of each shape that states none.", min=1)] = 1,
    name: Name = DEFAULT_NAME,
    yes: CreateYes = False,
) -> None:
    """Add simulated nodes to a cluster that runs; their numbers continue those that are there.

    With --kubeconfig or --context it is any cluster in which KWOK runs, see **cluster kwok install**.

    **Example**: steersman cluster nodes add --count 5 --node-shape gpu=96cpu,768Gi,8gpu:A100
    """
    from steersman.apps.local_cluster import nodes as simulated
    from steersman.apps.local_cluster.node_shapes import parse_groups
    from steersman.apps.local_cluster.record import ClusterBackend

    groups, record = parse_groups(new.node_shape), record_of(name, existing)
    if record.way is ClusterBackend.KUBECONFIG and not yes:
        raise UsageError(
            f"this would create nodes in context {record.context!r} of {record.kubeconfig}, which steersman did not "
            "start; --yes if that is meant"
        )

    async def create(client: Any) -> int:
        there, _ = await simulated.node_names(client, name)
        bare = [
            node
            for group in groups
            for node in simulated.equal_nodes(
                count if group.count is None else group.count,
                group.shape,
                group.name,
                simulated.next_number(there, group.name),
            )
        ]
        new_nodes = simulated.prepared(bare, new.hierarchy, kwok_taint=new.kwok_taint)
        await simulated.create_nodes(client, new_nodes, name, progress.update)
        return len(new_nodes)

    with Progress("starting nodes") as progress:
        added = ask(record, create)
    say(f"cluster {name!r} has {added} more nodes")


@app.command("remove")
@with_options
def remove_nodes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Nodes to remove.")] = None,
    count: Annotated[int | None, option("Instead of names: the newest nodes.", min=1)] = None,
    name: Name = DEFAULT_NAME,
    *,
    existing: ExistingCluster,
) -> None:
    """Remove nodes that steersman created; Kubernetes deletes their pods some seconds later.

    **Example**: steersman cluster nodes remove --count 2
    """
    from steersman.apps.local_cluster import nodes as simulated

    if bool(names) == (count is not None):
        raise UsageError("which nodes? give their names, or --count")
    record = record_of(name, existing)

    async def remove(client: Any) -> int:
        _, own = await simulated.node_names(client, name)
        chosen = list(names) if names else own[-count:] if count is not None else []
        for each in chosen:
            if each not in own:
                raise UsageError(f"{each}: there is no such node of those that steersman created in cluster {name!r}")
        if count is not None and count > len(own):
            raise UsageError(f"--count {count}: cluster {name!r} has {len(own)} nodes that steersman created")
        return await simulated.delete_nodes(client, name, chosen)

    with status_if_slow("removing nodes"):
        removed = ask(record, remove)
    say(f"cluster {name!r} has {removed} fewer nodes")
