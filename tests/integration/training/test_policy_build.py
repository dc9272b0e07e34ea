"""`steersman policy build`: a portfolio trained on random clusters, the same whatever the number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.main import main
from steersman.policies.files.policy_file import read_policy
from steersman.policies.heuristics import heuristic
from steersman.policies.linear import LinearPolicy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import resolve
from steersman.policies.rule_choice import CHOOSABLE_RULES
from steersman.simulation.result import Protocol
from steersman.simulation.run import Simulator
from steersman.workloads.generators.clusters import Distribution, random_cluster

LEARNED = ["general", "general-2", "waiting"]


def build(output: Path, jobs: int) -> int:
    size = ("--clusters", "8", "--nodes", "5-8", "--generations", "2", "--rounds", "1")
    return main(["policy", "build", *size, "--jobs", str(jobs), "--output", str(output)])


def test_a_portfolio_is_built_and_serves(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    assert (build(one, 1), build(two, 2)) == (0, 0)
    assert "general: generation 2 of 2" in capfd.readouterr().err  # said by another process
    assert one.read_bytes() == two.read_bytes()
    card, arrays = read_policy(one)
    assert card.steps > 0
    assert card.training[0].startswith("8 random clusters")
    assert [name for name in card.members if name in LEARNED] == LEARNED
    assert card.members[-len(CHOOSABLE_RULES) :] == CHOOSABLE_RULES
    assert len(arrays["weights"]) == len(card.members) - len(CHOOSABLE_RULES)

    policy = resolve(str(one))
    assert isinstance(policy, PortfolioPolicy)
    learned = [each for each in policy.members if isinstance(each, LinearPolicy)]
    assert len({each.weights.tobytes() for each in learned}) == len(learned)
    simulator = Simulator(random_cluster(3, distribution=Distribution.VALIDATION, nodes=(5, 8)))
    protocols: tuple[Protocol, ...] = ("inflation", "timed")
    for protocol in protocols:
        found = simulator.select(policy.members, protocol, load=1.0)
        assert policy.members[found.fallback] == heuristic("fgd")
        assert found.best == found.fallback or found.savings.mean() > 0


def test_invalid_node_range_fails_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "build", "--nodes", "8-5", "--output", str(tmp_path / "p.safetensors")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error:")
    assert "8-5" in line
    assert not list(tmp_path.iterdir())
