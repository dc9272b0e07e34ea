"""Background processes that learn: of `schedule --learn` and of `serve --learn`.

An agent decides, and learns from what its decisions bring. If it is off-policy, its process starts another one that
observes what other schedulers do.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import background_process, restarted
from steersman.kubernetes.config import KubeConfig
from steersman.live.learner.follower import follow
from steersman.live.learner.plan import AgentOptions, LivePlan, LiveRun, init_run, live_plan
from steersman.live.load.live_cluster import ClusterTarget, run_client
from steersman.live.runtime.listing import read_nodes
from steersman.live.scheduler.agent_link import AgentLink
from steersman.live.scheduler.agent_policy import AgentSettings
from steersman.objectives import registry as objectives
from steersman.prometheus.configuration import Configuration
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.live.learner.agent_process import OtherSchedulers

OBSERVER_NICENESS = 10
LEARN, OBSERVE = "learn", "observe"  # processes that log

log = structlog.get_logger("learning")


class Learning(NamedTuple):
    """What a process that learns is started with; without telemetry its configuration is None."""

    plan: LivePlan
    run: LiveRun
    kubeconfig: KubeConfig
    telemetry: Configuration | None
    configure_logs: Callable[[str], None]  # of a process, `LEARN` or `OBSERVE`


def agent_settings(plan: LivePlan, link: AgentLink | None = None) -> AgentSettings:
    name = f"{plan.algorithm}-{plan.network.name}"
    return AgentSettings(name, plan.find_view(), objectives.resolve(plan.objective), link)


@contextmanager
def agent_process(learning: Learning) -> Iterator[AgentSettings]:
    """Run the agent in a background process until the block ends; one that dies is started again."""
    link: AgentLink | None = None
    is_closing = False

    @contextmanager
    def begin(on_exit: Callable[[int], None]) -> Iterator[None]:
        nonlocal link
        here, there = multiprocessing.Pipe()
        with background_process(on_exit, _learn, learning, there):
            # The child has a copy. With ours open, reading would not end when the child dies.
            there.close()
            if link is None:
                link = AgentLink(here, asks_fallback=learning.plan.asks_fallback)
            else:
                link.replace(here)
            yield

    def on_end(seconds: float) -> None:
        if not is_closing:
            folder = str(learning.run.folder)
            log.error("the agent's process has ended; the fallback decides", folder=folder, again_in=seconds)

    with restarted(begin, on_end):
        assert link is not None
        try:
            yield agent_settings(learning.plan, link)
        finally:
            # Before `link.close`, which ends the agent: that is no failure to log.
            is_closing = True
            link.close()


def _learn(learning: Learning, connection: Connection) -> None:
    from steersman.live.learner.agent_process import run_agent

    learning.configure_logs(LEARN)
    try:
        with _observing(learning) as others:
            run_agent(learning.plan, learning.run, connection, others)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))


@contextmanager
def _observing(learning: Learning) -> Iterator[OtherSchedulers | None]:
    """Observe other schedulers in a process until the block ends, if the agent learns from them."""
    if not learning.plan.learns_from_others:
        yield None
        return

    from steersman.live.learner.agent_process import OtherSchedulers

    here, there = multiprocessing.Pipe()
    with background_process(lambda _: None, _observe, learning, there):
        there.close()
        yield OtherSchedulers(here)


def _observe(learning: Learning, connection: Connection) -> None:
    from steersman.live.learner.agent_process import observe_others

    # Decisions have a deadline, learning from others has none.
    os.nice(OBSERVER_NICENESS)
    # The scheduler watches the same objects, and says what is wrong with them and with the API server.
    learning.configure_logs(OBSERVE)
    observe_others(learning.plan, learning.run.capacity, learning.kubeconfig, learning.telemetry, connection)


def prepare_to_follow(
    target: ClusterTarget, policy: Path, folder: Path, scheduler_name: str
) -> tuple[LivePlan, LiveRun]:
    if not policy.is_file():
        raise UsageError(f"--learn needs a policy file as --policy, and {str(policy)!r} is not a file")
    check_writable("--learn", folder, "log")
    plan = live_plan(scheduler_name, policy, AgentOptions("dqn"))
    return plan, init_run(plan, folder, run_client(target, read_nodes))


@contextmanager
def following(learning: Learning) -> Iterator[None]:
    def on_exit(_: int) -> None:
        log.error("the learning process has ended; the policy in use stays", folder=str(learning.run.folder))

    with background_process(on_exit, _follow, learning):
        yield


def _follow(learning: Learning) -> None:
    learning.configure_logs(LEARN)
    try:
        follow(learning.plan, learning.run, learning.kubeconfig, learning.telemetry)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))
