"""The cluster that a command is about, and requests to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.completing import contexts
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import given_options, option
from steersman.core.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from steersman.apps.local_cluster.record import ClusterRecord
    from steersman.kubernetes.config import KubeConfig

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
    from steersman.apps.local_cluster.record import ClusterBackend, ClusterRecord, check_name, require

    if given_options(existing) and name != DEFAULT_NAME:
        raise UsageError("--name is a cluster of steersman's, --kubeconfig and --context are others; give one of them")
    found = existing.load()
    if found is None:
        return require(check_name(name))
    return ClusterRecord(name, ClusterBackend.KUBECONFIG, str(found.source.absolute()), found.context, ready=True)


def stopped_servers(record: ClusterRecord) -> str:
    """Return the processes of the control plane, and of telemetry, that should run on this machine and do not."""
    from steersman.apps.local_cluster.control_plane import servers
    from steersman.apps.local_cluster.record import ClusterBackend, folder_of
    from steersman.apps.local_cluster.telemetry import processes

    control_plane = servers.ended(folder_of(record.name)) if record.way is ClusterBackend.BINARIES else []
    return ", ".join([*control_plane, *processes.ended(record.name)])


def ask(record: ClusterRecord, request: Any, seconds: float | None = None) -> Any:
    """Return the result of `request`, a coroutine function of a client, within a timeout in seconds."""
    from steersman.apps.local_cluster.cluster import client
    from steersman.apps.local_cluster.record import ClusterBackend, command
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
