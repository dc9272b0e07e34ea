"""`steersman cluster`: a Kubernetes cluster to try things on, with nodes that cost nothing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.display import Progress, print_table, said_if_slow, say
from steersman.cli.options import Format, FormatOption, need_subcommand, path
from steersman.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from steersman.cluster.model import Node
    from steersman.localcluster.record import Record
    from steersman.workloads.topology import Hierarchy

COUNT = 10

app = typer.Typer(rich_markup_mode="markdown", context_settings={"help_option_names": ["-h", "--help"]})
"""The sub-commands of `steersman cluster`."""

Name = Annotated[str, typer.Option(metavar="NAME", help="Which cluster; there may be several.")]
DEFAULT_NAME = "steersman"
NAMED_NODES = 10
STATUS_SECONDS = 3.0
"""In which a cluster answers all that `status` asks, else it is said to be dead."""


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Start a Kubernetes cluster on this machine, look at it, empty it, stop it."""
    need_subcommand(context)


@app.command()
def up(
    name: Name = DEFAULT_NAME,
    count: Annotated[int | None, typer.Option(min=0, help="How many equal nodes. [default: 10]")] = None,
    node_shape: Annotated[
        str,
        typer.Option(
            metavar="SHAPE",
            help="What each of them holds; 64cpu,256Gi,110pods,8gpu:A100 has GPUs that pods share, too, and "
            "8nvidia.com/gpu:A100 those of a device plugin.",
        ),
    ] = "64cpu,256Gi,110pods",
    nodes_from: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="PATH",
            help="Nodes from an openb node list (CSV) or a file or folder of Kubernetes YAML instead.",
        ),
    ] = None,
    servers_per_rack: Annotated[
        int, typer.Option(min=0, help="Nodes that share a rack (label rack), in order; 0: no racks.")
    ] = 0,
    racks_per_zone: Annotated[
        int, typer.Option(min=0, help="Racks that share a zone (topology.kubernetes.io/zone); 0: no zones.")
    ] = 0,
    reference_node: Annotated[
        bool, typer.Option("--reference-node", help="Add a control-plane node, which most pods do not tolerate.")
    ] = False,
    kwok_taint: Annotated[
        bool,
        typer.Option("--kwok-taint", help="Taint the nodes, so that only pods that tolerate kwok.x-k8s.io/node come."),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the API server. [default: any that is free]")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help="Use the cluster that this file leads to; start none."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context of --kubeconfig. [default: its current one]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Create nodes even in a cluster that was there before.")] = False,
) -> None:
    """Start a cluster: a real control plane, and nodes that KWOK plays.

    Pods are scheduled and "run" as on real nodes, but no container starts, so a thousand nodes fit a laptop.
    The control plane comes from kwokctl where that and Docker, Podman or nerdctl are there; else it is built from Go
    modules once, which takes Go 1.26 and some minutes. --kubeconfig uses a cluster that you have.

    **Example**: steersman cluster up --count 100 --node-shape 96cpu,768Gi,110pods,8gpu:A100 --servers-per-rack 4
    """
    from steersman.kube.config import load
    from steersman.localcluster import cluster
    from steersman.localcluster.record import check_name

    cluster.check_new(check_name(name))
    hierarchy = _hierarchy(servers_per_rack, racks_per_zone)
    existing = load(kubeconfig, context) if kubeconfig is not None or context is not None else None
    if existing is not None and port is not None:
        raise UsageError("--port belongs to a cluster that is started, not to one that is there (--kubeconfig)")
    if count is None and nodes_from is None:
        count = COUNT if existing is None else 0
    wanted = _wanted(count, node_shape, nodes_from, reference_node, hierarchy, kwok_taint)
    if existing is None:
        with Progress("building packages of the control plane", estimate=False) as progress:
            control_plane = cluster.find_control_plane(progress.update, say)
        say(f"starting the control plane ({control_plane})")
        with Progress("starting nodes") as progress:
            found = cluster.bring_up(name, control_plane, wanted, progress.update, say, port=port)
    else:
        if wanted and not yes:
            raise UsageError(
                f"this would create {len(wanted)} nodes at {existing.cluster.server} (context {existing.context!r}), "
                "which steersman did not start; --yes if that is meant"
            )
        with Progress("starting nodes") as progress:
            found = cluster.take_over(name, existing, wanted, progress.update, say)
    say(f"cluster {name!r} is up with {len(wanted)} nodes; for kubectl and the like:")
    print(_export(found))


@app.command()
def nodes(
    name: Name = DEFAULT_NAME,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the nodes: what each holds, and what its pods ask for.

    In the table, CPU, memory, pods and GPUs are what is asked for, then what there is.
    """
    from steersman.cli import cluster_tables
    from steersman.localcluster.occupancy import node_rows
    from steersman.localcluster.record import check_name, require

    found = require(check_name(name))
    with said_if_slow("reading nodes and pods"):
        rows, problems = _ask(found, node_rows)
    if output is Format.TABLE:
        print_table(cluster_tables.nodes_table(name, rows))
    else:
        print(cluster_tables.to_json(rows) if output is Format.JSON else cluster_tables.to_csv(rows), end="")
    of_nodes = [problem for problem in problems if problem.where.startswith("Node ")]
    for problem in of_nodes[:NAMED_NODES]:
        say(f"warning: {problem.where} gets no pods of steersman's: {problem.field}: {problem.problem}")
    if len(of_nodes) > NAMED_NODES:
        say(f"warning: {len(of_nodes) - NAMED_NODES} more nodes get no pods of steersman's")
    if len(problems) > len(of_nodes):
        problems = [problem for problem in problems if problem not in of_nodes]
        say(f"warning: {len(problems)} objects are not understood and count as nothing, such as: {problems[0]}")


@app.command()
def status(name: Name = DEFAULT_NAME) -> None:
    """Is the cluster up, what is in it, and how do other programs reach it? Exit status 1: a part of it is dead."""
    from steersman.localcluster.record import check_name, command, require

    found = require(check_name(name))
    lines = _ask(found, _status, STATUS_SECONDS)
    for title, value in [("Cluster", f"{name}, {_how(found)}"), *lines, ("Kubeconfig", found.kubeconfig)]:
        print(f"{title + ':':<12}{value}")
    print(_export(found))
    if ended := _ended(found):
        raise SteersmanError(f"cluster {name!r}: {ended} ended; {command('down', name)} and 'up' start it anew")


@app.command()
def clean(
    name: Name = DEFAULT_NAME,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do so even in a cluster that steersman did not start: every pod goes.")
    ] = False,
    owners: Annotated[
        bool,
        typer.Option("--owners", help="Delete also Deployments, StatefulSets, Jobs and others that make pods anew."),
    ] = False,
) -> None:
    """Back to zero pods: delete all pods but those of kube-system, and what "steersman workload" made.

    Where somebody's Deployment, StatefulSet, Job or the like would make pods anew, nothing is deleted without --owners.
    """
    from steersman.localcluster import cleaning
    from steersman.localcluster.record import Way, check_name, require

    found = require(check_name(name))
    if found.way is Way.KUBECONFIG and not yes:
        raise UsageError(
            f"this would delete all pods at context {found.context!r} of {found.kubeconfig}, which steersman did not "
            "start; --yes if that is meant"
        )
    with Progress("deleting pods") as progress:
        count = _ask(found, lambda client: cleaning.clean(client, progress.update, owners=owners))
    say(f"deleted {count} pods")


@app.command()
def down(name: Name = DEFAULT_NAME) -> None:
    """Stop what "up" started, and delete its data. A cluster that was there before stays, without our nodes."""
    from steersman.localcluster.cluster import take_down
    from steersman.localcluster.record import check_name

    with said_if_slow(f"stopping cluster {name!r}"):
        stopped = take_down(check_name(name), say)
    say(f"cluster {name!r} is down" if stopped else f"there is no cluster {name!r}")


def _hierarchy(servers_per_rack: int, racks_per_zone: int) -> Hierarchy | None:
    from steersman.workloads.topology import Hierarchy

    if racks_per_zone and not servers_per_rack:
        raise UsageError("--racks-per-zone needs --servers-per-rack")
    return Hierarchy(servers_per_rack, racks_per_zone) if servers_per_rack else None


def _wanted(
    count: int | None,
    shape: str,
    source: Path | None,
    reference: bool,
    hierarchy: Hierarchy | None,
    kwok_taint: bool,
) -> list[Node]:
    """The nodes to create, those that most pods do not tolerate first."""
    from steersman.localcluster import nodes
    from steersman.localcluster.shapes import parse_shape

    parsed = parse_shape(shape)
    if source is not None:
        from steersman.workloads.loading import load_nodes

        if count is not None:
            raise UsageError("--count and --nodes-from exclude each other")
        with said_if_slow(f"reading {source}"):
            found = load_nodes(source)
    else:
        found = nodes.equal_nodes(count, parsed) if count else ()
    wanted = nodes.prepared(found, hierarchy, kwok_taint=kwok_taint)
    return [*nodes.prepared([nodes.reference_node(parsed)]), *wanted] if reference else wanted


async def _status(client: Any) -> list[tuple[str, str]]:
    from steersman.localcluster.occupancy import pods_by_phase, ready_nodes

    await _check_ready(client)
    version = await client.get("/version")
    ready, there = await ready_nodes(client)
    phases = await pods_by_phase(client)
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    return [
        ("Kubernetes", f"{version['gitVersion']} at {client.config.cluster.server}"),
        ("Nodes", f"{ready} of {there} ready"),
        ("Pods", counts or "none"),
    ]


async def _check_ready(client: Any) -> None:
    """Raise UnreachableError if the API server says that a part of it does not work; it names etcd first of all."""
    from steersman.kube.client import ApiError, UnreachableError

    try:
        await client.request("GET", "/readyz", query={"verbose": ""})
    except ApiError as error:
        failed = re.findall(r"\[-\](\S+) failed", error.message)
        if error.status >= 500:
            what = ", ".join(failed) or error.message
            raise UnreachableError(f"{client.config.cluster.server} is not ready: {what} failed") from None


def _how(found: Record) -> str:
    from steersman.localcluster.record import Way

    if found.way is Way.KUBECONFIG:
        return f"was there before (context {found.context!r})"
    if found.way is Way.CONTAINERS:
        return f"containers of {found.engine}"
    ended = _ended(found)
    return "processes of this machine" + (f", of which {ended} ended" if ended else "")


def _ended(found: Record) -> str:
    """The servers of a cluster of this machine's processes that should run and do not."""
    from steersman.localcluster import servers
    from steersman.localcluster.record import Way, folder_of

    if found.way is not Way.BINARIES:
        return ""
    return ", ".join(servers.ended(folder_of(found.name)))


def _export(found: Record) -> str:
    import shlex

    return f"export KUBECONFIG={shlex.quote(found.kubeconfig)}"


def _ask(found: Record, question: Any, seconds: float | None = None) -> Any:
    """The answer of a cluster's API to what `question` asks a client, in at most so many seconds."""
    from steersman.kube.client import UnreachableError
    from steersman.localcluster.cluster import client
    from steersman.localcluster.record import Way, command

    async def ask() -> Any:
        async with client(found) as api:
            try:
                async with asyncio.timeout(seconds):
                    return await question(api)
            except TimeoutError:
                raise UnreachableError(f"{api.config.cluster.server} gave no answer in {seconds:g} s") from None

    try:
        return asyncio.run(ask())
    except UnreachableError as error:
        anew = "" if found.way is Way.KUBECONFIG else f"; {command('down', found.name)} and 'up' start it anew"
        ended = f" ({ended} ended)" if (ended := _ended(found)) else ""
        raise SteersmanError(f"cluster {found.name!r} does not answer{ended}: {error}{anew}") from None
