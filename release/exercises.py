"""Use what `schedule`, `serve` and the environments use, so that `release.kernels` compiles it."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np

import steersman  # noqa: F401 - registers the environments
from steersman.apps.dashboard.live.agreement import RuleAgreement
from steersman.apps.local_cluster.telemetry import exporter
from steersman.apps.runtime.policy_manager import warm_up
from steersman.apps.scheduler.hints import Hints
from steersman.apps.service.process import choose_by_scores
from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.orders.live_order import warm_up_order
from steersman.orders.registry import find_order
from steersman.policies.kube_scheduler import STOCK_TUNED
from steersman.policies.registry import BUILT_IN, TELEMETRY_POLICIES, resolve

STEPS = 30


def use_policies() -> None:
    """Let each built-in policy decide and score, with telemetry and without."""
    exporter.warm_up()
    RuleAgreement().warm_up()
    Hints().warm(ClusterState([Node("node", 1000, 1 << 30)]))
    warm_up_order(find_order("shortest:easy"))
    deciding = [name for name in BUILT_IN if name != STOCK_TUNED]  # which has nothing to decide by before a search
    for name in (*deciding, "fgd=500,best-fit=500", *TELEMETRY_POLICIES):
        for telemetry in (False, True):
            if telemetry or name not in TELEMETRY_POLICIES:
                warm_up(resolve(name), telemetry=telemetry)
                warm_up(resolve(name), choose_by_scores, telemetry=telemetry)


def use_environments() -> None:
    """Take some steps in each environment, by the first action that is allowed."""
    for name in sorted(each for each in gymnasium.registry if each.startswith("steersman/")):
        env = gymnasium.make(name)
        env.reset(seed=1)
        for _ in range(STEPS):
            masks = env.unwrapped.action_masks()  # type: ignore[attr-defined]
            _, _, terminated, truncated, _ = env.step(int(np.flatnonzero(masks)[0]))
            if terminated or truncated:
                env.reset()


if __name__ == "__main__":
    {"policies": use_policies, "environments": use_environments}[sys.argv[1]]()
