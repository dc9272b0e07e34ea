"""`steersman schedule --predict-waits`: starts of waiting pods, simulated in a process of its own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from steersman.apps.recorder.live_workload import read_workload
from steersman.apps.scheduler.wait_events import PredictedStart
from steersman.core.errors import UsageError
from steersman.core.processes import ask_process
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig
from steersman.orders.live_history import LiveHistory, read_run_times
from steersman.orders.order import Order
from steersman.policies.base import Policy, with_own_order
from steersman.policies.registry import resolve
from steersman.simulation.prediction.moment import moment_of
from steersman.simulation.prediction.prediction import QueuePrediction, predict_queue
from steersman.workloads.workload import RunningPods, Workload

NICENESS = 19
LIMIT_SECONDS = 600.0  # a prediction that takes longer is ended


@dataclass(frozen=True, slots=True)
class PredictionTask:
    """What is predicted."""

    config: KubeConfig
    policy: str
    order: Order
    # File that keeps what is known of run times; None: the pods that ended and are still listed say it
    run_times: Path | None

    async def ask(self, active: Policy) -> list[PredictedStart]:
        """Return when the pods start that wait now, under the policy that decides now.

        Raises SteersmanError: the process failed or took too long.
        """
        # Of another policy than a portfolio the name suffices: a user's object need not go to another process.
        member = active if resolve(self.policy).members else None
        return await ask_process(predict_starts, (self, member), seconds=LIMIT_SECONDS, niceness=NICENESS)


def check_predictable(policy: Policy, spec: str) -> None:
    """Raise UsageError for a policy whose decisions cannot be simulated without asking others."""
    from steersman.apps.http_policy.policy import server_url

    if server_url(policy):
        raise UsageError(
            f"--predict-waits simulates the policy, and {spec} asks a server; leave it out, or give a policy that "
            "decides here"
        )


def predict_starts(question: tuple[PredictionTask, Policy | None]) -> list[PredictedStart]:
    """Read the cluster, and return when the pods start that wait, the one that goes next first.

    `question`: what is predicted, and the policy that decides if a portfolio is configured.
    """
    task, member = question

    async def read() -> Workload:
        async with Client(task.config) as client:
            return await read_workload(client, "the cluster", RunningPods.FROM_NOW, lives=True)

    workload, now = asyncio.run(read()), time.time()
    decides = with_own_order(member or resolve(task.policy), task.order)
    return starts_of(predict_queue(moment_of(workload, now, _history(task.run_times)), decides))


def starts_of(prediction: QueuePrediction) -> list[PredictedStart]:
    return [
        PredictedStart(each.pod, each.p10, each.p50, each.p90, prediction.horizon)
        for each in prediction.pods
        # That no node could ever hold a pod is what its event FailedScheduling says.
        if not each.impossible
    ]


def _history(file: Path | None) -> LiveHistory | None:
    return read_run_times(file) if file is not None and file.exists() else None
