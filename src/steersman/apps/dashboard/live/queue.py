"""Predict on demand when the waiting pods of the watched cluster start, as `steersman wait` does."""

from __future__ import annotations

import asyncio
import time

from steersman.apps.dashboard.live.explanations import EXPLAINED
from steersman.apps.recorder.live_workload import read_workload
from steersman.core.errors import UsageError
from steersman.kubernetes.client import Client
from steersman.policies.registry import in_order, resolve
from steersman.simulation.prediction.moment import moment_of
from steersman.simulation.prediction.prediction import QueuePrediction, predict_queue
from steersman.simulation.run import decider_on
from steersman.workloads.workload import RunningPods

ORDERS = (
    *("age", "wfp3:easy", "shortest", "smallest", "fcfs", "easy"),
    *("wfp3", "area", "largest", "unicef", "f1", "fair"),
)
"""Orders that a live scheduler can follow."""


class LiveQueue:
    """Predictions of the cluster's queue, one at a time: each simulates many futures.

    Args:
        client: connection to the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()

    async def predict(self, policy: str, order: str) -> QueuePrediction:
        """Return when all waiting pods start.

        Args:
            policy: who decides, one of `EXPLAINED`.
            order: who goes next, one of `ORDERS`.

        Raises:
            UsageError: the policy or the order is not offered here.
            SteersmanError: the cluster does not answer, or the policy failed.
        """
        if policy not in EXPLAINED:
            raise UsageError(f"policy: {policy!r} predicts nothing here; {', '.join(EXPLAINED)} do")
        if order not in ORDERS:
            raise UsageError(f"order: {order!r} predicts nothing here; {', '.join(ORDERS)} do")
        async with self._lock:
            # Read again, since the watch knows nothing of pods that have ended.
            workload = await read_workload(self._client, "the cluster", RunningPods.FROM_NOW, lives=True)
            now = time.time()

            def predict() -> QueuePrediction:
                decides = decider_on(workload, in_order(resolve(policy), order))
                return predict_queue(moment_of(workload, now), decides)

            return await asyncio.to_thread(predict)
