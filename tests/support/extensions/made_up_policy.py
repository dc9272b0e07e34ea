"""A rule that is not steersman's, in one file: the node with most CPU left."""

import numpy as np

from steersman.cluster.arrays import CPU


class MostLeft:
    name = "most-left"

    def prepare(self, state, profile, seed):
        pass

    def scores(self, state, class_id, feasible):
        return state.arrays.free[:, CPU].astype(np.float64)
