"""What arrives, from what arrived lately: rates, and pods that arrive together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.simulation.prediction.coming import ArrivingPods, ComingPods, coming_pods
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


def draw(found: ComingPods, until: float, seed: int) -> ArrivingPods:
    return found.draw(until, 10_000, [np.random.default_rng((seed, stream)) for stream in range(3)])


def daily(days: int) -> list[Arrived]:
    """Return forty pods of an owner in the noon hour of each day; they ran for as long as their number says."""
    noon = [DAY * day + 12 * HOUR - 60.0 * k for day in range(days) for k in range(40)]
    return [replace(arrived("Job/noon", age), ran=float(k), ended=True) for k, age in enumerate(noon)]


def test_bursts_of_each_day_come_again_at_their_hour() -> None:
    """Seven days are known, of which a stretch repeats one in seven of eight cases, with the run times of its pods."""
    drawn = [draw(coming(daily(7)), 7 * DAY, seed) for seed in range(50)]
    hour = np.concatenate([each.time for each in drawn]) % DAY // HOUR
    assert 0.8 < np.mean(hour == 12) < 0.95
    for each in drawn:
        assert (np.diff(each.time) >= 0.0).all()
        assert (each.ran[each.ended] == each.pods[each.ended]).all()
        counts = np.bincount((each.time[each.ended] // DAY).astype(int), minlength=7)
        assert set(counts.tolist()) <= set(range(41))
    assert np.mean([np.bincount((each.time // DAY).astype(int), minlength=7)[:7].max() >= 40 for each in drawn]) > 0.9


def test_less_than_a_day_comes_at_random_times() -> None:
    drawn = draw(coming(daily(1), 0.9 * DAY), 7 * DAY, 1)
    assert not drawn.ended.any()
    assert np.mean(drawn.time % DAY // HOUR == 12) < 0.2


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    found = coming([*daily(4), *(arrived(f"Job/{k}", 500.0 * k) for k in range(400))], 4 * DAY)
    for seed in range(20):
        long, short = draw(found, 5 * DAY, seed), draw(found, DAY, seed)
        for whole, begin in zip(long, short, strict=True):
            assert whole[: len(begin)].tolist() == begin.tolist()
        assert (long.time[len(short.time) :] > DAY).all()


def test_gangs_of_the_past_come_whole() -> None:
    gang = [arrived("", 20 * HOUR + 500.0 * k, gang="g") for k in range(4)]
    found = coming([*gang, *daily(2)], 2 * DAY)
    for seed in range(20):
        drawn = draw(found, 3 * DAY, seed)
        (first,) = np.nonzero(drawn.members == 4)
        assert (drawn.members == 0).sum() == 3 * len(first)
        for k in first.tolist():
            assert set(drawn.pods[k : k + 4].tolist()) == {0, 1, 2, 3}
            assert len(set(drawn.time[k : k + 4].tolist())) == 1
