"""Operations on the arrays of random clusters agree with each other."""

import numpy as np
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.nightly import examples

from steersman.cluster.arrays import NodeArrays, best_devices, fit_mask, fits, place, remove, room_for


def test_operations_agree_on_random_clusters() -> None:
    fitting, refused = 0, 0
    for seed in range(examples(40)):
        state = FileCluster(sequence(RandomDraws(seed), 20)).state
        nodes, classes, slots = state.arrays, state.class_arrays, np.arange(len(state.nodes))
        before = NodeArrays(*(each.copy() for each in nodes))
        for c in range(len(state.classes)):
            mask = fit_mask(nodes, classes, c)
            assert mask.tolist() == [fits(nodes, classes, c, n) for n in slots]
            rooms = [room_for(nodes, classes, c, slots[n : n + 1]) for n in slots]
            assert [room > 0 for room in rooms] == mask.tolist()
            assert room_for(nodes, classes, c, slots) == sum(rooms)
            for n in np.flatnonzero(mask).tolist():
                devices = []
                while len(devices) < min(rooms[n], 3) and fits(nodes, classes, c, n):
                    devices.append(best_devices(nodes, classes, c, n))
                    place(nodes, classes, c, n, devices[-1])
                assert devices
                for each in devices:
                    remove(nodes, classes, c, n, each)
            fitting, refused = fitting + int(mask.sum()), refused + int((~mask).sum())
        for now, then in zip(nodes, before, strict=True):
            np.testing.assert_array_equal(now, then)
    assert fitting > 1000
    assert refused > 1000
