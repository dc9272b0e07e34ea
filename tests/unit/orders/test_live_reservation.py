"""Reservations on random clusters."""

import random

import numpy as np
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.nightly import examples

from steersman.orders.live_reservation import EndingPods, LiveReservation


def test_reservations_leave_the_cluster_as_it_is() -> None:
    taken = refused = 0
    for seed in range(examples(40)):
        files, draws = FileCluster(sequence(RandomDraws(seed), 40)), random.Random(seed)
        state = files.state
        rows = []
        for i, pod in enumerate(files.workload.pods):
            c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
            slots = np.flatnonzero(state.mask(c, labels)).tolist()
            if slots and f"own/{i}" not in state.placements:
                placed = state.place(f"own/{i}", c, draws.choice(slots), None, labels)
                rows.append((c, placed.slot, placed.devices, 0.0, float(10 * i)))
        columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
        running = EndingPods(*(column.astype(np.int64) for column in columns[:3]), *columns[3:])
        before = [column.copy() for column in state.arrays]
        for c in range(len(state.classes)):
            made = LiveReservation(state, c, running, 5.0)
            for slot in np.flatnonzero(made.reserved).tolist():
                for _ in range(3):
                    passes = made.take(c, slot, 1)
                    taken, refused = taken + passes, refused + (not passes)
        for column, known in zip(state.arrays, before, strict=True):
            np.testing.assert_array_equal(column, known)
    assert taken > 50
    assert refused > 50
