"""What arrives, from what arrived lately: rates, and pods that arrive together."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.simulation.prediction.coming import ComingPods, coming_pods
from steersman.simulation.prediction.moment import DAY, RECENT_ARRIVALS, Arrived

HOUR = 3600.0
SMALL = PodClass(Requests(cpu_milli=1000))


def arrived(owner: str, age: float, gang: str = "") -> Arrived:
    return Arrived(Pod("p", SMALL, owner=owner, gang=gang), age)


def coming(pods: list[Arrived], observed: float = 7 * DAY) -> ComingPods:
    return coming_pods(pods, list(range(len(pods))), observed)


@pytest.mark.parametrize("pods", [100, RECENT_ARRIVALS + 100, 3 * RECENT_ARRIVALS])
def test_pods_of_a_large_job_arrive_together(pods: int) -> None:
    """However large, it is one arrival of the week."""
    hourly = [arrived(f"Job/{k}", HOUR * (k + 1)) for k in range(167)]
    large = [arrived("Job/large", 20.0 + 30.0 * k / pods) for k in range(pods)]
    found = coming([*hourly, *large])
    assert found.rate == pytest.approx(168 / (7 * DAY))
    assert found.pod_rate == pytest.approx((167 + pods) / (7 * DAY))


def test_pods_of_an_owner_that_come_one_by_one_are_apart() -> None:
    found = coming([arrived("Workflow/a", 30.0 * k) for k in range(100)], HOUR)
    assert 30 <= len(found.first) <= 40
    assert found.size.max() == 3


def test_pods_of_a_gang_are_together_whenever_they_came() -> None:
    found = coming([arrived("", 500.0 * k, gang="g") for k in range(4)])
    assert found.size.tolist() == [4]
    assert found.least.tolist() == [4]


def test_a_burst_of_jobs_is_spread_over_hours() -> None:
    """Nobody submits 5,000 Jobs each half minute for a week."""
    burst = [arrived(f"Job/{k}", 10.0 + 30.0 * k / 5000) for k in range(5000)]
    before = [arrived(f"Job/b{k}", HOUR * (1 + k)) for k in range(100)]
    assert coming([*burst, *before]).rate == pytest.approx(5006 / (6 * HOUR), rel=0.01)


@pytest.mark.parametrize("pods", [20, RECENT_ARRIVALS + 100])
@pytest.mark.parametrize("observed", [0.0, 5.0])
def test_pods_that_are_equally_young_are_those_of_an_hour(pods: int, observed: float) -> None:
    """A cluster that was just filled is not filled again each second."""
    found = coming([arrived(f"Job/{k}", observed) for k in range(pods)], observed)
    assert found.rate == pytest.approx(pods / HOUR)


def test_of_many_arrivals_the_latest_count() -> None:
    """The rate of the last day is not that of the week: one in a minute, and before that one in 10 s."""
    late = [arrived(f"Job/{k}", 60.0 * k) for k in range(1440)]
    early = [arrived(f"Job/e{k}", DAY + 10.0 * k) for k in range(20_000)]
    found = coming([*late, *early])
    assert len(found.first) <= RECENT_ARRIVALS
    assert 1 / 60 < found.rate < 1 / 40


def test_a_sample_has_the_rate_of_all() -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, DAY, 40_000))
    found = coming([arrived(f"Job/{k}", float(age)) for k, age in enumerate(times)], DAY)
    assert len(found.first) <= RECENT_ARRIVALS
    assert found.rate == pytest.approx(40_000 / DAY, rel=0.03)
