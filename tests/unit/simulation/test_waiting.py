"""Metrics of waits: percentiles, by GPUs and by kind of pod, bounded slowdown; and what parts of a trace contribute."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.simulation.metrics import busy_periods
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import PARTS, Waits, parts_of_arrivals, parts_of_time, waiting_metrics
from steersman.workloads.workload import Workload

NAN = float("nan")


def values_of(waits: Waits) -> dict[str, float]:
    return {metric.name: metric.value for metric in waiting_metrics(waits)}


def test_waits_by_kind_and_by_gpus() -> None:
    """One pod of each kind, a second one of several GPUs that runs to the end, and one that was never bound."""
    found = values_of(
        Waits(
            seconds=np.array([1.0, 2.0, 4.0, 8.0, 16.0, NAN]),
            duration=np.array([100.0, 1.0, 10.0, 4.0, np.inf, 5.0]),
            demand=np.array([0, 500, 1000, 2000, 1000, 9000]),
            devices=np.array([0, 1, 1, 2, 2, 9]),
        )
    )
    assert found["waiting_time_mean_seconds"] == pytest.approx(31 / 5)
    assert found["waiting_time_p50_seconds"] == 4
    assert found["waiting_time_p99_seconds"] == pytest.approx(15.68)
    assert found["waiting_time_max_seconds"] == 16
    assert found["waiting_time_mean_by_gpus_seconds"] == pytest.approx((2 * 0.5 + 4 + 8 * 2 + 16) / 4.5)
    assert found["waiting_time_mean_cpu_only_seconds"] == 1
    assert found["waiting_time_mean_gpu_share_seconds"] == 2
    assert found["waiting_time_mean_one_gpu_seconds"] == 4
    assert found["waiting_time_mean_several_gpus_seconds"] == 12
    # 101/100, 3/10 is below 1, 14/10, 12/10, and 1 for the pod that runs to the end.
    assert found["bounded_slowdown_mean"] == pytest.approx((1.01 + 1 + 1.4 + 1.2 + 1) / 5)


def test_kind_without_pods_is_undefined() -> None:
    found = values_of(Waits(np.zeros(3), np.ones(3), np.zeros(3, np.int64), np.zeros(3, np.int64)))
    assert np.isnan(found["waiting_time_mean_several_gpus_seconds"])
    assert np.isnan(found["waiting_time_mean_by_gpus_seconds"])
    assert found["bounded_slowdown_mean"] == 1
    assert np.isnan(values_of(Waits(np.full(1, NAN), np.ones(1), np.zeros(1), np.zeros(1)))["waiting_time_p99_seconds"])


def test_parts_add_up_to_the_metrics() -> None:
    random = np.random.default_rng(1)
    demand = random.choice([0, 500, 1000, 8000], 1234)
    seconds = np.where(random.random(1234) < 0.1, NAN, random.exponential(60, 1234))
    waits = Waits(seconds, random.exponential(100, 1234), demand, np.where(demand > 1000, 8, 1))
    parts, found = parts_of_arrivals(waits), values_of(waits)
    for name, of_parts in parts.items():
        total, weight = of_parts.sum(axis=0)
        assert of_parts.shape == (PARTS, 2)
        assert total / weight == pytest.approx(found[name]), name
    time = np.sort(random.uniform(0, 50, 30))
    value = random.uniform(0, 9, 30)
    area, length = parts_of_time(time, 40.0, value).sum(axis=0)
    steps = np.diff(np.minimum(np.append(time, 40.0), 40.0))
    assert (area, length) == pytest.approx(((value * steps).sum(), 40.0 - time[0]))


@pytest.mark.parametrize(("load", "is_given"), [(None, True), (0.9, False)])
def test_only_a_given_trace_has_parts(load: float | None, is_given: bool) -> None:
    gpu = PodClass(Requests(1000, 0, gpu_count=1, gpu_milli=1000))
    # In pairs, so that the second one waits.
    pods = tuple(Pod(f"p{i}", gpu, creation_time=50 * (i // 2), deletion_time=50 * (i // 2) + 20) for i in range(300))
    node = Node("n", 64000, 1 << 40, gpu_count=1, gpu_model="A")
    run = Simulator(Workload("w", (node,), pods)).run("fgd", protocol="timed", load=load)
    assert run.is_given is is_given
    assert bool(run.parts) is is_given
    metrics = {metric.name: metric.value for metric in run.metrics}
    for name, parts in run.parts.items():
        total, weight = parts.sum(axis=0)
        if weight:
            assert total / weight == pytest.approx(metrics[name]), name


@pytest.mark.parametrize(
    ("waiting", "periods"),
    [([0, 0, 0], 0), ([1, 2, 0, 0, 3, 0], 2), ([0, 1, 1, 0], 1), ([0, 1, 0, 1], 2), ([5], 1), ([0, 2, 1, 2, 1], 1)],
)
def test_busy_periods_begin_when_pods_first_wait(waiting: list[int], periods: int) -> None:
    assert busy_periods(np.array(waiting, dtype=np.float64)) == periods


@pytest.mark.parametrize(("periods", "has_parts"), [(49, False), (50, True), (60, True)])
def test_trace_of_few_busy_periods_has_no_parts(periods: int, has_parts: bool) -> None:
    """Two pods at a time come to one GPU, so that one waits; between them nobody does."""
    gpu = PodClass(Requests(1000, 0, gpu_count=1, gpu_milli=1000))
    begins = [100.0 * i for i in range(periods) for _ in range(2)]
    # Pods that never wait: they make the arrivals enough, and the last ones end the trace when nobody waits.
    begins += [100.0 * (periods + i) for i in range(60)]
    pods = tuple(Pod(f"p{i}", gpu, creation_time=at, deletion_time=at + 20) for i, at in enumerate(begins))
    node = Node("n", 64000, 1 << 40, gpu_count=1, gpu_model="A")
    run = Simulator(Workload("w", (node,), pods)).run("fgd", protocol="timed")
    assert bool(run.parts) is has_parts
