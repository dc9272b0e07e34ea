"""A trial of `steersman tune --live`: an agent that learns on a live cluster while Deployments fill it."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.live.learner.live_agent import LiveAgent
from steersman.live.learner.plan import LivePlan
from steersman.live.load.driver import FillOptions
from steersman.live.load.live_cluster import ClusterTarget
from steersman.live.load.load_driver import LoadDriver
from steersman.training.run import TrainingLimits
from steersman.training.tuning.study import Report
from steersman.workloads.generators.deployments import DeploymentSettings

POLL_SECONDS = 1.0
LEAST_ANSWERED = 0.5  # share of the pods that the agent must place itself; else the value would be the fallback's


@dataclass(frozen=True, slots=True)
class LiveTrials:
    """Trials on one cluster, one at a time; each gets the same Deployments. The user has allowed to use the cluster.

    Attributes:
        target: the cluster.
        load: its Deployments; filling goes on, with further seeds, until the trial has so many pods.
    """

    target: ClusterTarget
    load: DeploymentSettings

    def task(self, limits: TrainingLimits) -> dict[str, Any]:
        """Return what all trials of a study have in common."""
        return {"pods": limits.iterations} | {f"load.{name}": value for name, value in asdict(self.load).items()}

    def run(self, plan: LivePlan, folder: Path, limits: TrainingLimits, report: Report) -> float:
        """Return the mean reward of the later half of a trial's decisions; its pods are deleted.

        Args:
            limits: of which `iterations` is the number of pods, and `validate_every` that between two reports.

        Raises:
            SteersmanError: the fallback placed most pods, or the cluster does not answer.
        """
        agent = LiveAgent(self.target, plan, folder, explore_anyway=True)
        fill = FillOptions(plan.scheduler_name, interval=0.0, wait=0.0)
        driver = LoadDriver(self.target, self.load, fill, pods=limits.iterations, yes=True)
        driver.clean()  # what an earlier trial that was killed has left
        until = time.monotonic() + 60.0 * (limits.minutes or np.inf)
        reported = 0
        with ThreadPoolExecutor(2) as threads:
            runs: list[Future[Any]] = [threads.submit(agent.run)]
            try:
                agent.wait_until_ready()
                runs.append(threads.submit(driver.run))
                while not any(run.done() for run in runs) and time.monotonic() < until:
                    wait(runs, POLL_SECONDS, FIRST_COMPLETED)
                    metrics = agent.metrics
                    if metrics and metrics["steps"][-1] >= reported + limits.validate_every:
                        reported += limits.validate_every
                        report(reported, later_reward(metrics, reported))
            finally:
                driver.stop()
                agent.stop()
                for run in runs:
                    run.result()  # in place of an error that this one has caused
                driver.clean()
        questions = sum(agent.answers.values())
        if agent.answers["answered"] < LEAST_ANSWERED * questions:
            raise SteersmanError(
                f"the agent placed {agent.answers['answered']} of {questions} pods, its fallback the rest"
            )
        return later_reward(agent.metrics, limits.iterations)


def later_reward(metrics: dict[str, npt.NDArray[np.float64]], decisions: int) -> float:
    """Return the mean reward of the later half of so many decisions. Raises SteersmanError: there were none."""
    if not metrics:
        raise SteersmanError("the agent learned nothing: a trial needs more pods")
    end = max(1, int(np.searchsorted(metrics["steps"], decisions, "right")))
    return float(np.mean(metrics["reward"][end // 2 : end]))
