"""`latency-aware`: few nodes, well filled, and every pod near enough to its users.

Source: SoniaMatranga/SoniaMatrangaTesi, objective P0: r1 + r2 + r3 with r1 the share of nodes that can stay off, r2 the
pods of a used node (over 50), r3 = 1 within the pod's soft limit, 0.5 within the hard one, else 0 and the episode ends.
Here it is their mean, on the state after the action, and
- r2 is the share of the used nodes' CPU that is requested: pods differ in size;
- a pod without limits has kept them;
- the episode goes on: to end it would be a way out of all that is still to come. Instead a hard limit that is broken
  though some node could have met it costs `BROKEN`. With 0 alone it would pay to break one: a node that stays off is
  rewarded at every later decision.
"""

from __future__ import annotations

from steersman.compiled import inner
from steersman.telemetry.model import BEYOND_ANY, WITHIN_HARD, WITHIN_SOFT

BROKEN = -10.0


@inner
def latency_aware(nodes: int, used: int, filled: float, kept: int) -> float:
    """(r1 + r2 + r3) / 3: see above.

    Args:
        nodes: of the cluster.
        used: those that hold a pod.
        filled: share of their CPU that is requested.
        kept: how the pod's limits are kept, `telemetry.model.WITHIN_SOFT`...
    """
    r3 = 1.0 if kept == WITHIN_SOFT else 0.5 if kept == WITHIN_HARD else 0.0 if kept == BEYOND_ANY else BROKEN
    return ((nodes - used) / nodes + filled + r3) / 3.0
