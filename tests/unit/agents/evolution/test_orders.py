"""Evolution of orders: which scenes are played, and what a candidate gains."""

import numpy as np
import pytest

from steersman.agents.evolution.orders import SEEDS, OrderSearch, OrderSearchConfig, OrderTask
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.orders import scores
from steersman.orders.order import Order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.workloads.workload import Workload


def draw(workload, _):
    return schedule(workload, "timed", seed=1, ratio=1.0, load=None)


def cost(waits):
    return 1.0 + float(waits.seconds.mean())


def search_of(**options):
    node = Node("a", 2000, 1 << 30)
    pods = [
        Pod(f"p{k}", PodClass(Requests(cpu_milli=1000 + 1000 * (k % 2))), creation_time=1.0 * k, deletion_time=40.0 + k)
        for k in range(8)
    ]
    workloads = tuple(Workload(name, (node,), tuple(pods)) for name in ("x", "y"))
    task = OrderTask(workloads, draw, cost, resolve("best-fit"), Order("shortest", scores.SHORTEST))
    return OrderSearch(task, OrderSearchConfig(population=4, episodes=6, validation=4, **options))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_spread_scenes_are_equally_far_apart(rng):
    scenes = search_of(spread=True)._draw_scenes(rng, 6)
    assert [which for which, _, _ in scenes] == [0, 1, 0, 1, 0, 1]
    for workload in (0, 1):
        seeds = sorted(seed for which, seed, _ in scenes if which == workload)
        gaps = np.diff([*seeds, seeds[0] + SEEDS])
        assert gaps == pytest.approx(SEEDS / 3, abs=3)
    assert scenes[0][1] != scenes[1][1]


def test_pooled_weighs_the_gain_of_sums():
    scenes = [(0, 1, 0), (0, 2, 0), (1, 3, 0)]
    reference, costs = np.array([1.0, 100.0, 8.0]), np.array([4.0, 50.0, 4.0])
    single = np.log(reference / costs).mean()
    sums = (np.log(101 / 54) + np.log(2)) / 2
    for pooled in (0.0, 0.3, 1.0):
        gain = search_of(pooled=pooled)._gain(scenes, reference, costs)
        assert gain == pytest.approx(pooled * sums + (1 - pooled) * single)


def test_search_counts_its_runs():
    search = search_of()
    assert search.runs == 4  # the reference in the scenes of validation
    search.generation()
    assert search.runs == 4 + 6 * (1 + 4)
