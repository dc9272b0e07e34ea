"""Orders in comparisons: several loads, and the regret of each policy at each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steersman.cli.main import app
from steersman.core.errors import UsageError
from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.workloads.formats.openb import embedded

SMALL = embedded("default-small")


def test_several_loads_are_compared_as_workloads_of_their_own() -> None:
    """A run at a load is the one that an experiment with this load alone has."""
    both = tuple(replace(SMALL, name=f"small@{load:g}") for load in (0.8, 1.2))
    policies = ("best-fit", "best-fit+shortest")
    runs = run_experiment(Experiment(both, policies, (1,), "timed", loads=(0.8, 1.2)))
    for load, of_load in ((0.8, runs[:2]), (1.2, runs[2:])):
        alone = run_experiment(Experiment((SMALL,), policies, (1,), "timed", load=load))
        assert [run.metrics for run in of_load] == [run.metrics for run in alone]
    assert runs[0].metrics != runs[2].metrics


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "--policy", "fgd", "--policy", "fgd+shortest"], "timed; give that too, or leave it out"),
        (["evaluate", "--policy", "fgd", "--baseline", "fgd+shortest"], "timed; give that too, or leave it out"),
        (["evaluate", "--policy", "fgd+shortest", "--protocol", "arrivals"], "timed, not to arrivals"),
        (["simulate", "--policy", "fgd+shortest"], "timed, not to inflation"),
    ],
)
def test_an_order_in_a_name_needs_pods_that_wait(arguments: list[str], says: str, tmp_path: Path) -> None:
    """As `--order` does."""
    files = ["--nodes", "x.csv", "--pods", "y.csv", "--output", str(tmp_path / "run")]
    error = CliRunner().invoke(app, [*arguments, *files]).exception
    assert isinstance(error, UsageError)
    assert str(error) == f"policy fgd+shortest: +shortest belongs to --protocol {says}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--protocol", "timed", "--load", "0.9", "--load", "0"], "--load 0: must be above 0"),
        (["--protocol", "latency", "--load", "0.9", "--load", "1"], "--protocol latency takes one"),
        (["--protocol", "timed", "--order", "soonest"], "unknown order 'soonest'"),
        (["--protocol", "inflation", "--order", "shortest"], "--order belongs to --protocol timed"),
        (["--order", "shortest"], "--order belongs to --protocol timed"),
    ],
)
def test_wrong_options(arguments: list[str], says: str) -> None:
    """What cannot be compared is refused in one line."""
    nodes = [] if "latency" in arguments else ["--nodes", "x.csv", "--pods", "y.csv"]
    result = CliRunner().invoke(app, ["evaluate", *nodes, *arguments])
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
