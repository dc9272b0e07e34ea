"""The evolution strategy finds the top of a hill, and continues from a state to the same numbers."""

import numpy as np
import pytest

from steersman.core.evolution_strategies import SeparableCma

TOP = np.linspace(-1, 1, 12)
SCALES = np.logspace(-1, 1, 12)


def value(point, noise):
    return -float((((point - TOP) * SCALES) ** 2).sum()) + noise


def climb(strategy, generations, rng):
    for _ in range(generations):
        strategy.tell([value(candidate, rng.normal(scale=0.001)) for candidate in strategy.ask()])


def test_evolution_climbs_a_noisy_objective():
    strategy = SeparableCma(np.zeros(12), 0.3, 12, seed=1)
    climb(strategy, 400, np.random.default_rng(0))
    assert value(strategy.mean, 0) > -0.05 > value(np.zeros(12), 0)


def test_candidates_are_mirrored():
    candidates = SeparableCma(np.zeros(12), 0.3, 12, seed=1).ask()
    np.testing.assert_allclose(candidates[: len(candidates) // 2] + candidates[len(candidates) // 2 :], 0, atol=1e-12)


def test_evolution_resumes_from_a_state():
    first, second = (SeparableCma(np.zeros(12), 0.3, 12, seed=1) for _ in range(2))
    climb(first, 5, np.random.default_rng(0))
    second.load_state_dict(first.state_dict())
    for strategy in (first, second):
        climb(strategy, 5, np.random.default_rng(1))
    assert (first.mean == second.mean).all()


def test_step_size_shrinks_at_the_optimum():
    strategy = SeparableCma(TOP, 0.3, 12, seed=1)
    climb(strategy, 300, np.random.default_rng(0))
    assert strategy.step < 0.1


@pytest.mark.parametrize("population", [2, 7])
def test_an_odd_population_is_rejected(population):
    with pytest.raises(ValueError, match="even"):
        SeparableCma(np.zeros(3), 0.1, population)
