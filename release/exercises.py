"""Use what `schedule` and `serve` use, so that `release.kernels` compiles it."""

from __future__ import annotations

from steersman.apps.dashboard.live.agreement import RuleAgreement
from steersman.apps.runtime.policy_manager import warm_up
from steersman.apps.scheduler.hints import Hints
from steersman.apps.service.process import choose_by_scores
from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.orders.live_order import warm_up_order
from steersman.orders.registry import find_order
from steersman.policies.kube_scheduler import STOCK_TUNED
from steersman.policies.registry import BUILT_IN, TELEMETRY_POLICIES, resolve


def use_policies() -> None:
    """Let each built-in policy decide and score, with telemetry and without."""
    RuleAgreement().warm_up()
    Hints().warm(ClusterState([Node("node", 1000, 1 << 30)]))
    warm_up_order(find_order("shortest:easy"))
    deciding = [name for name in BUILT_IN if name != STOCK_TUNED]  # which has nothing to decide by before a search
    for name in (*deciding, "fgd=500,best-fit=500", *TELEMETRY_POLICIES):
        for telemetry in (False, True):
            if telemetry or name not in TELEMETRY_POLICIES:
                warm_up(resolve(name), telemetry=telemetry)
                warm_up(resolve(name), choose_by_scores, telemetry=telemetry)


if __name__ == "__main__":
    use_policies()
