"""The network that evolution adds to a linear policy: its parameters are its layers, and it starts as nothing."""

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Residual, mean_units
from steersman.core.errors import UsageError
from steersman.policies.learned_weights import FEATURES, WEIGHTS


def test_parameters_are_layers_row_by_row_and_the_first_is_in_units_of_features():
    units = np.arange(2.0 * FEATURES).reshape(2, FEATURES)
    network = Residual((3, 2), units)
    (first, _), (second, bias), (head, last) = network.layers(np.arange(network.size, dtype=np.float64))
    assert [first.shape, second.shape, head.shape] == [(3, WEIGHTS + 11), (2, 3), (1, 2)]
    np.testing.assert_allclose(first[1, :FEATURES], (WEIGHTS + 11 + np.arange(FEATURES)) * units[1])
    assert (np.diff(second.ravel()) == 1).all()
    assert bias.tolist() == [second.max() + 1, second.max() + 2]
    assert last.tolist() == [network.size - 1]


def test_head_starts_at_zero_and_weights_depend_on_the_seed():
    network = Residual((4,), np.ones((2, FEATURES)))
    (weight, _), (head, bias) = network.layers(network.start(1))
    assert weight.any()
    assert not head.any()
    assert not bias.any()
    assert (network.start(1) == network.start(1)).all()


def test_constant_features_have_no_scale():
    spread = np.zeros((4, 2, FEATURES))
    spread[1, 0, 5], spread[3, 0, 5] = 2.0, 4.0
    units = mean_units(spread, 1e-6)
    assert units[0, 5] == pytest.approx(1 / 3)
    assert units.sum() == units[0, 5]


@pytest.mark.parametrize("hidden", ["", "0", "a", "8,", "99999"])
def test_wrong_widths_are_rejected(hidden):
    with raises(UsageError):
        EvolutionConfig(network="mlp", hidden=hidden)
    assert EvolutionConfig(network="mlp", hidden="8,4").widths == (8, 4)
    assert EvolutionConfig().widths == ()
