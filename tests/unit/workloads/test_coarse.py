"""Workloads of thousands of kinds of pods: typical pods are merged, and short simulations play equal ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import MOST_CLASSES, MOST_KINDS, coarse, typical_pods
from steersman.workloads.workload import Recorded, Workload


def distinct(count: int, seed: int = 1) -> list[Pod]:
    """Pods of which no two ask for the same."""
    drawn = random.Random(seed)
    pods = []
    for i in range(count):
        gpus = drawn.choice([0, 1, 1, 1, 2, 8])
        milli = drawn.randint(30, 950) if gpus == 1 and drawn.random() < 0.5 else 1000
        requests = Requests(
            drawn.randint(100, 90_000) // max(1, 8 - gpus),
            drawn.randint(1, 1 << 12) << 20,
            gpu_count=gpus,
            gpu_milli=milli if gpus else 0,
        )
        models = ("A100",) if gpus and drawn.random() < 0.2 else ()
        pods.append(Pod(f"p{i}", PodClass(requests, Constraints(gpu_models=models))))
    return pods


def some_workload(pods: list[Pod], count: int = 20) -> Workload:
    nodes = [Node(f"n{i}", 96_000, 512 << 30, gpu_count=8, gpu_model="A100") for i in range(count)]
    return Workload("distinct", tuple(nodes), tuple(pods))


@settings(max_examples=examples(20))
@given(st.integers(0, 1000), st.integers(1, 3000))
def test_number_of_typical_pods_is_bounded(seed: int, count: int) -> None:
    pods = distinct(count, seed)
    profile = typical_pods(pods, popularity_percent=100)
    assert len(profile) <= MOST_KINDS
    assert sum(pod.share for pod in profile) == pytest.approx(1.0)
    asked = sum(max(100, pod.requests.cpu_milli) for pod in pods) / count
    assert sum(pod.share * pod.cpu_milli for pod in profile) == pytest.approx(asked, rel=0.02, abs=2)
    gpus = {(pod.requests.gpu_count, pod.constraints.gpu_models) for pod in pods}
    assert {(pod.gpu_count, pod.gpu_models) for pod in profile} == gpus


def test_few_kinds_are_not_merged() -> None:
    pods = embedded("gpuspec25").pods
    kinds = {(p.requests.cpu_milli or 100, p.requests.gpu_milli, p.requests.gpu_count) for p in pods}
    assert {(pod.cpu_milli, pod.gpu_milli, pod.gpu_count) for pod in typical_pods(pods)} <= kinds


def test_similar_pods_are_merged() -> None:
    workload = some_workload(distinct(5000))
    made = coarse(workload)
    assert len({pod.pod_class for pod in made.pods}) <= MOST_CLASSES
    pairs = [(one, other) for one, other in zip(workload.pods, made.pods, strict=True)]
    for one, other in pairs:
        assert (one.name, one.constraints) == (other.name, other.constraints)
        assert one.requests.gpu_count == other.requests.gpu_count
        assert 0 <= other.requests.gpu_milli - one.requests.gpu_milli < 100
    for which in ("cpu_milli", "memory_bytes"):
        asked, now = (sum(getattr(pod.requests, which) for pod in some) for some in zip(*pairs, strict=True))
        assert now == pytest.approx(asked, rel=0.001)
        largest = max(getattr(pod.requests, which) for pod in workload.pods)
        assert max(getattr(pod.requests, which) for pod in made.pods) <= largest


def test_running_pods_are_not_merged() -> None:
    pods = distinct(2000)
    stays = Recorded("n0", 0, stays=True)
    workload = some_workload(pods)
    recorded = tuple(stays if i % 100 == 0 else None for i in range(len(pods)))
    made = coarse(Workload("stays", workload.nodes, workload.pods, recorded=recorded))
    assert all(made.pods[i] is pods[i] for i in range(0, 2000, 100))
    assert any(made.pods[i] != pods[i] for i in range(2000))


def test_workload_of_few_classes_is_unchanged() -> None:
    workload = some_workload(distinct(MOST_CLASSES))
    assert coarse(workload) is workload
