"""`least-connections`: spread TCP connections evenly, so that no node has many.

Source: SoniaMatranga/SoniaMatrangaTesi, objective LC. There the reward is 1 for the node next to the one with the
fewest connections, an off-by-one error, and 0 for every other node. Here the state after the action is rewarded.
"""

from __future__ import annotations

from steersman.core.compiled import inlined_kernel


@inlined_kernel
def least_connections(mean: float, most: float) -> float:
    """Return the mean over the maximum of the nodes' established connections after the action; 1 when all are equal.

    The number of connections is up to the users, so only the maximum can be influenced.
    """
    return mean / most if most > 0.0 else 1.0
