"""The cluster that a command acts on, with consent if steersman did not start it; its nodes and pods as a workload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steersman.core.errors import UsageError
from steersman.kubernetes import config
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.config import KubeConfig
from steersman.live.local_cluster import record
from steersman.live.local_cluster.record import ClusterBackend
from steersman.live.recorder.live_workload import read_workload
from steersman.live.runtime.tasks import run
from steersman.workloads.workload import RunningPods, Workload

T = TypeVar("T")
DEFAULT_NAME = "cluster"  # name of the workload of a cluster without a context; else it is the context's


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Cluster that a command acts on."""

    config: KubeConfig  # connection
    is_local: bool  # whether `steersman cluster up` started it
    by_default: bool = False  # whether it is the local cluster, chosen since no option names another

    def require_consent(self, what: str, *, yes: bool) -> None:
        """Raise UsageError if steersman did not start the cluster and `--yes` was not given.

        Args:
            what: what would be done, as after "this would".
            yes: whether `--yes` was given.
        """
        if not (self.is_local or yes):
            raise UsageError(
                f"this would {what} at {self.config.cluster.server} (context {self.config.context!r}), which steersman "
                "did not start; --yes if that is meant"
            )


def find_target(kubeconfig: Path | None = None, context: str | None = None, name: str | None = None) -> ClusterTarget:
    """Return the cluster that options name, else the one that kubectl would use, else the local one.

    Args:
        kubeconfig: file.
        context: context of that file, or of those that kubectl reads.
        name: cluster of `steersman cluster`.
    """
    if name is not None and (kubeconfig is not None or context is not None):
        raise UsageError("--name is a cluster of steersman's, --kubeconfig and --context are others; give one of them")
    by_default = False
    if name is None and kubeconfig is None and context is None and not config.is_configured():
        local = record.find(record.DEFAULT_NAME)
        by_default = local is not None and local.ready
        name = record.DEFAULT_NAME if by_default else None
    if name is not None:
        require = record.require(record.check_name(name))
        kubeconfig, context = Path(require.kubeconfig), require.context
    loaded = config.load(kubeconfig, context)
    return ClusterTarget(loaded, _is_ours(loaded), by_default)


def _is_ours(loaded: KubeConfig) -> bool:
    for name in record.names():
        recorded = record.find(name)
        # A cluster of a kubeconfig was not started by steersman, though it has a record.
        if recorded is None or recorded.way is ClusterBackend.KUBECONFIG or recorded.context != loaded.context:
            continue
        if Path(recorded.kubeconfig).resolve() == loaded.source.resolve():
            return True
    return False


def run_client(target: ClusterTarget, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a coroutine with a client of a cluster. Raises SteersmanError: it does not answer."""

    async def ask() -> T:
        async with Client(target.config) as client:
            try:
                await client.request("GET", "/version")  # later failures are retried, this one is not
            except ApiError as error:
                # /version may be forbidden to a user who may list nodes; the server has answered.
                if error.status != 403:
                    raise
            return await question(client)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run(ask())
    with ThreadPoolExecutor(1) as executor:  # notebooks run in a loop of their own
        return executor.submit(lambda: run(ask())).result()


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A live cluster. Nothing is changed in it.

    Attributes:
        target: the cluster.
    """

    target: ClusterTarget

    @property
    def name(self) -> str:
        """Return the name of its context."""
        return self.target.config.context or DEFAULT_NAME

    def workload(self, *, running: RunningPods = RunningPods.FREE, lives: bool = False) -> Workload:
        """Return its nodes and pods as a workload.

        Args:
            running: what to do with pods that run on a node already.
            lives: whether to read when pods were created, began to run and ended.

        Raises:
            SteersmanError: the cluster does not answer or denies access.
        """

        async def read(client: Client) -> Workload:
            return await read_workload(client, self.name, running, lives=lives)

        return run_client(self.target, read)
