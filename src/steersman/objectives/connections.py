"""`least-connections`: TCP connections spread evenly, so that no node has many.

Source: SoniaMatranga/SoniaMatrangaTesi, objective LC. There the reward is 1 for the node next to the one with the
fewest connections, a slip of one, and 0 for every other node. Here the state after the action is judged.
"""

from __future__ import annotations

from steersman.compiled import inner


@inner
def least_connections(mean: float, most: float) -> float:
    """The mean over the maximum of the nodes' established connections after the action; 1 when all have as many.

    How many connections there are is up to the users, so what is left to decide is how many the busiest node has.
    """
    return mean / most if most > 0.0 else 1.0
