"""Fragmentation that is kept by a hash of the state is what would be worked out, whatever workloads share the room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.envs.inflation.episodes import WorkloadCore, WorkloadOptions
from steersman.objectives import summary as summed
from steersman.policies.gpu_state.fragmentation_cache import KEY, empty_fragmentation_cache, profile_key
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.profile import profile_arrays

STEPS = 120


def workloads():
    """Two on the same nodes whose mixes differ."""
    first = embedded(SMALL)
    return first, replace(first, name="half", pods=first.pods[::2])


def course(count: int, marked: bool = True) -> tuple[WorkloadCore, list[np.ndarray]]:
    """What is observed if fragmentation is kept for so many states; of two runs, one of each workload."""
    core, random = WorkloadCore(2, "inflation", WorkloadOptions(workload=workloads())), np.random.default_rng(5)
    for e, workload in enumerate(workloads()):
        core.start(e, np.random.default_rng(e), {"workload": workload.name})
    marks = core._kept.known.mark if marked else np.array([[0, 1 << 40]] * 2)
    core._kept = core._kept._replace(known=empty_fragmentation_cache(marks, count))
    found = []
    for _ in range(STEPS):
        mask = core.observation.mask
        core.step((mask * random.random(mask.shape)).argmax(axis=1))
        found.append(core.observation.nodes.copy())
    return core, found


def test_cached_fragmentation_equals_recomputed():
    core, kept = course(1 << 14)
    _, anew = course(1)
    assert all(np.array_equal(a, b) for a, b in zip(kept, anew, strict=True))
    assert (core._kept.known.keys[:, KEY] != 0).sum() > 100


def test_profile_marks_prevent_stale_cache_hits():
    _, kept = course(1 << 14)
    _, mistaken = course(1 << 14, marked=False)
    assert not all(np.array_equal(a, b) for a, b in zip(kept, mistaken, strict=True))


def test_profile_marks_are_distinct():
    one, other = (Simulator(workload).profile_arrays(None) for workload in workloads())
    assert profile_key(one).tolist() == profile_key(one._replace(cpu=one.cpu.copy())).tolist()
    assert profile_key(one)[0] != profile_key(other)[0]
    assert profile_key(one)[1] == one.cpu.max()
    assert profile_key(profile_arrays((), ()))[1] == 0


def test_infos_describe_the_state_after_the_action():
    core, _ = course(1 << 14)
    infos, after = core.infos(), core.batch.summary[:, 2]
    assert infos["allocation"].tolist() == (after[:, summed.GPU_TAKEN] / after[:, summed.GPU_TOTAL]).tolist()
    nodes = after[:, summed.CPU_NODES]
    variance = after[:, summed.CPU_SQUARE] / nodes - (after[:, summed.CPU_SHARE] / nodes) ** 2
    assert infos["node_variance"] == pytest.approx(variance, abs=1e-15)
    assert infos["waiting"].dtype == np.int64
    assert infos["illegal"].tolist() == [False, False]
