"""Inflation draws the published experiments; what they come to is checked in tests/integration/test_published.py."""

import numpy as np
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError
from steersman.workloads.formats.openb import embedded
from steersman.workloads.generators.inflation import inflate
from steersman.workloads.workload import Workload


def small(*demands: tuple[int, int], gpus: int = 10) -> Workload:
    pods = tuple(
        Pod(f"p{i}", PodClass(Requests(1, 1, gpu_count=count, gpu_milli=milli)))
        for i, (count, milli) in enumerate(demands)
    )
    return Workload("small", (Node("a", 1000, 1 << 30, gpu_count=gpus), Node("b", 1000, 1 << 30)), pods)


def total(workload: Workload, order: np.ndarray) -> int:
    return sum(workload.pods[i].requests.gpu_total_milli for i in order)


def test_demand_reaches_the_ratio_without_exceeding_it_by_a_device():
    workload = embedded("default")
    inflation = inflate(workload, ratio=1.3, seed=42)
    capacity = 6212 * 1000
    assert 1.3 * capacity - 1000 <= total(workload, inflation.pods) <= 1.3 * capacity
    assert set(inflation.pods) == set(range(len(workload.pods)))
    assert sorted(inflation.nodes) == list(range(len(workload.nodes)))


def test_a_trace_over_the_target_loses_pods_and_gains_none():
    workload = small((1, 1000), (1, 1000), (1, 1000), (1, 1000), gpus=2)
    inflation = inflate(workload, ratio=1.0, seed=1)
    assert len(inflation.pods) == 2
    assert len(set(inflation.pods)) == 2


def test_the_check_before_adding_a_pod_uses_the_milli_of_one_device():
    workload = small((4, 1000))
    # 4 + 4 arrive; then 8 + 1 is within 9.5, so a third pod of four devices arrives; 12 + 1 is not.
    assert total(workload, inflate(workload, ratio=0.95, seed=1).pods) == 12000


def test_pods_are_ordered_by_name_not_by_file():
    workload = embedded("default")
    turned = Workload(workload.name, workload.nodes[::-1], workload.pods[::-1])
    one, other = inflate(workload, ratio=1.1, seed=7), inflate(turned, ratio=1.1, seed=7)
    assert [workload.pods[i].name for i in one.pods] == [turned.pods[i].name for i in other.pods]
    assert [workload.nodes[i].name for i in one.nodes] == [turned.nodes[i].name for i in other.nodes]


def test_cluster_without_gpus_fails_in_one_line():
    with raises(SteersmanError):
        inflate(small((0, 0)), ratio=1.3, seed=1)
    with raises(SteersmanError):
        inflate(small((1, 100), gpus=0), ratio=1.3, seed=1)


def test_unshuffled_pods_precede_drawn_ones_in_order():
    workload = embedded("default")
    order = inflate(workload, ratio=1.3, seed=1, shuffle=False).pods
    assert order[: len(workload.pods)].tolist() == list(range(len(workload.pods)))
    assert len(order) > len(workload.pods)


def test_extreme_ratio_fails_in_one_line():
    with raises(SteersmanError, "0.5", "1"):
        inflate(small((1, 1000), gpus=1), ratio=0.5, seed=1)
    pods = tuple(Pod(f"c{i}", PodClass(Requests(1, 1))) for i in range(100_000))
    workload = small((1, 1))
    with raises(SteersmanError, "1299"):
        inflate(Workload("w", workload.nodes, workload.pods + pods), ratio=1.3, seed=1)
