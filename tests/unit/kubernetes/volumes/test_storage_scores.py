"""Scores of VolumeBinding, by kube-scheduler's rules."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.kubernetes.volumes.test_volume_rules import capacity, claim, fitted, known, storage_class, volume

from steersman.cluster.objects.api.claims import CsiDriver
from steersman.kubernetes.volumes import storage_scores
from steersman.policies.kube_scheduler.profile import MOST_FREE

DRIVER = msgspec.convert({"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}, CsiDriver)
FULLEST = ((0, 0), (100, 100))
STEPS = ((20, 100), (40, 0), (70, 55))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # 5 of 10, 20 and 40 GiB: 50, 25 and 12.5 %, rounded down.
        (MOST_FREE, [50, 75, 88]),
        (FULLEST, [50, 25, 12]),
        # Between 40 and 70 %: 55 (50 - 40) // 30; between 20 and 40 %: 100 - 100 (25 - 20) // 20; below 20 %: 100.
        (STEPS, [18, 75, 100]),
    ],
)
def test_free_storage_is_scored_by_the_shape(shape: tuple[tuple[int, int], ...], expected: list[int]) -> None:
    amounts = [capacity("a", "10Gi"), capacity("b", "20Gi"), capacity("c", "40Gi")]
    scores = storage_scores(fitted(known(claim(size="5Gi"), DRIVER, *amounts)), shape)
    assert scores is not None
    assert scores.tolist() == [*expected, 0]


def test_claims_of_a_class_share_its_storage_and_classes_count_alike() -> None:
    claims = [claim("x", "2Gi"), claim("y", "3Gi"), claim("z", "1Gi", cls="fast")]
    of_fast = msgspec.structs.replace(capacity("a", "4Gi"), storage_class_name="fast")
    objects = known(*claims, DRIVER, capacity("a", "10Gi"), storage_class("fast"))
    objects.capacities["fast"] = of_fast
    scores = storage_scores(fitted(objects, "x", "y", "z"), MOST_FREE)
    assert scores is not None
    # 5 of 10 and 1 of 4 GiB: (50 + 75) / 2, half up.
    assert scores.tolist()[0] == 63


def test_existing_volumes_count_alone() -> None:
    free = [capacity("a", "8Gi"), capacity("b", "8Gi")]
    objects = known(claim(size="4Gi"), DRIVER, *free, volume("v", "b", size="5Gi"))
    scores = storage_scores(fitted(objects), MOST_FREE)
    assert scores is not None
    # Provisioned from 8 GiB; of a volume of 5 GiB.
    assert scores.tolist()[:2] == [50, 20]


def test_nothing_is_scored_that_no_driver_reports() -> None:
    scores = storage_scores(fitted(known(claim())), MOST_FREE)
    assert scores is not None
    assert not scores.any()


def test_bound_claims_are_not_scored() -> None:
    assert storage_scores(fitted(known(claim(bound="v"), volume("v", "a"))), MOST_FREE) is None
