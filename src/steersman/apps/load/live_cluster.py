"""A live cluster as an object: its name, and its nodes and pods as a workload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from steersman.apps.load.target import ClusterTarget
from steersman.apps.recorder.live_workload import read_workload
from steersman.apps.runtime.tasks import run
from steersman.kubernetes.client import ApiError, Client
from steersman.workloads.workload import RunningPods, Workload

T = TypeVar("T")
DEFAULT_NAME = "cluster"
"""Name of the workload of a cluster without a context; else it is the context's."""


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
