"""`latency-aware`: few nodes, well filled, and every pod close enough to its users.

Source: SoniaMatranga/SoniaMatrangaTesi, objective P0: r1 + r2 + r3 with r1 the share of nodes that can stay off, r2 the
pods of a used node (over 50), r3 = 1 within the pod's soft limit, 0.5 within the hard one, else 0 and the episode ends.
Here it is their mean, on the state after the action, and
- r2 is the share of the used nodes' CPU that is requested: pods differ in size;
- a pod without limits has kept them;
- the episode goes on: ending it would be a way to avoid all later costs. Instead a hard limit that is broken although
  some node could have met it costs `BROKEN`. With 0 alone breaking one would pay: a node that stays off is rewarded at
  every later decision.
"""

from __future__ import annotations

from steersman.core.compiled import inlined_kernel

WITHIN_SOFT, WITHIN_HARD, BEYOND_ANY, BEYOND_AVOIDABLE = range(4)
"""How a placement keeps the pod's limits.

Within the soft one; within the hard one; beyond it, as on every node with free capacity; beyond it although such a node
could have met it."""

BROKEN = -10.0


@inlined_kernel
def latency_aware(nodes: int, used: int, filled: float, kept: int) -> float:
    """Return (r1 + r2 + r3) / 3 as in the module's docstring.

    Args:
        nodes: number of nodes.
        used: number of nodes that hold a pod.
        filled: share of their CPU that is requested.
        kept: how the pod's limits are kept, `WITHIN_SOFT`...
    """
    r3 = 1.0 if kept == WITHIN_SOFT else 0.5 if kept == WITHIN_HARD else 0.0 if kept == BEYOND_ANY else BROKEN
    return ((nodes - used) / nodes + filled + r3) / 3.0
