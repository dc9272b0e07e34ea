"""Life cycle of a local cluster: start by the first backend that works, reach its API, stop it by the same backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from steersman.cluster.model import Node
from steersman.core.errors import InputError, SteersmanError
from steersman.core.signals import defer_signals
from steersman.kubernetes import config
from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.config import KubeConfig
from steersman.live.local_cluster import nodes, record
from steersman.live.local_cluster.control_plane import build, servers
from steersman.live.local_cluster.record import ClusterBackend, ClusterRecord
from steersman.live.local_cluster.telemetry import processes as telemetry_processes
from steersman.live.local_cluster.telemetry.processes import TelemetryOptions
from steersman.live.runtime.listing import server_version

ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.2
KUBECONFIG = "kubeconfig"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Backend of a control plane: a container engine, or programs in a folder."""

    engine: str = ""
    programs: Path | None = None
    version: str = ""

    def __str__(self) -> str:
        backend = f"containers of {self.engine}" if self.engine else "processes of this machine"
        return f"Kubernetes {self.version}, {backend}"


def find_control_plane(built: Report, say: Callable[[str], None], minor: str | None = None) -> ControlPlane:
    """Return the first backend that works: containers, else programs, which are built if they are missing."""
    minor = build.find_minor(minor)
    version = build.version_of(minor)
    engine = servers.find_engine()
    if engine:
        return ControlPlane(engine=engine, version=version)
    return ControlPlane(programs=build.programs(built, say, minor), version=version)


def client(cluster_record: ClusterRecord) -> Client:
    """Return a client of a cluster, a context manager. Raises SteersmanError: its kubeconfig cannot be used."""
    return Client(config.load(Path(cluster_record.kubeconfig), cluster_record.context))


def bring_up(
    name: str,
    control_plane: ControlPlane,
    node_list: Sequence[Node],
    created: Report,
    say: Callable[[str], None],
    *,
    port: int | None = None,
    telemetry: TelemetryOptions | None = None,
) -> ClusterRecord:
    """Start a control plane and create nodes; on failure everything started is stopped again."""
    with record.exclusively(name):
        check_new(name)
        folder = record.folder_of(name)
        kubeconfig = folder / KUBECONFIG
        way = ClusterBackend.CONTAINERS if control_plane.engine else ClusterBackend.BINARIES
        context = f"kwok-{name}"  # kwokctl's name of it
        cluster_record = ClusterRecord(
            name, way, str(kubeconfig), context, engine=control_plane.engine, kubernetes=control_plane.version
        )

        def launch() -> None:
            if control_plane.programs is None:
                servers.start_containers(control_plane.engine, control_plane.version, folder, name, kubeconfig, port)
            else:
                servers.start(control_plane.programs, folder, name, kubeconfig, port)
            kubeconfig.chmod(0o600)

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private keys are written to it
        return _brought_up(cluster_record, launch, node_list, created, say, telemetry)


def take_over(
    name: str,
    existing: KubeConfig,
    node_list: Sequence[Node],
    created: Report,
    say: Callable[[str], None],
    *,
    telemetry: TelemetryOptions | None = None,
) -> ClusterRecord:
    """Use an existing cluster, and create nodes in it, which are deleted again on failure.

    Arguments as of `bring_up`.
    """
    with record.exclusively(name):
        check_new(name)
        cluster_record = ClusterRecord(
            name,
            ClusterBackend.KUBECONFIG,
            str(existing.source.absolute()),
            existing.context,
            kubernetes=asyncio.run(_ask_version(existing)),
        )
        return _brought_up(cluster_record, lambda: None, node_list, created, say, telemetry)


def _brought_up(
    cluster_record: ClusterRecord,
    launch: Callable[[], None],
    node_list: Sequence[Node],
    created: Report,
    say: Callable[[str], None],
    telemetry: TelemetryOptions | None,
) -> ClusterRecord:
    try:
        # Before anything is started, so that `down` finds what a killed `up` has left.
        record.write(cluster_record)
        launch()
        asyncio.run(_fill(cluster_record, node_list, created))
        if telemetry is not None:
            telemetry_processes.start(cluster_record, telemetry)
        ready = structs.replace(cluster_record, ready=True)
        record.write(ready)
        return ready
    except BaseException:
        with defer_signals():
            _remove(cluster_record, say)
        raise


def take_down(name: str, say: Callable[[str], None]) -> bool:
    """Stop what was started for a cluster and forget it; return False if there is no such cluster."""
    with record.exclusively(name):
        try:
            cluster_record = record.find(name)
        except InputError:  # damaged record: stop the processes and remove the files that are found without it
            cluster_record = ClusterRecord(name, ClusterBackend.BINARIES, "", "")
        if cluster_record is None:
            return False
        with defer_signals():
            _remove(cluster_record, say)
        return True


def check_new(name: str) -> None:
    """Raise SteersmanError if there is a cluster of the name."""
    recorded = record.find(name)
    if recorded is None:
        return
    ended = servers.ended(record.folder_of(name)) if recorded.way is ClusterBackend.BINARIES else ()
    if recorded.ready and ended and len(ended) < len(servers.SERVERS):
        raise SteersmanError(
            f"cluster {name!r} exists, but {', '.join(ended)} stopped running; "
            f"{record.command('down', name)} removes it"
        )
    if recorded.ready and not ended:
        raise SteersmanError(
            f"cluster {name!r} is up already ({record.command('status', name)}); "
            f"{record.command('down', name)} stops it, --name starts another"
        )
    raise SteersmanError(f"cluster {name!r} was not stopped well; {record.command('down', name)} removes what is left")


async def _fill(cluster_record: ClusterRecord, node_list: Sequence[Node], created: Report) -> None:
    async with client(cluster_record) as api:
        if cluster_record.way is not ClusterBackend.KUBECONFIG:
            await _wait_answer(api)
        if node_list:
            await nodes.create_nodes(api, node_list, cluster_record.name, created)


async def _ask_version(existing: KubeConfig) -> str:
    async with Client(existing) as api:
        return await server_version(api)


async def _wait_answer(api: Client) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_SECONDS
    while True:
        try:
            await api.request("GET", "/readyz")
            # Pods are refused until the controller manager has created this.
            await api.get("/api/v1/namespaces/default/serviceaccounts/default")
            return
        except (ApiError, UnreachableError):
            if loop.time() > until:
                raise
        await asyncio.sleep(POLL_SECONDS)


def _remove(cluster_record: ClusterRecord, say: Callable[[str], None]) -> None:
    folder = record.folder_of(cluster_record.name)
    servers.stop(folder)  # of other backends, what is beside the control plane
    if cluster_record.way is ClusterBackend.CONTAINERS:
        servers.run_kwokctl(["kwokctl", "--name", cluster_record.name, "delete", "cluster"], folder)
    elif cluster_record.way is ClusterBackend.KUBECONFIG:
        try:
            asyncio.run(_delete_nodes(cluster_record))
        except SteersmanError as error:  # a cluster that we did not start may be gone for good
            say(f"warning: nodes that steersman created there may be left: {error}")
    record.forget(cluster_record.name)


async def _delete_nodes(cluster_record: ClusterRecord) -> None:
    async with client(cluster_record) as api:
        await nodes.delete_nodes(api, cluster_record.name)
