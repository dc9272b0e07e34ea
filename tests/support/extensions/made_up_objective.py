"""An objective that is not steersman's, in one file: balance (see `objectives.objective`) once more, in NumPy."""

import numpy as np

from steersman.objectives.objective import Objective
from steersman.objectives.summary import CPU_NODES, CPU_SHARE, CPU_SQUARE


def even_cpu(_before, after):
    """1 - 2 s / (s + 1), [E], s the standard deviation over nodes of the share of CPU in use."""
    nodes = np.maximum(after[:, CPU_NODES], 1.0)
    variance = after[:, CPU_SQUARE] / nodes - (after[:, CPU_SHARE] / nodes) ** 2
    s = np.sqrt(np.where(variance > 1e-12, variance, 0.0))
    return 1 - 2 * s / (s + 1)


EVEN = Objective("even-cpu", formula="1 - 2 s / (s + 1), s the nodes' deviation of CPU", function=even_cpu)
FAILS = Objective("fails", function=lambda *_: 1 / 0)
NOT_FINITE = Objective("not-finite", function=lambda _, after: np.full(len(after), np.nan))
TOO_FEW = Objective("too-few", function=lambda _, after: np.zeros(len(after) + 1))
NUMBERED = Objective("numbered", number=3, function=even_cpu)
NOTHING = "no objective"
