"""The public Python API: what the command line does, from Python, with results for notebooks."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest
from tests.support.errors import raises

import steersman
from steersman.agents.configs import DQNConfig
from steersman.agents.registry import ALGORITHMS, AlgorithmSpec
from steersman.cli.main import main
from steersman.core import extras
from steersman.core.errors import SteersmanError, UsageError
from steersman.envs.deployments import DeploymentsOptions
from steersman.evaluation.results import METRICS, RESULTS, SUMMARY
from steersman.objectives import registry as objectives
from steersman.objectives.objective import Objective
from steersman.policies import registry
from steersman.policies.base import Policy


class Emptiest:
    """A user's own policy."""

    name = "emptiest"

    def prepare(self, state, profile, seed):
        """Nothing to prepare."""

    def scores(self, state, class_id, feasible):
        return state.arrays.free[:, 0].astype(np.float64)


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, steersman; assert steersman.__version__; dir(steersman)\n"
        "sys.exit(str([name for name in ('numba', 'numpy', 'torch', 'aiohttp') if name in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert {"evaluate", "load_policy", "load_workload", "simulate"} <= set(dir(steersman))
    with pytest.raises(AttributeError, match="no_such_name"):
        steersman.no_such_name  # noqa: B018


def test_evaluation_equals_the_command_line_output(tmp_path: Path) -> None:
    evaluation = steersman.evaluate(
        steersman.load_workload("default-small"), ["fgd", "kube-default"], seeds=[3, 5], protocol="inflation"
    )
    evaluation.write(tmp_path / "api")
    arguments = ["--workload", "default-small", "--policy", "fgd", "kube-default", "--seeds", "3,5"]
    assert main(["evaluate", *arguments, "--protocol", "inflation", "--output", str(tmp_path / "cli")]) == 0
    for name in (RESULTS, METRICS, SUMMARY):
        assert (tmp_path / "api" / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()
    assert (tmp_path / "api" / "report.html").exists()


def test_results_are_data_frames_and_tables_of_notebooks() -> None:
    workload = steersman.load_workload("default-small")
    evaluation = steersman.evaluate(workload, ["fgd", Emptiest()], seeds=2)
    assert [each.protocol for each in evaluation.experiments] == ["timed", "inflation"]
    frame = evaluation.to_frame()
    assert isinstance(frame, polars.DataFrame)
    assert set(frame["policy"]) == {"fgd", "emptiest"}
    assert set(frame["seed"]) == {42, 43}
    run = steersman.simulate(workload, "fgd", seed=42)
    values = {metric.name: metric.value for metric in run.metrics}
    of_run = frame.filter((polars.col("policy") == "fgd") & (polars.col("seed") == 42))
    of_run = of_run.filter(polars.col("protocol") == "inflation")
    found = dict(zip(of_run["metric"], of_run["value"], strict=True))
    assert found == pytest.approx(values, nan_ok=True)
    summary = evaluation.summary_frame()
    assert set(summary["baseline"]) == {"", "fgd"}
    text = evaluation._repr_html_()
    assert text.count("<table>") == 3, "two protocols, and the pods of each kind that fail; none waits"
    assert all(part in text for part in ("fgd (baseline)", "emptiest", "inflation", "timed"))
    # The short titles are explained below the table, each once.
    assert text.count("GPU %: GPU allocated at the end, %;") == 1
    assert text.count("Diff. points: Difference from fgd, points;") == 1


def test_colours_of_policies_are_those_of_the_report(tmp_path: Path) -> None:
    evaluation = steersman.evaluate("default-small", ["kube-default", "fgd", "fgd+shortest"], seeds=1)
    colours = evaluation.colours
    assert list(colours) == ["kube-default", "fgd", "fgd+shortest"]
    assert colours["kube-default"] != colours["fgd"] == colours["fgd+shortest"]
    evaluation.write(tmp_path / "out")
    report = (tmp_path / "out" / "report.html").read_text()
    assert all(colour in report for colour in colours.values())


def test_results_print_a_sentence_instead_of_arrays() -> None:
    workload = steersman.load_workload("default-small")
    run = steersman.simulate(workload, "fgd", record=True)
    assert repr(run) == "fgd on default-small: inflation, seed 42"
    evaluation = steersman.evaluate(workload, ["kube-default", "fgd"], seeds=5, protocol="inflation")
    assert repr(evaluation).startswith("fgd allocates the most GPUs on default-small (inflation): ")
    assert len(repr(evaluation)) < 400


def test_undefined_bound_is_rejected_before_any_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = steersman.load_workload("default-small")
    nodes = tuple(replace(node, gpu_count=0, gpu_model="") for node in workload.nodes)
    pods = tuple(pod for pod in workload.pods if not pod.requests.gpu_count)
    plain = replace(workload, nodes=nodes, pods=pods)
    assert "CPU" in repr(steersman.evaluate(plain, ["kube-default", "best-fit"], seeds=2, protocol="arrivals"))
    monkeypatch.setattr("steersman.evaluation.evaluation.run_experiment", None)
    with pytest.raises(UsageError, match=r"its nodes have no GPU, .*; leave it out"):
        steersman.evaluate(plain, ["kube-default", "best-fit"], seeds=2, protocol="arrivals", bound=True)


def test_cluster_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path))
    with pytest.raises(SteersmanError, match="no cluster 'mine': 'steersman cluster up --name mine' starts one"):
        steersman.connect(name="mine")
    with pytest.raises(UsageError, match="give one of them"):
        steersman.connect(tmp_path / "kubeconfig", name="mine")


def test_names_are_escaped_in_notebooks() -> None:
    own = Emptiest()
    own.name = "<script>"
    text = steersman.evaluate(steersman.load_workload("default-small"), ["fgd", own], seeds=1)._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_policies_are_loaded_by_name_file_and_object() -> None:
    assert isinstance(steersman.load_policy("fgd=2,best-fit=1"), Policy)
    assert steersman.load_policy(Emptiest()).name == "emptiest"
    with pytest.raises(UsageError, match="no-such-policy"):
        steersman.load_policy("no-such-policy")


def test_conflicting_arguments_are_rejected() -> None:
    workload = steersman.load_workload("default-small")
    for workloads, policies, options in (
        ([], ["fgd"], {}),
        (workload, [], {}),
        (workload, ["fgd", "fgd"], {}),
        (workload, [Emptiest(), "fgd"], {"baseline": "best-fit"}),
        (workload, ["fgd"], {"seeds": []}),
    ):
        with pytest.raises(UsageError):
            steersman.evaluate(workloads, policies, **options)


def test_a_frame_needs_one_of_two_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert extras.to_frame({"a": [1]}).shape == (1, 1)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SteersmanError, match="pandas or polars"):
        extras.to_frame({"a": [1]})


def test_trained_policy_equals_the_command_line_one(tmp_path: Path) -> None:
    workload = steersman.load_workload("default-small")
    trained = steersman.train(workload, tmp_path / "mine", iterations=2, validate_every=1)
    arguments = ["--workload", "default-small", "--iterations", "2", "--validate-every", "1", "--progress", "none"]
    assert main(["train", *arguments, "--output", str(tmp_path / "cli" / "mine")]) == 0
    assert trained.file.read_bytes() == (tmp_path / "cli" / "mine" / "policy.safetensors").read_bytes()
    assert trained.to_frame()["iteration"].to_list() == [1.0, 2.0]
    assert trained.summary in trained._repr_html_()
    assert repr(trained) == f"mine: {trained.summary}. {trained.file}"
    assert steersman.simulate(workload, trained.policy).policy == "mine"


def test_train_takes_an_environment(tmp_path: Path) -> None:
    options = DeploymentsOptions(nodes=3)
    trained = steersman.train(options, tmp_path, algorithm="evolution", iterations=1, validation_episodes=1)
    assert trained.plan.scene.protocol == "deployments"
    assert trained.file.exists()


def test_wrong_options_of_training_are_errors(tmp_path: Path) -> None:
    workload = steersman.load_workload("default-small")
    with pytest.raises(UsageError, match="reinforce"):
        steersman.train(workload, tmp_path, algorithm="reinforce")
    with pytest.raises(UsageError, match="'gnn'"):
        steersman.train(workload, tmp_path, algorithm="evolution", network="gnn")
    for options, text in (
        ({"objectve": "balance"}, "unknown option of train 'objectve'; did you mean 'objective'?"),
        ({"iteration": 2}, "unknown option of train 'iteration'; did you mean 'iterations'?"),
        ({"dropout": 0.1}, "evolution on workloads has no option 'dropout'"),
        ({"settings": {"populaton": 4}}, "did you mean 'population'?"),
        ({"iterations": "2"}, "train: iterations '2' is not a whole number"),
        ({"seed": 1.5}, "PlanOptions: seed 1.5 is not a whole number"),
        ({"hidden": 5}, "hidden 5: expected layer widths"),
    ):
        with pytest.raises(UsageError, match=re.escape(text)):
            steersman.train(workload, tmp_path, **options)
    with pytest.raises(UsageError, match=r"'trails'; did you mean 'trials'"):
        steersman.tune(workload, tmp_path, trails=3)
    assert not list(tmp_path.iterdir())


def test_workload_names_are_accepted_for_workloads() -> None:
    by_name = steersman.simulate("default-small", "fgd", ratio=0.1)
    same = steersman.simulate(steersman.load_workload("default-small"), "fgd", ratio=0.1)
    assert by_name.metrics == same.metrics
    runs = steersman.evaluate(["default-small"], "fgd", seeds=2, ratio=0.1, protocol="inflation").runs
    assert [run.seed for run in runs] == [42, 43]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: steersman.load_workload("defalt"), "unknown workload 'defalt'; did you mean 'default'?"),
        (lambda: steersman.load_workload(5), "load_workload: nodes 5 is not a text or a path"),
        (lambda: steersman.simulate(5, "fgd"), "5 is not a workload"),
        (lambda: steersman.simulate("default-small", 5), "5 is not a policy"),
        (lambda: steersman.simulate("default-small", "fdg"), "unknown policy 'fdg'; did you mean 'fgd'?"),
        (lambda: steersman.simulate("default-small", "fgd", seed="x"), "simulate: seed 'x' is not a whole number"),
        (lambda: steersman.simulate("default-small", "fgd", record=1), "simulate: record 1 is not true or false"),
        (lambda: steersman.evaluate("default-small", "fgd", seeds=0), "seeds=0: expected a number of seeds"),
        (lambda: steersman.evaluate("default-small", "fgd", seeds=True), "seeds=True: expected"),
        (lambda: steersman.evaluate("default-small", "fgd", seeds="3"), "seeds='3': expected"),
        (lambda: steersman.evaluate("default-small", "fgd", seeds=[1, -2]), "seeds=[1, -2]: expected"),
        (lambda: steersman.evaluate("default-small", None), "None is not a policy"),
        (lambda: steersman.evaluate(None, "fgd"), "None is not a workload"),
        (lambda: steersman.evaluate("default-small", "fgd", jobs="all"), "evaluate: jobs 'all' is not a whole number"),
        (lambda: steersman.connect(5), "connect: kubeconfig 5 is not a text or a path"),
    ],
)
def test_wrong_arguments_fail_in_one_line(call, text) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_has_frames_of_its_metrics_and_placements() -> None:
    workload = steersman.load_workload("default-small")
    run = steersman.simulate(workload, "fgd", record=True)
    metrics = dict(run.to_frame().select("metric", "value").iter_rows())
    assert f"{metrics['gpu_allocation_percent']:.6g}" in run._repr_html_()
    assert set(run.placements_frame()["outcome"]) == {"bound", "failed"}
    with pytest.raises(UsageError, match="record=True"):
        steersman.simulate(workload, "fgd").placements_frame()


def test_extensions_of_this_process_are_known_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (registry.REGISTRY, objectives.REGISTRY, ALGORITHMS):
        monkeypatch.setattr(each, "_registered", {})
    workload = steersman.load_workload("default-small")
    steersman.register_policy("emptiest-node", Emptiest)
    assert steersman.simulate(workload, "emptiest-node").policy == "emptiest"
    with pytest.raises(UsageError, match="'fgd'"):
        steersman.register_policy("fgd", Emptiest)

    objective = Objective("constant", function=lambda before, _: np.ones(len(before)))
    steersman.register_objective(objective)
    assert "constant" in objectives.REGISTRY.names()
    for register in (steersman.register_objective, steersman.register_format, steersman.register_network):
        with pytest.raises(UsageError):
            register(object())
    steersman.register_algorithm(AlgorithmSpec("mine", DQNConfig, "steersman.agents.dqn:DQN", 1, 1))
    options = DeploymentsOptions(nodes=3, objective="constant")
    trained = steersman.train(options, tmp_path, algorithm="mine", validation_episodes=1)
    assert trained.plan.algorithm == "mine"


def test_one_policy_needs_no_list() -> None:
    workload = steersman.load_workload("default-small")
    for policy in ("fgd", steersman.load_policy("fgd"), Emptiest()):
        name = policy if isinstance(policy, str) else policy.name
        runs = steersman.evaluate(workload, policy, seeds=1, protocol="inflation").runs
        assert [run.policy for run in runs] == [name]


def test_too_few_processes_are_rejected_before_anything_is_written(tmp_path: Path) -> None:
    workload = steersman.load_workload("default-small")
    for jobs in (0, -1):
        with raises(UsageError, f"--jobs must be at least 1, not {jobs}"):
            steersman.evaluate(workload, "fgd", jobs=jobs)
        with raises(UsageError, f"--jobs must be at least 1, not {jobs}"):
            steersman.train(workload, tmp_path / "run", jobs=jobs)
        with raises(UsageError, f"--jobs must be at least 1, not {jobs}"):
            steersman.tune(workload, tmp_path / "study", jobs=jobs)
    assert not list(tmp_path.iterdir())


def test_a_workload_prints_what_it_holds() -> None:
    workload = steersman.load_workload("default-small")
    assert str(workload) == f"default-small: {len(workload.nodes)} nodes, {len(workload.pods)} pods"
    assert str(replace(workload, nodes=workload.nodes[:1], pods=workload.pods[:1])) == "default-small: 1 node, 1 pod"
