"""A cluster's life: up by the first way that works, its API, down by what brought it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from steersman.cluster.model import Node
from steersman.errors import InputError, SteersmanError
from steersman.kube import config
from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.kube.config import KubeConfig
from steersman.localcluster import build, containers, nodes, record, servers
from steersman.localcluster.record import Record, Way
from steersman.signals import defer_signals

ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.2
KUBECONFIG = "kubeconfig"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """What a control plane will run by: a container engine, or programs in a folder."""

    engine: str = ""
    programs: Path | None = None

    def __str__(self) -> str:
        return f"containers of {self.engine}" if self.engine else "processes of this machine"


def find_control_plane(built: Report, say: Callable[[str], None]) -> ControlPlane:
    """The first way that works: containers, else programs, which are built if they are not there.

    Args:
        built: told how many of how many packages are compiled.
        say: told in a line what takes long.

    Raises:
        SteersmanError: neither works.
    """
    engine = containers.find_engine()
    return ControlPlane(engine=engine) if engine else ControlPlane(programs=build.programs(built, say))


def client(found: Record) -> Client:
    """A client of a cluster, to be used as a context manager. Raises InputError, SteersmanError: its kubeconfig."""
    return Client(config.load(Path(found.kubeconfig), found.context))


def bring_up(
    name: str,
    control_plane: ControlPlane,
    wanted: Sequence[Node],
    created: Report,
    say: Callable[[str], None],
    *,
    port: int | None = None,
) -> Record:
    """Start a control plane of our own and create nodes; what was started is stopped again if that fails.

    Args:
        name: of the cluster; there is none of that name.
        control_plane: as found.
        wanted: as `nodes.prepared` gives them.
        created: told how many of how many steps towards ready nodes are done.
        say: told in a line what else is to be known.
        port: of the API server; None: any that is free.

    Raises:
        SteersmanError: it did not start.
    """
    with record.exclusively(name):
        check_new(name)
        folder = record.folder_of(name)
        kubeconfig = folder / KUBECONFIG
        way = Way.CONTAINERS if control_plane.engine else Way.BINARIES
        context = f"kwok-{name}"  # as kwokctl calls it
        found = Record(name, way, str(kubeconfig), context, engine=control_plane.engine)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # keys will be in it
            record.write(found)
            if control_plane.programs is None:
                containers.start(control_plane.engine, folder, name, kubeconfig, port)
            else:
                servers.start(control_plane.programs, folder, name, kubeconfig, port)
            kubeconfig.chmod(0o600)
            asyncio.run(_fill(found, wanted, created))
            return _finished(found)
        except BaseException:
            with defer_signals():
                _remove(found, say)
            raise


def take_over(
    name: str, existing: KubeConfig, wanted: Sequence[Node], created: Report, say: Callable[[str], None]
) -> Record:
    """Use a cluster that is there, and create nodes in it; those are deleted again if that fails.

    Arguments as of `bring_up`.

    Raises:
        SteersmanError: there is a cluster of the name already, or nobody answers there.
    """
    with record.exclusively(name):
        check_new(name)
        asyncio.run(_ask_version(existing))
        found = Record(name, Way.KUBECONFIG, str(existing.source.absolute()), existing.context)
        try:
            record.write(found)
            asyncio.run(_fill(found, wanted, created))
            return _finished(found)
        except BaseException:
            with defer_signals():
                _remove(found, say)
            raise


def take_down(name: str, say: Callable[[str], None]) -> bool:
    """Stop what was started for a cluster and forget it; false if there is no such cluster.

    Raises:
        SteersmanError: something cannot be stopped. It can be tried again then.
    """
    with record.exclusively(name):
        try:
            found = record.find(name)
        except InputError:  # damaged: what can be found without it is processes and files
            found = Record(name, Way.BINARIES, "", "")
        if found is None:
            return False
        with defer_signals():
            _remove(found, say)
        return True


def check_new(name: str) -> None:
    """Raise SteersmanError if there is a cluster of the name."""
    found = record.find(name)
    if found is None:
        return
    ended = servers.ended(record.folder_of(name)) if found.way is Way.BINARIES else ()
    if found.ready and ended and len(ended) < len(servers.SERVERS):
        raise SteersmanError(
            f"cluster {name!r} is there, but {', '.join(ended)} ended; {record.command('down', name)} removes it"
        )
    if found.ready and not ended:
        raise SteersmanError(
            f"cluster {name!r} is up already ({record.command('status', name)}); "
            f"{record.command('down', name)} stops it, --name starts another"
        )
    raise SteersmanError(f"cluster {name!r} was not stopped well; {record.command('down', name)} removes what is left")


async def _fill(found: Record, wanted: Sequence[Node], created: Report) -> None:
    """Wait until the API answers, then create nodes."""
    async with client(found) as api:
        if found.way is not Way.KUBECONFIG:
            await _wait_answer(api)
        if wanted:
            await nodes.create_nodes(api, wanted, found.name, created)


async def _ask_version(existing: KubeConfig) -> None:
    async with Client(existing) as api:
        await api.get("/version")


async def _wait_answer(api: Client) -> None:
    """Wait for a control plane that starts. Raises SteersmanError: what it said last, after a minute."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_SECONDS
    while True:
        try:
            await api.request("GET", "/readyz")
            # Pods are refused until the controller manager has made this.
            await api.get("/api/v1/namespaces/default/serviceaccounts/default")
            return
        except (ApiError, UnreachableError):
            if loop.time() > until:
                raise
        await asyncio.sleep(POLL_SECONDS)


def _finished(found: Record) -> Record:
    ready = structs.replace(found, ready=True)
    record.write(ready)
    return ready


def _remove(found: Record, say: Callable[[str], None]) -> None:
    folder = record.folder_of(found.name)
    if found.way is Way.CONTAINERS:
        containers.stop(folder, found.name)
    elif found.way is Way.BINARIES:
        servers.stop(folder)
    else:
        try:
            asyncio.run(_delete_nodes(found))
        except SteersmanError as error:  # it may be gone for good, and we did not start it
            say(f"warning: nodes that steersman created there may be left: {error}")
    record.forget(found.name)


async def _delete_nodes(found: Record) -> None:
    async with client(found) as api:
        await nodes.delete_nodes(api, found.name)
