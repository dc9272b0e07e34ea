"""The study of RLScheduler's traces: jobs by Lublin and Feitelson's model, windows, and the section."""

import numpy as np
import pytest
from studies.queues import rlscheduler, sequences
from studies.queues.lublin_model import BATCH, INTERACTIVE, LOADS, SLOTS, LublinModel, other_model, other_trace

from steersman.agents.evolution.orders import SEEDS

COUNT = 20_000
DAY = 86_400.0


@pytest.fixture
def random():
    return np.random.default_rng(1)


def test_sizes_have_the_published_shares(random):
    sizes = LublinModel().sizes(random, COUNT)
    assert (sizes.min(), sizes.max()) == (1, 256)
    # Some of the parallel sizes that are not rounded to a power of two are one, too.
    assert np.mean(sizes == 1) == pytest.approx(0.244, abs=0.01)
    is_power = (sizes & (sizes - 1)) == 0
    assert 0.82 < is_power.mean() < 0.88
    # Two stages: 0.86 of the logarithms of parallel sizes are below 5.5.
    assert np.mean(sizes[sizes > 1] < 2**5.5) == pytest.approx(0.86, abs=0.015)


def test_run_times_are_a_mixture_of_two_gammas(random):
    model = LublinModel()
    few, many = (np.log(model.run_times(random, np.full(COUNT, size))) for size in (1, 128))
    # Long runs have a logarithm near 312 * 0.03; short ones rarely have one above 8.
    share = [float(np.mean(logs > 8.0)) for logs in (few, many)]
    short = float(np.mean(random.gamma(4.2, 0.94, COUNT) > 8.0))
    for measured, probability in zip(share, (0.78 - 0.0054, 0.78 - 0.0054 * 128), strict=True):
        expected = probability * short + (1 - probability) * np.mean(random.gamma(312, 0.03, COUNT) > 8.0)
        assert measured == pytest.approx(expected, abs=0.015)
    assert max(few.max(), many.max()) <= 12.0


def test_arrivals_follow_the_day(random):
    model = LublinModel()
    weights = model.slot_weights()
    assert len(weights) == SLOTS
    assert weights.mean() == pytest.approx(1.0)
    # Busiest after noon, quietest at five.
    assert 24 <= weights.argmax() <= 32
    assert weights.argmin() == 10
    times = model.arrivals(random, COUNT, mean_gap=600.0)
    assert (np.diff(times) >= 0).all()
    assert times[-1] == pytest.approx(600.0 * COUNT, rel=0.01)
    slot = (times % DAY // (DAY / SLOTS)).astype(int)
    counts = np.bincount(slot, minlength=SLOTS)
    assert np.corrcoef(counts, weights)[0, 1] > 0.9


def test_other_parameters_lie_between_those_of_interactive_and_batch_jobs(random):
    drawn = [other_model(random) for _ in range(50)]
    for name in ("serial", "power_of_two", "low", "slope", "offset"):
        low, high = sorted((getattr(INTERACTIVE, name), getattr(BATCH, name)))
        values = [getattr(model, name) for model in drawn]
        assert low <= min(values) < max(values) <= high
    for name in ("short", "long", "gap", "day"):
        means = sorted(float(np.prod(getattr(model, name))) for model in (INTERACTIVE, BATCH))
        assert all(means[0] <= np.prod(getattr(model, name)) <= means[1] for model in drawn)


def test_parts_of_a_trace_have_loads_of_their_own():
    jobs = 1024
    trace = other_trace("x", 3, 4, jobs)
    assert trace == other_trace("x", 3, 4, jobs) != other_trace("x", 4, 4, jobs)
    time, end = (np.array([getattr(pod, f"{which}_time") for pod in trace.pods]) for which in ("creation", "deletion"))
    size = np.array([pod.requests.cpu_milli for pod in trace.pods]) / 1000
    assert (np.diff(time) >= 0).all()
    loads = []
    for part in range(4):
        at = slice(part * jobs, (part + 1) * jobs)
        loads.append(((end - time)[at] * size[at]).sum() / 256 / (time[at][-1] - time[at][0]))
    # Parts that begin or end in the night are off their load.
    assert LOADS[0] * 0.75 < min(loads) < max(loads) < LOADS[1] * 1.25
    assert max(loads) / min(loads) > 1.05


def test_windows_lie_where_the_seed_says_and_avoid_the_table():
    trace = other_trace("windows", 1, 2, 2000)
    jobs, draw = len(trace.pods), sequences.WindowDraw()
    table = sequences.first_jobs(jobs, sequences.TABLE_SEED, sequences.SEQUENCES)
    firsts = []
    for place in (0, *table, jobs - sequences.JOBS):
        seed = min(-(-place * SEEDS // (jobs - sequences.JOBS)), SEEDS - 1)
        plan = draw(trace, seed)
        assert len(plan.pods) == sequences.JOBS
        firsts.append(int(plan.pods[0]))
    assert firsts[0] == 0
    assert firsts[-1] >= jobs - sequences.JOBS - 1
    assert not set(firsts) & set(table)


def test_sequences_for_the_choice_are_in_no_table():
    jobs, count = 9999, 60
    others = sequences.choice_first_jobs(jobs, count)
    taken = {*sequences.first_jobs(jobs, sequences.TABLE_SEED, sequences.SEQUENCES), *sequences.fresh_first_jobs(jobs)}
    assert len(set(others)) == count
    assert not set(others) & taken
    assert max(others) + sequences.JOBS <= jobs


def test_section_says_what_was_chosen_and_what_it_took():
    result = rlscheduler.options()
    for name, learner in result["learners"].items():
        learner["trainings"] = 2 if name == "linear" else 1
    rules = {where: {name: [1.0] for name in rlscheduler.RULES} for where in rlscheduler.PUBLISHED}
    trained = []
    for choice, value in ((2.0, 70.0), (1.0, 90.0)):
        slowdowns = {name: [value] for name in sequences.TRACES}
        played = {"table": slowdowns, "fresh": slowdowns}
        trained.append({"choice": choice, "decisions": 2_000_000, "core_minutes": 3.0, **played})
    text = rlscheduler.section({**result, "rules": rules, "fresh_rules": rules, "learned": {"linear": trained}})
    # The mean of both, its interval, and the second one, which was better on further windows; no other learner.
    assert f"| linear |{2 * ' 80.00 (0.00 to 207.06) |'}\n| linear, chosen |{2 * ' 90.00 |'}\n\n" in text
    assert "| RLScheduler, published | 254.67 | 724.51 |" in text
    assert "| F1 | 1.00 | 1.00 |" in text
    assert "| linear | 2 | 2.0 | 3.0 |" in text
