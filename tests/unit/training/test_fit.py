"""Policies fitted to a cluster: the file and the formula decide as what was chosen, and by themselves."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.cli.main import main
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.formula import open_formula
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, KubeSchedulerPolicy
from steersman.policies.policy_file import open_policy, read_policy, write_policy
from steersman.policies.portfolio_policy import KindLimit, PortfolioPolicy
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import FIRST_SEED as CHOICE
from steersman.simulation.selection.choice import MemberChoice
from steersman.simulation.selection.fitting import FIRST_SEED as SEARCH
from steersman.simulation.selection.stock_search import SearchOptions
from steersman.training.search import policies as fitting
from steersman.training.search.policies import BASELINES, FIRST_HELD_OUT, Fit, fit
from steersman.workloads.formats.registry import convert
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Workload


@pytest.fixture(scope="module")
def workload() -> Workload:
    return random_cluster(16, nodes=(6, 9))


@pytest.fixture(scope="module")
def result(workload: Workload) -> Fit:
    return fit(workload, SearchOptions(generations=2))


@pytest.fixture
def files(workload: Workload, tmp_path: Path) -> tuple[str, ...]:
    convert(workload, "yaml", tmp_path / "cluster")
    return "--nodes", str(tmp_path / "cluster" / "nodes.yaml"), "--pods", str(tmp_path / "cluster" / "pods.yaml")


def decisions(workload: Workload, policy: object) -> tuple[list[str], list[str]]:
    placements = Simulator(workload).run(policy, seed=2, record=True).placements  # type: ignore[arg-type]
    assert placements is not None
    return placements.node, placements.devices


def test_the_choice_is_compared_with_baselines_in_draws_of_their_own(result: Fit, workload: Workload) -> None:
    assert set(result.costs) == {result.policy.name, *BASELINES}
    (draws,) = {len(each) for each in result.costs.values()}
    assert fitting.HELD_OUT[0] <= draws <= fitting.HELD_OUT[1]
    # No draw of a search, of a choice, or of an evaluation, whose seeds are small.
    assert SEARCH + 10_000 < CHOICE < FIRST_HELD_OUT - 10_000
    assert result.costs[result.policy.name].mean() < result.costs["fgd"].mean()
    assert result.policy.name == Simulator(workload).member(resolve("steersman")).policy.name


def test_file_decides_by_itself_as_what_was_chosen(result: Fit, workload: Workload, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    write_policy(file, result.card, result.arrays)
    policy = open_policy(file, "mine")
    assert policy.prepared is not None
    assert decisions(workload, policy) == decisions(workload, result.policy)
    card, _ = read_policy(file)
    assert {score.baseline for score in card.scores} == set(BASELINES)
    assert card.compared_on is not None
    assert (card.training, card.compared_on.nodes) == ((workload.name,), len(workload.nodes))


def test_same_seed_same_file(result: Fit, workload: Workload) -> None:
    again = fit(workload, SearchOptions(generations=2))
    assert again.card == result.card
    assert {name: each.tobytes() for name, each in again.arrays.items()} == {
        name: each.tobytes() for name, each in result.arrays.items()
    }


@pytest.mark.parametrize("rule", ["best-fit", "gpu-packing"])
def test_rule_is_written_as_a_policy_file(
    rule: str, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "choose", lambda *_: MemberChoice(resolve(rule), f"{rule} decides"))
    result = fit(workload, SearchOptions())
    write_policy(tmp_path / "rule.safetensors", result.card, result.arrays)
    policy = open_policy(tmp_path / "rule.safetensors", "mine")
    assert (policy.name, policy.is_learned, result.card.members) == ("mine", False, (rule,))
    assert decisions(workload, policy) == decisions(workload, rule)


def test_no_file_is_written_for_the_default_of_kube_scheduler(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = MemberChoice(KubeSchedulerPolicy(), f"{KUBE_DEFAULT} decides: a reason")
    monkeypatch.setattr(Simulator, "choose", lambda *_: said)
    for name in ("mine.safetensors", "mine.txt"):
        assert main(["fit", "policy", *files, "--output", str(tmp_path / name)]) == 1
        assert "leave kube-scheduler as it is" in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / name).exists()


def test_the_limit_is_in_the_card(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def choose(_: Simulator, __: PortfolioPolicy, options: SearchOptions, ___: object) -> MemberChoice:
        limits.append(options.limit)
        return MemberChoice(resolve("best-fit"), "best-fit decides")

    monkeypatch.setattr(Simulator, "choose", choose)
    limit = KindLimit(2.5, KubeSchedulerPolicy())
    assert fit(workload, SearchOptions(limit=limit)).card.settings == {"max_kind_loss": 2.5}
    assert limits == [limit]


def test_what_cannot_be_fitted_to_is_refused(workload: Workload) -> None:
    bare = replace(workload, pods=tuple(pod for pod in workload.pods if not pod.requests.gpu_count))
    with raises(UsageError, "policies are fitted to GPUs"):
        fit(bare, SearchOptions())
    without = replace(workload, nodes=tuple(replace(node, gpu_count=0) for node in workload.nodes))
    with raises(UsageError, "policies are fitted to GPUs"):
        fit(without, SearchOptions())
    with raises(UsageError, "inflation or timed"):
        fit(workload, SearchOptions("arrivals"))
    timeless = replace(workload, pods=tuple(replace(pod, creation_time=None) for pod in workload.pods))
    with raises(SteersmanError, "has no creation time"):
        fit(timeless, SearchOptions("timed"))


def test_command_writes_a_file_and_a_formula_that_decide_alike(
    files: tuple[str, ...], workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [tmp_path / name for name in ("mine.safetensors", "mine.txt")]
    command = ["fit", "policy", *files, "--generations", "2", "--format", "json"]
    records = []
    for output in outputs:
        assert main([*command, "--output", str(output)]) == 0
        said = capsys.readouterr()
        records.append(json.loads(said.out))
        assert said.err.splitlines()[-1] == f"wrote {output}"
    assert records[0] == records[1]
    names = [each["policy"] for each in records[0]["policies"]]
    assert names == [records[0]["kept"], *BASELINES]
    assert all(np.isfinite(each["gpus_not_allocated_percent"]) for each in records[0]["policies"])
    file, formula = (resolve(str(output)) for output in outputs)
    assert decisions(workload, file) == decisions(workload, formula)
    assert main(["policy", "show", str(outputs[0])]) == 0
    assert "Results of the comparison" in capsys.readouterr().out
    # Both may be overwritten, and nothing else.
    for output in outputs:
        assert main([*command, "--output", str(output)]) == 0
        output.write_text("mine")
        capsys.readouterr()
        assert main([*command, "--output", str(output)]) == 2
        assert "exists and is not a" in capsys.readouterr().err
        assert output.read_text() == "mine"


def test_formula_says_what_it_was_fitted_to(
    files: tuple[str, ...], workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "policy", *files, "--generations", "1", "--output", str(tmp_path / "new" / "mine.txt")]) == 0
    out, err = capsys.readouterr()
    lines = (tmp_path / "new" / "mine.txt").read_text().splitlines()
    assert lines[1] == f"# Fitted to pods: {len(workload.nodes)} nodes, {len(workload.pods)} pods."
    assert lines[2].removeprefix("# ") in err
    assert "draws that the search did not use" in " ".join(out.split())
    assert open_formula(str(tmp_path / "new" / "mine.txt")).name == "mine"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--output", "mine.csv"), "must end in .safetensors, that of a formula in .txt"),
        (("--output", "mine.txt", "--generations", "0"), "--generations"),
        (("--output", "mine.txt", "--max-kind-loss", "-1"), "--max-kind-loss"),
        (("--output", "/dev/null/mine.txt"), "/dev/null is not a folder"),
        (("--output", "/dev/null/mine.safetensors"), "/dev/null is not a folder"),
        (("--output", "mine.txt", "--protocol", "arrivals"), "inflation"),
    ],
)
def test_invalid_options_fail_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], problem
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "policy", "--workload", "default-small", *more]) == 2
    assert problem in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_command_needs_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "policy", "--output", str(tmp_path / "mine.safetensors")]) == 2
    assert "--nodes with --pods, --workload NAME, or --cluster" in capsys.readouterr().err
