"""An agent that schedules a live cluster and learns there, as an object: of `schedule --learn`, notebooks, trials."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.errors import SteersmanError, UsageError
from steersman.live.learner.plan import LivePlan, init_run
from steersman.live.learner.processes import Learning, agent_process
from steersman.live.load.live_cluster import ClusterTarget, run_client
from steersman.live.runtime.listing import read_nodes
from steersman.live.runtime.tasks import StopRequest
from steersman.live.scheduler.agent_link import AgentLink
from steersman.live.scheduler.process import LiveScheduler, SchedulerSettings
from steersman.live.scheduler.scheduler import SchedulerOptions
from steersman.training.run import POLICY, read_metrics

READY_SECONDS, POLL_SECONDS = 120.0, 0.1
LEASE_NAMESPACE = "kube-system"


def log_warnings(_: str = "") -> None:
    """Log warnings and errors alone, to standard error, unless this process has configured structlog."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )


def scheduler_settings(plan: LivePlan, fallback: str | None = None) -> SchedulerSettings:
    """Return the settings of the plan's scheduler, on a free port, with the lease of `steersman schedule`."""
    name = plan.scheduler_name
    return SchedulerSettings(
        fallback or plan.default_fallback,
        options=SchedulerOptions(name),
        lease_namespace=LEASE_NAMESPACE,
        lease_name=name,
        port=0,
    )


class LiveAgent:
    """A scheduler of a live cluster that lets an agent decide. The agent learns in its own process.

    `run` blocks until another thread calls `stop`. An object runs once; another one on its folder continues.

    Raises:
        UsageError: the agent would explore in a cluster that steersman did not start.
    """

    def __init__(
        self,
        target: ClusterTarget,
        plan: LivePlan,
        folder: Path,
        settings: SchedulerSettings | None = None,  # of the scheduler, None: the defaults; `policy` is the fallback
        *,
        explore_anyway: bool = False,  # whether it may explore in a cluster that steersman did not start
        configure_logs: Callable[[str], None] = log_warnings,  # called in each background process with its name
    ) -> None:
        if plan.scheduler_name == DEFAULT_SCHEDULER:
            raise UsageError(f"scheduler {DEFAULT_SCHEDULER!r} is the cluster's kube-scheduler; give another name")
        if plan.explores and not target.is_local and not explore_anyway:
            without = "--policy FILE --algorithm dqn learns without exploring"
            raise UsageError(
                f"{plan.algorithm} would explore on {target.config.cluster.server} (context "
                f"{target.config.context!r}), which steersman did not start: pods go to nodes that it does not believe "
                f"to be the best; --explore-anyway if that is meant, or {without}"
            )
        self.folder, self._target, self._plan = folder, target, plan
        self._settings = settings or scheduler_settings(plan)
        self._configure_logs = configure_logs
        self._stop = StopRequest()
        self._link: AgentLink | None = None
        self._has_ended, self._problem = threading.Event(), "it was stopped"

    def run(self) -> None:
        """Schedule and learn until `stop`; then the agent saves its run.

        Raises:
            MissingExtraError: torch is not installed.
            SteersmanError: the cluster does not answer, or the folder cannot be used.
        """
        try:
            self._run()
        except BaseException as error:
            self._problem = str(error)
            raise
        finally:
            self._has_ended.set()

    def stop(self) -> None:
        """Make `run` return once the bindings in flight have ended; may be called in any thread, at any time."""
        self._stop.set()

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until the agent decides; before that the fallback does. Raises SteersmanError: it does not in time."""
        end = time.monotonic() + seconds
        while self._link is None or not self._link.is_ready:
            if self._has_ended.is_set():
                raise SteersmanError(f"the agent has ended before it was ready: {self._problem}")
            if time.monotonic() >= end:
                raise SteersmanError(f"{self.folder}: the agent is not ready after {seconds:g} s")
            time.sleep(POLL_SECONDS)

    @property
    def metrics(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the columns of `metrics.csv` by name, a value per iteration; undefined ones are NaN.

        `steps` are decisions so far; `reward`, `epsilon` and `loss` are of each iteration.
        """
        return read_metrics(self.folder)

    @property
    def answers(self) -> dict[str, int]:
        """Return the number of decisions by what the agent did; all but `answered` are the fallback's."""
        return {} if self._link is None else dict(self._link.results)

    def _run(self) -> None:
        settings = self._settings
        live_run = init_run(self._plan, self.folder, run_client(self._target, read_nodes))
        with live_run.lock:
            if self._plan.network.start is not None:
                settings = replace(settings, policy=str(self.folder / POLICY))  # with what an earlier session learned
            learning = Learning(self._plan, live_run, self._target.config, settings.telemetry, self._configure_logs)
            with agent_process(learning) as agent:
                self._link = agent.link
                decided = replace(settings, agent=agent)
                run_client(self._target, lambda client: self._stop.run(LiveScheduler(client, decided).run()))
