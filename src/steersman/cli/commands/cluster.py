"""`steersman cluster`: local Kubernetes clusters with simulated nodes, for experiments."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.completing import contexts
from steersman.cli.options.cluster import KubeconfigOptions, Yes, run_with_client
from steersman.cli.options.common import CommandGroup, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import Excludes, RequiresOption, advanced, given_options, option, with_options
from steersman.cli.output.display import Progress, print_json, say, status_if_slow
from steersman.cluster.model import Node
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.redaction import redact_url
from steersman.live.local_cluster.record import ClusterBackend, ClusterRecord, check_name, command, folder_of, require

if TYPE_CHECKING:
    from steersman.kubernetes.config import KubeConfig
    from steersman.workloads.topology import Hierarchy

app = CommandGroup(help="Start, inspect, empty and stop a local Kubernetes cluster with simulated nodes.")
nodes_app = CommandGroup(help="Add and remove simulated nodes; 'steersman top --once' lists them.")
kwok_app = CommandGroup(help="Simulate nodes in a cluster that exists: run KWOK's controller for it, or remove it.")
app.add_typer(nodes_app, name="nodes")
app.add_typer(kwok_app, name="kwok")

DEFAULT_NAME = "steersman"
Name = Annotated[str, option("Name of the cluster; several can run at a time.", metavar="NAME")]
CreateYes = Annotated[bool, option("Create nodes in a cluster that steersman did not start.")]


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """A cluster that steersman did not start, if it is one."""

    kubeconfig: Path | None = path_option("Use the cluster of this file, in which KWOK runs; start none.")
    context: str | None = option(
        "Its context. [default: the file's current one]", metavar="NAME", autocompletion=contexts
    )

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


def require_consent(record: ClusterRecord, what: str, *, yes: bool) -> None:
    """Raise UsageError unless steersman started the cluster, or --yes is given."""
    if record.way is ClusterBackend.KUBECONFIG and not yes:
        raise UsageError(
            f"this would {what} context {record.context!r} of {record.kubeconfig}, which steersman did not start; "
            "--yes if that is meant"
        )


def stopped_servers(record: ClusterRecord) -> str:
    """Return the processes of the control plane, and of telemetry, that should run on this machine and do not."""
    from steersman.live.local_cluster.control_plane import servers
    from steersman.live.local_cluster.telemetry import processes

    control_plane = servers.ended(folder_of(record.name)) if record.way is ClusterBackend.BINARIES else []
    return ", ".join([*control_plane, *processes.ended(record.name)])


def ask(record: ClusterRecord, request: Any, seconds: float | None = None) -> Any:
    """Return the result of `request`, a coroutine function of a client, within a timeout in seconds."""
    from steersman.kubernetes.client import UnreachableError
    from steersman.live.local_cluster.cluster import client

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


DEFAULT_SHAPES = ("64cpu,256Gi,110pods",)


@dataclass(frozen=True, slots=True)
class NodeCreationOptions:
    node_shape: list[str] = option(
        "Capacity of each node. Add 8gpu:A100 for 8 GPUs that pods can share, or 8nvidia.com/gpu:A100 for the "
        "whole GPUs of a device plugin. Several shapes, each with a name: a=8cpu,32Gi:5 b=64cpu,256Gi:20.",
        default_factory=lambda: [*DEFAULT_SHAPES],
        metavar="[NAME=]SHAPE[:COUNT]",
    )
    servers_per_rack: int = advanced("Nodes in a rack (label rack), assigned in order; 0: no racks.", default=0, min=0)
    racks_per_zone: int = advanced(
        "Racks in a zone (label topology.kubernetes.io/zone); 0: no zones.",
        RequiresOption("servers_per_rack"),
        default=0,
        min=0,
    )
    kwok_taint: bool = advanced(
        "Taint the nodes with kwok.x-k8s.io/node; only pods that tolerate it run.", default=False
    )

    @property
    def hierarchy(self) -> Hierarchy | None:
        from steersman.workloads.topology import Hierarchy

        return Hierarchy(self.servers_per_rack, self.racks_per_zone) if self.servers_per_rack else None


@nodes_app.command("add")
@with_options
def add_nodes(
    new: NodeCreationOptions,
    existing: ExistingCluster,
    count: int = option("Number of nodes of each shape that states none.", default=1, min=1),
    name: Name = DEFAULT_NAME,
    yes: CreateYes = False,
) -> None:
    """Add simulated nodes to a cluster that runs; their numbers continue those that are there.

    With --kubeconfig or --context it is any cluster in which KWOK runs, see **cluster kwok install**.

    **Example**: steersman cluster nodes add --count 5 --node-shape gpu=96cpu,768Gi,8gpu:A100
    """
    from steersman.live.local_cluster import nodes as simulated

    groups, record = simulated.parse_groups(new.node_shape), record_of(name, existing)
    require_consent(record, "create nodes in", yes=yes)

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


@nodes_app.command("remove")
@with_options
def remove_nodes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Nodes to remove.")] = None,
    count: int | None = option("Instead of names: the newest nodes.", min=1),
    name: Name = DEFAULT_NAME,
    *,
    existing: ExistingCluster,
) -> None:
    """Remove nodes that steersman created; Kubernetes deletes their pods some seconds later.

    **Example**: steersman cluster nodes remove --count 2
    """
    from steersman.live.local_cluster import nodes as simulated

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


DEFAULT_COUNT = 10
STATUS_SECONDS = 3.0  # timeout of all requests of `status`; a cluster that takes longer is reported as not responding


@dataclass(frozen=True, slots=True)
class UpOptions:
    name: Name = DEFAULT_NAME
    count: int | None = option("Number of equal nodes to create. [default: 10]", Excludes("nodes_from"), min=0)
    nodes_from: Path | None = path_option(
        "Create the nodes of this file instead: an openb node list (CSV), or a file or folder of Kubernetes YAML.",
        metavar="PATH",
    )
    reference_node: bool = advanced("Add a tainted control-plane node that most pods do not tolerate.", default=False)
    kubernetes: str | None = advanced(
        "Minor of Kubernetes, such as 1.35. [default: the newest of 1.34 to 1.37]",
        Excludes("kubeconfig"),
        Excludes("context"),
        metavar="MINOR",
    )
    port: int | None = advanced(
        "Port of the API server. [default: a free port]", Excludes("kubeconfig"), Excludes("context"), min=1, max=65535
    )
    telemetry: bool = option(
        "Also start Prometheus, and exporters that show what the simulated nodes would use by the pods bound "
        "to them; writes a file for schedule --telemetry.",
        default=False,
    )
    scrape_interval: float | None = advanced(
        "With --telemetry: seconds between two samples of a node, 1 to 300. [default: 15]", RequiresOption("telemetry")
    )
    yes: CreateYes = False


@app.command()
@with_options
def up(options: UpOptions, nodes: NodeCreationOptions, existing: ExistingCluster) -> None:
    """Start a cluster with a real control plane and nodes simulated by KWOK.

    Pods are scheduled and change phase as on real nodes, but no container starts, so a thousand nodes fit on a laptop.
    kwokctl starts the control plane if it is installed together with Docker, Podman or nerdctl. Otherwise the control
    plane is built once from Go modules, which needs Go 1.26 and some minutes. --kubeconfig uses an existing cluster.

    **Example**: steersman cluster up --count 100 --node-shape 96cpu,768Gi,110pods,8gpu:A100 --servers-per-rack 4

    With --telemetry nodes use what they would in steersman/Latency-v0; their zones are those of their labels.
    Prometheus must be on the PATH.

    **Several shapes**: steersman cluster up --node-shape cpu=64cpu,256Gi:30 --node-shape gpu=96cpu,768Gi,8gpu:A100:10
    """
    start(options, nodes, existing)


def start(options: UpOptions, nodes: NodeCreationOptions, existing: ExistingCluster) -> None:
    """Start a cluster, or add its nodes to an existing one, and print how kubectl uses it."""
    from steersman.live.local_cluster import cluster
    from steersman.live.local_cluster.nodes import label_zones
    from steersman.live.local_cluster.telemetry import processes

    name = options.name
    # First of all: a name that is in use must not cost the minutes of a build.
    cluster.check_new(check_name(name))
    measured = None
    if options.telemetry:
        seconds = options.scrape_interval
        measured = processes.TelemetryOptions() if seconds is None else processes.TelemetryOptions(seconds)
        processes.find_program()
    other = existing.load()
    new_nodes = _new_nodes(options, nodes, is_existing=other is not None)
    if measured is not None:
        new_nodes = label_zones(new_nodes)
    if other is None:
        with Progress("building packages of the control plane", estimate=False) as progress:
            control_plane = cluster.find_control_plane(progress.update, say, options.kubernetes)
        say(f"starting the control plane ({control_plane})")
    elif new_nodes and not options.yes:
        raise UsageError(
            f"this would create {len(new_nodes)} nodes at {other.cluster.server} (context {other.context!r}), which "
            "steersman did not start; --yes if that is meant"
        )
    with Progress("starting nodes") as progress:
        record = (
            cluster.bring_up(
                name, control_plane, new_nodes, progress.update, say, port=options.port, telemetry=measured
            )
            if other is None
            else cluster.take_over(name, other, new_nodes, progress.update, say, telemetry=measured)
        )
    if measured is not None:
        say(f"Prometheus is at {processes.address_of(name)}; for policies: --telemetry {processes.file_of(name)}")
    say(f"cluster {name!r} is up with {len(new_nodes)} nodes; to use it with kubectl:")
    print(_export(record))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@with_options
def kubectl(context: typer.Context, name: Name = DEFAULT_NAME) -> None:
    """Run kubectl on the cluster: the one that was built with its control plane, else the one on the PATH.

    **Example**: steersman cluster kubectl get pods -A
    """
    import os

    record = require(check_name(name))
    program = _kubectl(record)
    if program is None:
        raise SteersmanError("there is no kubectl on the PATH, and none was built for this cluster; install it")
    command = [program, "--kubeconfig", record.kubeconfig, "--context", record.context, *context.args]
    # In place of this process: kubectl gets the terminal, signals of the shell, and gives its own exit status.
    os.execv(program, command)


def _kubectl(record: ClusterRecord) -> str | None:
    import shutil

    from steersman.live.local_cluster.control_plane import build

    if record.way is ClusterBackend.BINARIES:
        return str(build.programs(lambda *_: None, say, record.minor) / "kubectl")
    return shutil.which("kubectl")


@app.command()
@with_options
def status(name: Name = DEFAULT_NAME, output_format: TableOrJsonOption = TableOrJson.TABLE) -> None:
    """Show whether the cluster is up, its nodes and pods, and its kubeconfig.

    The exit status is 1 if a part of the control plane is not running.
    """
    from steersman.live.local_cluster.telemetry import processes

    record = require(check_name(name))
    facts = {"name": name, "backend": _backend(record)} | ask(record, _status, STATUS_SECONDS)
    measured = processes.has_telemetry(name)
    facts |= {
        "kubeconfig": record.kubeconfig,
        "prometheus": processes.address_of(name) if measured else None,
        "telemetry": str(processes.file_of(name)) if measured else None,
        "kubectl": _kubectl(record),
    }
    if output_format is TableOrJson.JSON:
        print_json(facts)
    else:
        pods = ", ".join(f"{count} {phase}" for phase, count in facts["pods_by_phase"].items())
        lines = {
            "Cluster": f"{name}, {facts['backend']}",
            "Kubernetes": f"{facts['kubernetes']} at {facts['server']}",
            "Nodes": f"{facts['nodes_ready']} of {facts['nodes']} ready",
            "Pods": pods or "none",
            **{title: facts[title.lower()] for title in ("Kubeconfig", "Prometheus", "Telemetry")},
            "kubectl": facts["kubectl"],
        }
        for title, value in lines.items():
            if value is not None:
                print(f"{title + ':':<12}{value}")
        print(_export(record))
    if stopped := stopped_servers(record):
        raise SteersmanError(
            f"cluster {name!r}: {stopped} stopped running; {command('down', name)} and then 'up' restart it"
        )


@app.command()
@with_options
def clean(
    name: Name = DEFAULT_NAME,
    yes: bool = option("Delete every pod even of a cluster that steersman did not start.", default=False),
    owners: bool = option("Also delete the Deployments, StatefulSets, Jobs and others that own pods.", default=False),
) -> None:
    """Delete all pods outside kube-system, and what "steersman workload" created.

    If a Deployment, StatefulSet, Job or another controller would recreate pods, nothing is deleted without --owners.
    """
    from steersman.live.local_cluster import cleaning

    record = require(check_name(name))
    require_consent(record, "delete all pods of", yes=yes)
    with Progress("deleting pods") as progress:
        count = ask(record, lambda client: cleaning.clean(client, progress.update, owners=owners))
    say(f"deleted {count} pods")


@app.command()
@with_options
def down(name: Name = DEFAULT_NAME) -> None:
    """Stop the cluster and delete its data; from an existing cluster, remove only the nodes that "up" created."""
    from steersman.live.local_cluster.cluster import take_down

    with status_if_slow(f"stopping cluster {name!r}"):
        stopped = take_down(check_name(name), say)
    say(f"cluster {name!r} is down" if stopped else f"there is no cluster {name!r}")


def _new_nodes(options: UpOptions, new: NodeCreationOptions, *, is_existing: bool) -> list[Node]:
    """Return the nodes to create, the tainted control-plane node first; by default none in an existing cluster."""
    from steersman.live.local_cluster import nodes

    groups, has_shapes = nodes.parse_groups(new.node_shape), "node_shape" in given_options(new)
    if options.nodes_from is not None:
        from steersman.workloads.loading import load_nodes

        with status_if_slow(f"reading {options.nodes_from}"):
            bare_nodes = load_nodes(options.nodes_from)
    else:
        if has_shapes and options.count == 0:
            raise UsageError("--count 0 and --node-shape exclude each other; leave one out")
        usual = 0 if is_existing and not has_shapes else DEFAULT_COUNT
        usual = usual if options.count is None else options.count
        bare_nodes = tuple(
            node
            for group in groups
            if (number := usual if group.count is None else group.count)
            for node in nodes.equal_nodes(number, group.shape, group.name)
        )
    new_nodes = nodes.prepared(bare_nodes, new.hierarchy, kwok_taint=new.kwok_taint)
    reference = nodes.prepared([nodes.reference_node(groups[0].shape)]) if options.reference_node else []
    return [*reference, *new_nodes]


async def _status(client: Any) -> dict[str, Any]:
    from steersman.cluster.objects.fields import node_from_json, valid_pod
    from steersman.live.runtime.listing import ALL_PODS, NODES, server_version

    await _check_ready(client)
    version = await server_version(client)
    nodes, pods = (await client.list(NODES)).items, (await client.list(ALL_PODS)).items
    phases = Counter(valid_pod(pod).status.phase or "Unknown" for pod in pods)
    return {
        "kubernetes": version,
        "server": redact_url(client.config.cluster.server),
        "nodes": len(nodes),
        "nodes_ready": sum(node_from_json(node).is_ready for node in nodes),
        "pods_by_phase": dict(sorted(phases.items())),
    }


async def _check_ready(client: Any) -> None:
    from steersman.kubernetes.client import ApiError, UnreachableError

    try:
        await client.request("GET", "/readyz", query={"verbose": ""})
    except ApiError as error:
        failed = re.findall(r"\[-\](\S+) failed", error.message)
        # Others are no failure of the server, e.g. a user who may not read /readyz.
        if error.status >= 500:
            checks = ", ".join(failed) or error.message
            raise UnreachableError(f"{client.config.cluster.server} is not ready: {checks} failed") from None


def _backend(record: ClusterRecord) -> str:
    if record.way is ClusterBackend.KUBECONFIG:
        return f"existing cluster (context {record.context!r})"
    if record.way is ClusterBackend.CONTAINERS:
        return f"containers of {record.engine}"
    stopped = stopped_servers(record)
    return "processes of this machine" + (f", of which {stopped} stopped running" if stopped else "")


def _export(record: ClusterRecord) -> str:
    import shlex

    return f"export KUBECONFIG={shlex.quote(record.kubeconfig)}"


@kwok_app.command()
@with_options
def install(
    image: str = option(
        "Run the controller in the cluster, as a Deployment of this image of KWOK 0.8, which must be in a "
        "registry that its nodes can reach. [default: a process of this machine, built as for 'cluster up']",
        default="",
        metavar="IMAGE",
    ),
    print_manifests: bool = option(
        "With --image: print the manifests, for kubectl apply; change nothing.", "--print", default=False
    ),
    yes: Yes = False,
    *,
    cluster: KubeconfigOptions,
) -> None:
    """Run KWOK's controller for a cluster that exists, so that 'cluster nodes add' can add simulated nodes to it.

    It keeps the nodes that steersman creates there ready, and lets pods on them run without containers; real nodes and
    their pods are left alone. Without --image it is a process of this machine, with a copy of the credentials, until
    'cluster kwok remove' or a reboot. With --image it is a Deployment in kube-system with its own role.

    **Example**: steersman cluster kwok install --kubeconfig ~/.kube/config --context test --yes

    **Then**: steersman cluster nodes add --context test --count 100 --yes
    """
    from steersman.live.local_cluster import kwok as controller

    if print_manifests:
        if not image:
            raise UsageError("--print shows what --image would create; give that, too")
        import yaml

        print(yaml.safe_dump_all(controller.manifests(image), sort_keys=False), end="")
        return
    target = cluster.find()
    if target.is_local:
        raise UsageError("KWOK runs already in a cluster of 'steersman cluster up'; this is for other clusters")
    if image:
        target.require_consent(f"create a Deployment, a role and its binding named {controller.NAME}", yes=yes)
        created = run_with_client(target, lambda client: controller.install(client, image))
        say(f"KWOK is installed at {target.config.cluster.server}: {created} objects named {controller.NAME}")
        return
    target.require_consent("run a controller that changes simulated nodes and their pods", yes=yes)

    from steersman.live.local_cluster.control_plane import build

    with Progress("building packages of the control plane", estimate=False) as progress:
        program = build.programs(progress.update, say) / "kwok"
    log = controller.start(target.config, program)
    say(f"KWOK's controller runs on this machine for {target.config.cluster.server}; its log is {log}")


@kwok_app.command()
@with_options
def remove(cluster: KubeconfigOptions, yes: Yes = False) -> None:
    """Stop the controller that 'cluster kwok install' runs on this machine, and delete what it created in the cluster.

    Simulated nodes stay, and are no longer ready after a minute; 'cluster nodes remove' deletes them.

    **Example**: steersman cluster kwok remove --context test --yes
    """
    from steersman.live.local_cluster import kwok as controller

    target = cluster.find()
    if target.is_local:
        raise UsageError("KWOK is part of a cluster of 'steersman cluster up'; 'cluster down' stops that")
    target.require_consent(f"delete the Deployment, role and binding {controller.NAME} of steersman", yes=yes)
    stopped = controller.stop(target.config)
    deleted = run_with_client(target, controller.remove)
    if not (stopped or deleted):
        say(f"KWOK was not installed by steersman at {target.config.cluster.server}")
        return
    parts = ["the process was stopped"] if stopped else []
    parts += [f"{deleted} objects were deleted"] if deleted else []
    say(f"KWOK is removed from {target.config.cluster.server}: {', '.join(parts)}")
