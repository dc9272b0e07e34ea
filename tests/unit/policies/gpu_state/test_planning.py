"""Planning: the model of devices is exact, and the planned table loses less than filling devices greedily."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from steersman.cluster.model import GPU_MILLI
from steersman.core.handles import play_requests, undo_requests
from steersman.policies import leftovers, planning
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import TypicalPod, typical_pods


def pods(*shares):
    """Typical pods with one device of so many milli, and a share of the mix."""
    return tuple(TypicalPod(1000, milli, 1, (), share) for milli, share in shares)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.sampled_from((100, 250, 470, 810, 1000)), min_size=1, max_size=30),
    st.lists(st.floats(-1, 1), min_size=21, max_size=21),
    st.integers(1, 5),
)
def test_an_episode_is_the_greedy_rule(requests, losses, count):
    sizes = np.unique(requests)
    table = np.repeat(losses, 50)[: GPU_MILLI + 1]
    table = np.append(table, np.zeros(GPU_MILLI + 1 - len(table)))
    devices = np.zeros(GPU_MILLI + 1, dtype=np.int64)
    devices[GPU_MILLI] = count
    chosen = np.zeros(len(requests), dtype=np.int64)
    play_requests(sizes, np.searchsorted(sizes, requests), 10, table, devices, chosen)
    left = [GPU_MILLI] * count
    for request, at in zip(requests, chosen, strict=True):
        growth = {x: table[x - request] - table[x] for x in sorted(set(left)) if x >= request}
        expected = min(growth, key=lambda x: (growth[x], x), default=-1)
        assert at == expected
        if at >= 0:
            left.remove(at)
            left.append(at - request)
    assert sorted(left) == sorted(np.repeat(np.arange(GPU_MILLI + 1), devices))


def test_looking_back_gives_the_expected_final_leftover():
    # Two devices; 600 goes on each, then 300 on one of the two with 400.
    sizes, sequence = np.array([300, 600]), np.array([1, 1, 0])
    devices = np.zeros(GPU_MILLI + 1, dtype=np.int64)
    devices[[100, 400]] = 1
    sums, counts = np.zeros(GPU_MILLI + 1), np.zeros(GPU_MILLI + 1)
    undo_requests(sizes, sequence, np.array([GPU_MILLI, GPU_MILLI, 400]), devices, sums, counts)
    assert devices[GPU_MILLI] == devices.sum() == 2
    assert (counts[400], counts[100]) == (2, 1)
    assert sums[100] == pytest.approx(0.1)
    assert sums[400] == pytest.approx(2 * (0.4 + 0.1) / 2)  # both visits: one of the two was filled up


def lost(profile, table, seed):
    sizes, shares = planning.device_requests(profile)
    return planning._episode(sizes, planning._sequence(sizes, shares, seed), table)[0]


@pytest.mark.parametrize("name", ["default", "gpushare60"])
def test_planning_beats_best_fit_on_held_out_sequences(name):
    profile = typical_pods(embedded(name).pods)
    planned = planning.planned_losses(profile)
    best_fit = np.arange(GPU_MILLI + 1) / GPU_MILLI * 1e-3
    for seed in (9001, 9002, 9003):
        assert lost(profile, planned, seed) < 0.97 * lost(profile, best_fit, seed)


def test_planned_losses_include_certain_losses():
    planned = planning.planned_losses(pods((300, 0.5), (700, 0.5)))
    assert planned[0] == 0
    assert planned[200] > planned[0] + 0.15  # nobody takes 200
    assert planned[:2].tolist() == pytest.approx([0, 0.001])


def test_a_mix_without_gpus_plans_nothing():
    assert not planning.planned_losses((TypicalPod(1000, 0, 0, (), 1.0),)).any()
    assert not planning.planned_losses(()).any()


def test_pods_of_random_sizes_fill_a_device():
    losses = planning.filling_losses((300, 700), (0.5, 0.25))
    assert losses[1000] == pytest.approx(2 / 3 * losses[700] + 1 / 3 * losses[300])
    assert losses[700] == pytest.approx(2 / 3 * 0.1 + 1 / 3 * 0)  # 700: then 400, then 100; or 0 at once


def test_ratios_and_the_smallest_share_are_those_of_the_profile():
    arrays = leftovers.leftover_arrays(pods((300, 0.5), (1000, 0.5)))
    assert arrays.smallest.tolist() == [300]
    assert arrays.ratios[0] == pytest.approx(1000 / 650)
    assert (arrays.planned == planning.planned_losses(pods((300, 0.5), (1000, 0.5)))).all()
