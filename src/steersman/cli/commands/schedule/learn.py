"""`steersman schedule --learn`: an agent in a background process decides, and learns from what its decisions bring."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from steersman.apps.learner.plan import LivePlan, init_run
from steersman.apps.load.target import ClusterTarget
from steersman.apps.runtime.decoding import (
    read_nodes,
)
from steersman.apps.scheduler.agent_link import AgentLink
from steersman.apps.scheduler.agent_policy import AgentSettings
from steersman.cli.options.cluster import run_with_client
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import background_process
from steersman.objectives import registry as objectives

log = structlog.get_logger("learning")


def prepare(target: ClusterTarget, plan: LivePlan, folder: Path, *, may_explore: bool) -> int:
    """Prepare the folder of the training, and return the capacity of its observation in nodes.

    Raises:
        UsageError: the agent would explore on a cluster that steersman did not start.
        SteersmanError: it cannot learn on this cluster, or not in that folder.
    """
    if plan.explores and not target.is_local and not may_explore:
        without = "--policy FILE --algorithm dqn learns without exploring"
        raise UsageError(
            f"{plan.algorithm} would explore on {target.config.cluster.server} (context {target.config.context!r}), "
            f"which steersman did not start: pods go to nodes that it does not believe to be the best; "
            f"--explore-anyway if that is meant, or {without}"
        )
    return init_run(plan, folder, run_with_client(target, read_nodes))


def agent_settings(plan: LivePlan, link: AgentLink | None = None) -> AgentSettings:
    """Return the agent of a plan."""
    name = f"{plan.algorithm}-{plan.network.name}"
    return AgentSettings(name, plan.find_view(), objectives.resolve(plan.objective), link)


@contextmanager
def agent_process(plan: LivePlan, folder: Path, capacity: int, logs: LogOptions) -> Iterator[AgentSettings]:
    """Run the agent in a background process, in a folder from `prepare`, until the block ends."""

    def on_exit(_: int) -> None:
        log.error("the agent's process has ended; scheduling continues by a rule", folder=str(folder))

    here, there = multiprocessing.Pipe()
    with background_process(on_exit, _learn, plan, folder, capacity, there, logs):
        there.close()
        link = AgentLink(here, asks_teacher=plan.asks_teacher)
        try:
            yield agent_settings(plan, link)
        finally:
            link.close()


def _learn(plan: LivePlan, folder: Path, capacity: int, connection: Connection, logs: LogOptions) -> None:
    from steersman.apps.learner.agent_process import run_agent

    logs.of_process("learn").configure()
    try:
        run_agent(plan, folder, capacity, connection)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))
