"""Fitting a policy to a cluster: what is kept was shown to be better, and the file serves by itself."""

import json

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.agents.evolution.simulations import (
    ARRIVALS_BETWEEN_LOOKS,
    SPREAD_SEED,
    CandidateEvaluator,
    SimulationTask,
)
from steersman.cli.main import main
from steersman.core.errors import UsageError
from steersman.policies.files.policy_file import open_policy, read_policy, write_policy
from steersman.policies.heuristics import HeuristicPolicy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import resample
from steersman.simulation.run import Simulator
from steersman.training.search import fit as fitting
from steersman.training.search.fit import FITTED, FitOptions, fit
from steersman.workloads.formats.registry import convert
from steersman.workloads.generators.clusters import random_cluster


@pytest.fixture(scope="module")
def workload():
    return random_cluster(16, nodes=(15, 25))


@pytest.fixture(scope="module")
def found(workload):
    start = resolve("steersman")
    assert isinstance(start, PortfolioPolicy)
    return fit(workload, start, FitOptions(generations=3, seed=1))


def test_candidates_are_compared_on_the_same_draws(found) -> None:
    names = [each.name for each in found.compared]
    assert {FITTED, "fgd", "best-fit", "gpu-packing"} <= set(names)
    assert len({len(each.costs) for each in found.compared}) == 1
    assert sorted(each.mean for each in found.compared) == [each.mean for each in found.compared]


def test_no_kind_loses_more_than_it_may(workload) -> None:
    """`fgd`, from which searches start, breaks the limit; what is kept loses less, and the policies say by how much."""
    start = resolve("steersman")
    found = fit(workload, start, FitOptions(generations=3, seed=1, max_kind_loss=0.0))
    excess = {each.name: each.excess for each in found.compared}
    assert excess[found.chosen] == min(excess.values())
    assert max(excess.values()) > 0
    assert list(excess.values()) == sorted(excess.values())
    assert found.card.settings["max_kind_loss"] == 0.0
    assert found.card.objective == "allocation"


def test_the_search_is_drawn_away_from_what_breaks_the_limit(workload) -> None:
    """Of equal gains the candidate whose kinds lose less is the better one."""
    limited = SimulationTask(max_kind_loss=1.0)
    assert (limited.full_objective, SimulationTask().full_objective) == ("allocation,max-kind-loss=1", "allocation")
    arrived = np.array([0.0, 10.0, 100.0, 0.0])
    before, after = np.array([[0.0, 1, 5, 0], arrived]), np.array([[0.0, 0, 9, 0], arrived])
    assert limited.excess(after, before) == pytest.approx(3.0)
    assert limited.excess(before, after) == pytest.approx(9.0)
    assert SimulationTask().excess(after, before) == 0.0
    evaluator = CandidateEvaluator([workload], limited, "fgd")
    played = evaluator.gain(0, 7, resolve("kube-default"))
    assert played[1:9].tolist() == played[9:].tolist(), "kube-default loses nothing against itself"
    assert evaluator.gain(0, 7, resolve("fgd"))[0] == 0.0


def test_search_result_is_kept_only_if_significantly_better(found) -> None:
    assert (found.chosen == FITTED) == (found.interval.low > fitting.MARGIN)
    if found.chosen != FITTED:
        best = found.compared[0].name if found.compared[0].name != FITTED else found.compared[1].name
        assert found.chosen == best


def test_fitted_file_works_without_the_workload(found, workload, tmp_path) -> None:
    file = tmp_path / "mine.safetensors"
    write_policy(file, found.card, found.arrays)
    policy = open_policy(file, "mine")
    assert policy.prepared is not None
    simulator = Simulator(workload)
    kept = next(each for each in found.compared if each.name == found.chosen)
    runs = [simulator.run(each, seed=2).curve.gpu_allocation_percent for each in (policy, kept.policy)]
    np.testing.assert_array_equal(*runs)
    card, _ = read_policy(file)
    assert {score.baseline for score in card.scores} == {each.name for each in found.compared} - {found.chosen}


def test_same_seed_same_file(found, workload) -> None:
    again = fit(workload, resolve("steersman"), FitOptions(generations=3, seed=1), jobs=2)
    assert again.card == found.card
    assert all((again.arrays[name] == array).all() for name, array in found.arrays.items())


def test_rule_is_written_as_a_policy_file(workload, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fitting, "MARGIN", 1e9)  # nothing is ever shown to be that much better
    members = (resolve("steersman").members[0],)
    found = fit(workload, PortfolioPolicy("p", members, "d"), FitOptions(generations=1))
    write_policy(tmp_path / "rule.safetensors", found.card, found.arrays)
    policy = open_policy(tmp_path / "rule.safetensors", "rule")
    assert policy.prepared is not None
    if found.chosen != members[0].name:
        assert isinstance(policy, HeuristicPolicy)
        assert policy.policy.kinds == resolve(found.chosen).kinds


def test_fit_without_gpus_is_rejected(workload) -> None:
    from dataclasses import replace

    bare = replace(workload, pods=tuple(pod for pod in workload.pods if not pod.requests.gpu_count))
    with raises(UsageError):
        fit(bare, resolve("steersman"), FitOptions(generations=1))
    with raises(UsageError):
        FitOptions(protocol="arrivals")


def test_command(workload, tmp_path, capsys) -> None:
    convert(workload, "yaml", tmp_path / "cluster")
    files = "--nodes", str(tmp_path / "cluster" / "nodes.yaml"), "--pods", str(tmp_path / "cluster" / "pods.yaml")
    out = tmp_path / "mine.safetensors"
    assert main(["policy", "fit", *files, "--generations", "2", "--jobs", "1", "--output", str(out)]) == 0
    said = capsys.readouterr()
    assert "(kept)" in said.out
    assert "held" not in said.err
    assert main(["policy", "show", str(out)]) == 0
    capsys.readouterr()
    again = ("--generations", "2", "--jobs", "1", "--output", str(out), "--format", "json")
    assert main(["policy", "fit", *files, *again]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = next(each for each in found["policies"] if each["policy"] == found["kept"])
    assert f"{kept['gpus_not_allocated_percent']:.2f}" in said.out
    assert main(["policy", "fit", "--output", str(out)]) == 2
    assert "--nodes with --pods, --workload NAME, or --cluster" in capsys.readouterr().err


@pytest.fixture
def files(workload, tmp_path):
    convert(workload, "yaml", tmp_path / "cluster")
    return ("--nodes", str(tmp_path / "cluster" / "nodes.yaml"), "--pods", str(tmp_path / "cluster" / "pods.yaml"))


def test_a_comparison_with_a_policy_fitted_to_its_workload(files, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    command = ["evaluate", *files, "--policy", "best-fit", "fgd", "--seeds", "1-2", "--jobs", "1", "--output", str(out)]
    assert main([*command, "--fit", "--fit-generations", "1"]) == 0
    said = capsys.readouterr()
    rows = [line for line in said.out.splitlines() if line.startswith(" fitted ")]
    assert len(rows) == 4, "timed and inflation, and what kinds of pods pay in each"
    assert "results.csv, metrics.csv, fitted.safetensors and summary.csv" in said.err
    sentence = next(line for line in said.err.splitlines() if line.startswith("the fitted policy is"))
    assert sentence in (out / "report.html").read_text()
    card, _ = read_policy(out / "fitted.safetensors")
    assert (card.training, card.protocol) == (("pods",), "inflation")

    summary = (out / "summary.csv").read_text()
    again = ["evaluate", *files, "--policy", str(out / "fitted.safetensors"), "--seeds", "1-2", "--jobs", "1"]
    assert main([*again, "--output", str(tmp_path / "again")]) == 0
    mean = "pods,fitted,inflation,gpu_allocation_percent"
    alone = (tmp_path / "again" / "summary.csv").read_text()
    (one,), (other,) = ([line for line in text.splitlines() if line.startswith(mean)] for text in (alone, summary))
    assert one.split(",")[:8] == other.split(",")[:8]

    assert main(command) == 0
    assert not (out / "fitted.safetensors").exists()


def test_fit_uses_timed_arrivals_if_only_timed_is_compared(files, tmp_path) -> None:
    out = tmp_path / "out"
    timed = ["--protocol", "timed", "--load", "0.8", "--mean-duration", "2h"]
    command = ["evaluate", *files, "--policy", "fgd", "--seeds", "1", "--jobs", "1", *timed, "--output", str(out)]
    assert main([*command, "--fit", "--fit-generations", "1"]) == 0
    card, _ = read_policy(out / "fitted.safetensors")
    assert (card.protocol, card.load, card.settings["mean_duration"]) == ("timed", 0.8, 7200.0)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--fit-generations", "5"), "--fit-generations belongs to --fit"),
        (("--fit", "--workload", "default", "cpu050"), "one workload, and 2 are given"),
        (("--fit", "--fit-generations", "0", "--workload", "default"), "--fit-generations"),
    ],
)
def test_invalid_fit_options_fail_in_one_line(tmp_path, capsys, more, problem) -> None:
    more = more if "--workload" in more else (*more, "--workload", "default")
    assert main(["evaluate", "--policy", "fgd", *more, "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert not (tmp_path / "out").exists()


def test_name_fitted_is_reserved(found, files, tmp_path, capsys) -> None:
    write_policy(tmp_path / "fitted.safetensors", found.card, found.arrays)
    command = ["evaluate", *files, "--policy", str(tmp_path / "fitted.safetensors"), "--fit"]
    assert main([*command, "--output", str(tmp_path / "out")]) == 2
    assert "is called fitted, which is the name of the policy of --fit" in capsys.readouterr().err


def test_a_workload_without_gpus_is_not_fitted_to(workload, tmp_path, capsys) -> None:
    from dataclasses import replace

    bare = replace(workload, pods=tuple(pod for pod in workload.pods if not pod.requests.gpu_count)[:5])
    convert(bare, "yaml", tmp_path / "bare")
    files = ["--nodes", str(tmp_path / "bare" / "nodes.yaml"), "--pods", str(tmp_path / "bare" / "pods.yaml")]
    assert main(["evaluate", *files, "--policy", "fgd", "--fit", "--output", str(tmp_path / "out")]) == 2
    assert "policies are fitted to GPUs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_fit_works_with_few_pods() -> None:
    """Thirty pods ask for all GPUs; a search in no direction at all would return what it began with."""
    small = random_cluster(4, nodes=(5, 5))
    assert len(resample(small, ratio=1.0, seed=SPREAD_SEED).pods) < ARRIVALS_BETWEEN_LOOKS
    kinds = CandidateEvaluator([small], SimulationTask(), "fgd").spread.any(axis=(1, 2))
    assert kinds[1:].any()
