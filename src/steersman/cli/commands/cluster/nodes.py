"""`steersman cluster nodes`: add and remove the nodes of a local cluster; the cluster that a command is about."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.apps.local_cluster.record import ClusterBackend, ClusterRecord, check_name, command, folder_of, require
from steersman.cli.completing import contexts
from steersman.cli.options.common import CommandGroup, path_option
from steersman.cli.options.declaring import RequiresOption, advanced, given_options, option, with_options
from steersman.cli.output.display import Progress, say, status_if_slow
from steersman.core.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from steersman.kubernetes.config import KubeConfig
    from steersman.workloads.topology import Hierarchy

DEFAULT_NAME = "steersman"
Name = Annotated[str, option("Name of the cluster; several can run at a time.", metavar="NAME")]
CreateYes = Annotated[bool, option("Create nodes in a cluster that steersman did not start.", "--yes")]


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """A cluster that steersman did not start, if it is one."""

    kubeconfig: Annotated[Path | None, path_option("Use the cluster of this file, in which KWOK runs; start none.")] = (
        None
    )
    context: Annotated[
        str | None, option("Its context. [default: the file's current one]", metavar="NAME", autocompletion=contexts)
    ] = None

    def load(self) -> KubeConfig | None:
        """Return its configuration, None without options. Raises SteersmanError: the file cannot be used."""
        from steersman.kubernetes.config import load

        return None if self.kubeconfig is None and self.context is None else load(self.kubeconfig, self.context)


def record_of(name: str, existing: ExistingCluster) -> ClusterRecord:
    """Return the record of a cluster: the named one, or that of a kubeconfig, whose nodes the default name marks."""
    if given_options(existing) and name != DEFAULT_NAME:
        raise UsageError("--name is a cluster of steersman's, --kubeconfig and --context are others; give one of them")
    found = existing.load()
    if found is None:
        return require(check_name(name))
    return ClusterRecord(name, ClusterBackend.KUBECONFIG, str(found.source.absolute()), found.context, ready=True)


def stopped_servers(record: ClusterRecord) -> str:
    """Return the processes of the control plane, and of telemetry, that should run on this machine and do not."""
    from steersman.apps.local_cluster.control_plane import servers
    from steersman.apps.local_cluster.telemetry import processes

    control_plane = servers.ended(folder_of(record.name)) if record.way is ClusterBackend.BINARIES else []
    return ", ".join([*control_plane, *processes.ended(record.name)])


def ask(record: ClusterRecord, request: Any, seconds: float | None = None) -> Any:
    """Return the result of `request`, a coroutine function of a client, within a timeout in seconds."""
    from steersman.apps.local_cluster.cluster import client
    from steersman.kubernetes.client import UnreachableError

    async def send() -> Any:
        async with client(record) as api:
            try:
                async with asyncio.timeout(seconds):
                    return await request(api)
            except TimeoutError:
                raise UnreachableError(f"{api.config.cluster.server} did not respond within {seconds:g} s") from None

    try:
        return asyncio.run(send())
    except UnreachableError as error:
        is_local = record.way is not ClusterBackend.KUBECONFIG
        advice = f"; {command('down', record.name)} and then 'up' restart it" if is_local else ""
        stopped = f" ({stopped} stopped running)" if (stopped := stopped_servers(record)) else ""
        raise SteersmanError(f"cluster {record.name!r} does not respond{stopped}: {error}{advice}") from None


app = CommandGroup(help="Add and remove simulated nodes; 'steersman top --once' lists them.")

DEFAULT_SHAPES = ("64cpu,256Gi,110pods",)


@dataclass(frozen=True, slots=True)
class NodeCreationOptions:
    node_shape: Annotated[
        list[str],
        option(
            "Capacity of each node. Add 8gpu:A100 for 8 GPUs that pods can share, or 8nvidia.com/gpu:A100 for the "
            "whole GPUs of a device plugin. Several shapes, each with a name: a=8cpu,32Gi:5 b=64cpu,256Gi:20.",
            metavar="[NAME=]SHAPE[:COUNT]",
        ),
    ] = field(default_factory=lambda: [*DEFAULT_SHAPES])
    servers_per_rack: Annotated[
        int, advanced("Nodes in a rack (label rack), assigned in order; 0: no racks.", min=0)
    ] = 0
    racks_per_zone: Annotated[
        int,
        advanced("Racks in a zone (label topology.kubernetes.io/zone); 0: no zones.", min=0),
        RequiresOption("servers_per_rack"),
    ] = 0
    kwok_taint: Annotated[
        bool, advanced("Taint the nodes with kwok.x-k8s.io/node; only pods that tolerate it run.", "--kwok-taint")
    ] = False

    @property
    def hierarchy(self) -> Hierarchy | None:
        from steersman.workloads.topology import Hierarchy

        return Hierarchy(self.servers_per_rack, self.racks_per_zone) if self.servers_per_rack else None


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
    from steersman.apps.local_cluster.nodes import parse_groups
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
