"""Draws of run times: what ended, what still runs, what was stated, and for how long a pod has run already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.orders.run_time_history import RunTimeHistory
from steersman.simulation.prediction.moment import Spell
from steersman.simulation.prediction.run_times import RunTimeDraws

ONE, EIGHT = (Requests(cpu_milli=1000, gpu_count=count, gpu_milli=1000) for count in (1, 8))
HOUR, DAY = 3600.0, 86_400.0


def pod(requests: Requests = ONE, owner: str = "Job/a", stated: float | None = None) -> Pod:
    return Pod("p", PodClass(requests), owner=owner, estimated_seconds=stated)


def draws(
    of: Pod,
    elapsed: float = 0.0,
    *,
    age: float = 0.0,
    history: RunTimeHistory | None = None,
    spells: Sequence[Spell] = (),
) -> np.ndarray:
    """Return 8000 draws, 8 of each of 1000 hazards."""
    made = RunTimeDraws([of], np.array([age]), history or RunTimeHistory(), spells)
    pods, ran, found = np.zeros(8, dtype=np.int64), np.full(8, elapsed), []
    for k in range(1000):
        random = np.random.default_rng(k)
        found.append(made.draw(made.hazards(random), pods, ran, random.random(8)))
    return np.concatenate(found)


def after(seconds: float, count: int = 100) -> RunTimeHistory:
    history = RunTimeHistory()
    for _ in range(count):
        history.note(pod(), seconds)
    return history


def stating(owner: str, ratio: float, count: int = 100, history: RunTimeHistory | None = None) -> RunTimeHistory:
    """Return a history of pods that stated run times from minutes to hours and ran for `ratio` times as long."""
    history = RunTimeHistory() if history is None else history
    for k in range(count):
        stated = 300.0 * (1 + k % 50)
        history.note(pod(owner=owner, stated=stated), ratio * stated)
    return history


def test_unknown_run_times_have_the_prior_of_estimates() -> None:
    """From 16 seconds on, with a median of 68 minutes: draws at five levels do not change what is expected."""
    assert draws(pod()).min() >= 16.0
    made = RunTimeDraws([pod()], np.zeros(1), RunTimeHistory(), ())
    survive = np.mean([np.exp(-made.hazards(np.random.default_rng(k))[0]) for k in range(3000)], axis=0)
    for k, share in ((16, 0.75), (24, 0.5), (32, 0.25)):  # the bins from 8 to 40 are equally likely
        assert survive[k] == pytest.approx(share, abs=0.03)


@given(st.floats(0.0, 1e9), st.floats(0.0, 1.0, exclude_max=True), st.booleans())
def test_no_pod_ends_before_now(elapsed: float, share: float, is_stated: bool) -> None:
    made = RunTimeDraws([pod(stated=60.0 if is_stated else None)], np.zeros(1), after(100.0, 3), ())
    hazards = made.hazards(np.random.default_rng(1))
    (seconds,) = made.draw(hazards, np.zeros(1, dtype=np.int64), np.array([elapsed]), np.array([share]))
    assert np.isfinite(seconds)
    assert seconds >= elapsed


def test_pods_run_as_those_that_ended() -> None:
    assert 90.0 < np.median(draws(pod(), history=after(100.0))) < 128.0


def test_a_pod_that_outran_all_others_goes_on_for_long() -> None:
    """What is known of shorter pods says nothing of it."""
    assert np.median(draws(pod(), 10 * HOUR, history=after(100.0))) > 12 * HOUR


def test_pods_that_still_run_make_run_times_longer() -> None:
    """Ten ended after an hour while ninety still run after ten: the median is beyond ten, not an hour."""
    history = after(HOUR, 10)
    ended = [Spell(pod(), 0.0, HOUR, True)] * 10
    assert np.median(draws(pod(), history=history, spells=ended)) < 1.5 * HOUR
    running = [Spell(pod(), 0.0, 10 * HOUR, False)] * 90
    assert np.median(draws(pod(), history=history, spells=[*ended, *running])) > 10 * HOUR


def test_pods_seen_late_say_nothing_of_their_beginning() -> None:
    """A hundred old pods are seen to run from their tenth hour on; every one seen from the first ended after one."""
    ended = [Spell(pod(), 0.0, HOUR, True)] * 20
    late = [Spell(pod(), 10 * HOUR, 11 * HOUR, False)] * 100
    assert np.median(draws(pod(), history=after(HOUR, 20), spells=[*ended, *late])) < 1.5 * HOUR
    early = [Spell(pod(), 0.0, 11 * HOUR, False)] * 100
    assert np.median(draws(pod(), history=after(HOUR, 20), spells=[*ended, *early])) > 5 * HOUR


def test_pods_of_as_many_gpus_count_before_all_others() -> None:
    """Of a request that was never seen, those with as many GPUs tell more than the many with one."""
    history = after(100.0, 300)
    for k in range(30):
        history.note(pod(Requests(cpu_milli=1000 + k, gpu_count=8, gpu_milli=1000), "Job/b"), 10 * HOUR)
    unseen = pod(Requests(cpu_milli=7, gpu_count=8, gpu_milli=1000), "Job/c")
    assert np.median(draws(unseen, history=history)) > 5 * HOUR
    assert np.median(draws(pod(Requests(cpu_milli=7, gpu_count=1, gpu_milli=1000), "Job/c"), history=history)) < HOUR


def test_stated_run_times_are_a_guess_until_pods_that_stated_one_end() -> None:
    unknown = draws(pod(stated=HOUR))
    assert 0.8 < np.mean((unknown > HOUR / 10) & (unknown < HOUR * 10)) < 0.97
    known = draws(pod(stated=HOUR), history=stating("Job/a", 0.5))
    assert np.median(known) == pytest.approx(HOUR / 2, rel=0.25)


@pytest.mark.parametrize("seconds", [1030.0, 1200.0, 1400.0])
@pytest.mark.parametrize("elapsed", [0.0, 200.0, 900.0])
def test_pods_that_always_run_as_long_are_predicted_so(seconds: float, elapsed: float) -> None:
    """Within the bin, a factor of 1.41, wherever in it they end: at its begin, in the middle or near its end."""
    ended = [Spell(pod(), 0.0, seconds, True)] * 200
    found = draws(pod(), elapsed, history=after(seconds, 200), spells=ended)
    assert np.percentile(found, 95) < 1.5 * seconds
    assert np.percentile(found, 5) > max(elapsed, seconds / 1.5)


def test_stated_run_times_that_are_always_right_are_believed() -> None:
    known = draws(pod(stated=HOUR), history=stating("Job/a", 0.99, 200))
    assert np.percentile(known, 95) < 1.5 * HOUR
    assert np.percentile(known, 5) > HOUR / 1.5


def test_a_stated_run_time_is_corrected_by_those_of_its_owner() -> None:
    """One runs for twenty times what it states, and another for half of it; a new owner is like both."""
    history = stating("Job/early", 0.5, history=stating("Job/late", 20.0))
    owners = ("Job/late", "Job/early", "")
    late, early, new = (draws(pod(owner=owner, stated=HOUR), history=history) for owner in owners)
    assert np.median(late) == pytest.approx(20 * HOUR, rel=0.3)
    assert np.median(early) == pytest.approx(HOUR / 2, rel=0.3)
    assert 0.3 < np.mean(new > 5 * HOUR) < 0.7
    few = draws(pod(owner="Job/few", stated=HOUR), history=stating("Job/few", 20.0, 1, stating("Job/early", 0.5)))
    assert np.median(few) < 5 * HOUR


def test_draws_of_some_pods_do_not_depend_on_others_after_them() -> None:
    history = stating("Job/b", 0.5, history=after(100.0))
    some = [pod(), pod(EIGHT, "Job/b"), pod(stated=HOUR), pod(owner="Job/b", stated=60.0)]
    more = [pod(EIGHT), pod(owner="Job/c"), pod(owner="Job/c", stated=9.0), *some]
    spells = [Spell(pod(), 0.0, 100.0, True, 500.0)] * 9
    share, ran, found = np.linspace(0.1, 0.9, 4), np.zeros(4), []
    for pods in (some, [*some, *more]):
        made = RunTimeDraws(pods, np.zeros(len(pods)), history, spells)
        found.append(made.draw(made.hazards(np.random.default_rng(1)), np.arange(4), ran, share).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize(("elapsed", "within"), [(0.0, 0.05), (100.0, 0.05), (3000.0, 0.25)])
def test_memoryless_run_times_stay_so(elapsed: float, within: float) -> None:
    """What is left of exponential run times of 1000 s is exponential, too, by its quartiles.

    After 3000 s a bin is longer than that, and ends in it are taken to be uniform.
    """
    times = np.random.default_rng(1).exponential(1000.0, 3000)
    history = RunTimeHistory()
    for each in times:
        history.note(pod(), float(each))
    spells = [Spell(pod(), 0.0, float(each), True, HOUR * k) for k, each in enumerate(times)]
    left = draws(pod(), elapsed, history=history, spells=spells) - elapsed
    expected = np.percentile(times[times > elapsed] - elapsed, [25, 50, 75])
    assert np.percentile(left, [25, 50, 75]) == pytest.approx(expected, rel=within, abs=30.0)


@pytest.mark.parametrize("is_alike", [True, False])
def test_pods_of_an_owner_end_alike_if_those_of_a_burst_did(is_alike: bool) -> None:
    """Forty bursts of ten pods: in each all ran for about as long, or as many of both kinds did."""
    random, spells, history = np.random.default_rng(1), [], RunTimeHistory()
    for burst in range(40):
        for k in range(10):
            seconds = float((100.0, 10 * HOUR)[(burst if is_alike else k) % 2] * random.uniform(0.7, 1.4))
            spells.append(Spell(pod(), 0.0, seconds, True, 12 * HOUR * (burst + 3) + 60.0 * k))
            history.note(pod(), seconds)
    made = RunTimeDraws([pod()], np.zeros(1), history, spells)
    found = []
    for k in range(500):
        drawn = made.hazards(random := np.random.default_rng(k))
        times = made.draw(drawn, np.zeros(50, dtype=np.int64), np.zeros(50), random.random(50))
        found.append(np.mean(times < HOUR))
    # Of fifty independent pods the share has a standard deviation of 0.07.
    assert np.mean(found) == pytest.approx(0.5, abs=0.05)
    assert np.std(found) > 0.15 if is_alike else np.std(found) < 0.12


def bursts(seconds: Sequence[float], pods: int = 10) -> tuple[list[Spell], RunTimeHistory]:
    """Return spells and run times of bursts, half a day between them: all pods of one run for about as long."""
    random, spells, history = np.random.default_rng(1), [], RunTimeHistory()
    for burst, usual in enumerate(seconds):
        for k in range(pods):
            ran = usual * float(random.uniform(0.8, 1.2))
            spells.append(Spell(pod(), 0.0, ran, True, 12 * HOUR * burst + HOUR + 60.0 * k))
            history.note(pod(), ran)
    return spells, history


@pytest.mark.parametrize("latest", [100.0, 1800.0])
def test_a_waiting_pod_runs_as_those_that_came_with_it(latest: float) -> None:
    """Bursts run for 100 s or for half an hour. A pod of the latest burst runs as its burst, a later one as either."""
    spells, history = bursts([latest, *(100.0, 1800.0) * 15])
    of_burst = draws(pod(), age=2 * HOUR, history=history, spells=spells)
    assert np.mean((of_burst > latest / 2) & (of_burst < 2 * latest)) > 0.7
    other = draws(pod(), age=6 * HOUR, history=history, spells=spells)
    assert 0.35 < np.mean(other < 400.0) < 0.65


def test_a_running_pod_tells_of_the_waiting_pods_of_its_burst() -> None:
    """Eight of a burst have run for longer than short bursts do, so that it is a long one."""
    ended, history = bursts((7200.0, 100.0, 1800.0) * 15)
    running = [Spell(pod(), 0.0, 600.0, False, 900.0)] * 8
    of_burst = draws(pod(), age=900.0, history=history, spells=[*ended, *running])
    assert np.mean(of_burst < 400.0) < 0.2


def test_a_large_burst_counts_little_for_other_bursts() -> None:
    """Of 31 bursts one has 500 pods, which ran for 100 s; the others have four, and ran for half an hour."""
    spells, history = bursts([1800.0] * 15 + [100.0] * 5 + [1800.0] * 10, 4)
    for k in range(500):
        spells.append(Spell(pod(), 0.0, 100.0, True, 16 * DAY + k))
        history.note(pod(), 100.0)
    assert np.mean(draws(pod(), history=history, spells=spells) < 400.0) < 0.5


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_day_may_differ_from_others_if_days_did(is_alike: bool) -> None:
    """The mean of the run times of a thousand pods, each of another burst, is uncertain only if days differed."""
    random = np.random.default_rng(5)
    mean = np.repeat(HOUR * np.exp(0.7 * random.standard_normal(30)), 40)
    seconds = random.exponential(random.permutation(mean) if is_alike else mean)
    age = DAY * (np.repeat(np.arange(30), 40) + 1.0) + 3 * HOUR * random.integers(0, 8, 1200)
    history = RunTimeHistory()
    spells = []
    for ran, since in zip(seconds.tolist(), age.tolist(), strict=True):
        history.note(pod(), ran)
        spells.append(Spell(pod(), 0.0, ran, True, since))
    coming = np.arange(1000)
    made = RunTimeDraws([pod()] * 1000, -3 * HOUR * coming, history, spells)
    means = []
    for k in range(100):
        random = np.random.default_rng(k)
        drawn = made.draw(made.hazards(random), coming, np.zeros(1000), random.random(1000))
        means.append(np.mean(np.log(np.maximum(drawn, 60.0))))
    assert np.mean(means) == pytest.approx(np.log(seconds).mean(), abs=0.1)
    assert np.std(means) < 0.25 if is_alike else np.std(means) > 0.4
