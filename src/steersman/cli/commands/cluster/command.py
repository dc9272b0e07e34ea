"""`steersman cluster`: local Kubernetes clusters with simulated nodes, for experiments."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.apps.local_cluster.record import ClusterBackend, ClusterRecord, check_name, command, require
from steersman.cli.commands.cluster.kwok import app as kwok_app
from steersman.cli.commands.cluster.nodes import (
    DEFAULT_NAME,
    CreateYes,
    ExistingCluster,
    Name,
    NodeCreationOptions,
    ask,
    stopped_servers,
)
from steersman.cli.commands.cluster.nodes import app as nodes_app
from steersman.cli.options.common import CommandGroup, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import Excludes, RequiresOption, advanced, given_options, option, with_options
from steersman.cli.output.display import Progress, print_json, say, status_if_slow
from steersman.cluster.model import Node
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.redaction import redact_url

DEFAULT_COUNT = 10

app = CommandGroup(help="Start, inspect, empty and stop a local Kubernetes cluster with simulated nodes.")

app.add_typer(nodes_app, name="nodes")
app.add_typer(kwok_app, name="kwok")

STATUS_SECONDS = 3.0  # timeout of all requests of `status`; a cluster that takes longer is reported as not responding


@dataclass(frozen=True, slots=True)
class UpOptions:
    name: Name = DEFAULT_NAME
    count: Annotated[
        int | None, option("Number of equal nodes to create. [default: 10]", min=0), Excludes("nodes_from")
    ] = None
    nodes_from: Annotated[
        Path | None,
        path_option(
            "Create the nodes of this file instead: an openb node list (CSV), or a file or folder of Kubernetes YAML.",
            metavar="PATH",
        ),
    ] = None
    reference_node: Annotated[
        bool, advanced("Add a tainted control-plane node that most pods do not tolerate.", "--reference-node")
    ] = False
    kubernetes: Annotated[
        str | None,
        advanced("Minor of Kubernetes, such as 1.35. [default: the newest of 1.34 to 1.37]", metavar="MINOR"),
        Excludes("kubeconfig"),
        Excludes("context"),
    ] = None
    port: Annotated[
        int | None,
        advanced("Port of the API server. [default: a free port]", min=1, max=65535),
        Excludes("kubeconfig"),
        Excludes("context"),
    ] = None
    telemetry: Annotated[
        bool,
        option(
            "Also start Prometheus, and exporters that show what the simulated nodes would use by the pods bound "
            "to them; writes a file for schedule --telemetry.",
            "--telemetry",
        ),
    ] = False
    scrape_interval: Annotated[
        float | None,
        advanced("With --telemetry: seconds between two samples of a node, 1 to 300. [default: 15]"),
        RequiresOption("telemetry"),
    ] = None
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
    from steersman.apps.local_cluster import cluster
    from steersman.apps.local_cluster.nodes import label_zones
    from steersman.apps.local_cluster.telemetry import processes

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

    from steersman.apps.local_cluster.control_plane import build

    if record.way is ClusterBackend.BINARIES:
        return str(build.programs(lambda *_: None, say, record.minor) / "kubectl")
    return shutil.which("kubectl")


@app.command()
def status(name: Name = DEFAULT_NAME, output_format: TableOrJsonOption = TableOrJson.TABLE) -> None:
    """Show whether the cluster is up, its nodes and pods, and its kubeconfig.

    The exit status is 1 if a part of the control plane is not running.
    """
    from steersman.apps.local_cluster.telemetry import processes

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
        for title, value in _status_lines(facts):
            print(f"{title + ':':<12}{value}")
        print(_export(record))
    if stopped := stopped_servers(record):
        raise SteersmanError(
            f"cluster {name!r}: {stopped} stopped running; {command('down', name)} and then 'up' restart it"
        )


@app.command()
def clean(
    name: Name = DEFAULT_NAME,
    yes: Annotated[bool, option("Delete every pod even of a cluster that steersman did not start.", "--yes")] = False,
    owners: Annotated[
        bool, option("Also delete the Deployments, StatefulSets, Jobs and others that own pods.", "--owners")
    ] = False,
) -> None:
    """Delete all pods outside kube-system, and what "steersman workload" created.

    If a Deployment, StatefulSet, Job or another controller would recreate pods, nothing is deleted without --owners.
    """
    from steersman.apps.local_cluster import cleaning

    record = require(check_name(name))
    if record.way is ClusterBackend.KUBECONFIG and not yes:
        raise UsageError(
            f"this would delete all pods of context {record.context!r} of {record.kubeconfig}, which steersman did not "
            "start; --yes if that is meant"
        )
    with Progress("deleting pods") as progress:
        count = ask(record, lambda client: cleaning.clean(client, progress.update, owners=owners))
    say(f"deleted {count} pods")


@app.command()
def down(name: Name = DEFAULT_NAME) -> None:
    """Stop the cluster and delete its data; from an existing cluster, remove only the nodes that "up" created."""
    from steersman.apps.local_cluster.cluster import take_down

    with status_if_slow(f"stopping cluster {name!r}"):
        stopped = take_down(check_name(name), say)
    say(f"cluster {name!r} is down" if stopped else f"there is no cluster {name!r}")


def _new_nodes(options: UpOptions, new: NodeCreationOptions, *, is_existing: bool) -> list[Node]:
    """Return the nodes to create, the tainted control-plane node first; by default none in an existing cluster."""
    from steersman.apps.local_cluster import nodes
    from steersman.apps.local_cluster.nodes import parse_groups

    groups, has_shapes = parse_groups(new.node_shape), "node_shape" in given_options(new)
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
    from steersman.apps.runtime.listing import ALL_PODS, NODES, server_version
    from steersman.cluster.objects.api.decoding import node_from_json, valid_pod

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


def _status_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    pods = ", ".join(f"{count} {phase}" for phase, count in facts["pods_by_phase"].items())
    lines = [
        ("Cluster", f"{facts['name']}, {facts['backend']}"),
        ("Kubernetes", f"{facts['kubernetes']} at {facts['server']}"),
        ("Nodes", f"{facts['nodes_ready']} of {facts['nodes']} ready"),
        ("Pods", pods or "none"),
        ("Kubeconfig", facts["kubeconfig"]),
        ("Prometheus", facts["prometheus"]),
        ("Telemetry", facts["telemetry"]),
        ("kubectl", facts["kubectl"]),
    ]
    return [(title, text) for title, text in lines if text is not None]


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
