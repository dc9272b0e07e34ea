"""`fgd` leaves in a cluster what simulations say that it leaves, whatever the nodes and their names are."""

from pathlib import Path
from statistics import fmean

import pytest
from tests.support.heterogeneous.replay import DrawReplay

NODES, DRAWS, SEEDS = 60, range(7), range(4)


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory) -> list[DrawReplay]:
    folder: Path = tmp_path_factory.mktemp("draws")
    return [DrawReplay(NODES, seed, folder) for seed in DRAWS]


@pytest.mark.parametrize("day_before", [False, True])
def test_live_decisions_are_as_good_as_simulated_ones(draws: list[DrawReplay], day_before: bool) -> None:
    below = [each.simulated("fgd", SEEDS) - each.live("fgd", day_before=day_before) for each in draws]
    assert fmean(below) < 1, below
