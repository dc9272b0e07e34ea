"""Training in environments: runs go on to the same policy, say what they did, and tell in one line what is wrong."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.recordings import record, save

pytest.importorskip("torch")

import torch

from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import FeatureCounts
from steersman.agents.registry import find_algorithm
from steersman.cli.main import main
from steersman.cli.options.arrivals import AnyProtocol
from steersman.cli.options.training import LearningOptions, NetworkOptions, Scenario, TrainingTask
from steersman.cli.options.training_plan import TrainOptions, merge_options
from steersman.core.errors import InputError, SteersmanError
from steersman.envs.deployments import DeploymentsOptions
from steersman.policies.policy_file import read_policy
from steersman.training.environment import EnvironmentSpec
from steersman.training.learning import LearningPlan, learn
from steersman.training.network import NetworkPlan
from steersman.training.run import TrainingLimits

SMALL = {
    "dqn": {"batch_size": 32, "prefill": 30},
    "actor-critic": {"rollout": 8},
    "ppo": {"rollout": 8, "epochs": 2},
    "imitation": {"batch_size": 32},
}


def scene(**options):
    return EnvironmentSpec(
        "deployments", DeploymentsOptions(**{"nodes": 3, "node_cpu": "16", "node_memory": "64Gi", **options})
    )


def plan(algorithm="ppo", **changes):
    given = {"network": NetworkPlan("mlp", (8,)), "environments": 4, "validation_seeds": (5001,)} | changes
    return LearningPlan("p", algorithm, scene(), find_algorithm(algorithm).config(**SMALL[algorithm]), **given)


def rows(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def untimed(file):
    return [{name: value for name, value in row.items() if name not in ("seconds", "throughput")} for row in rows(file)]


@pytest.mark.parametrize("algorithm", SMALL)
def test_interrupted_run_resumes_to_the_same_policy(algorithm, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    chosen = plan(algorithm, network=NetworkPlan("mlp", (8,), dropout=0.1, normalisation="batch"))
    learn(chosen, whole, TrainingLimits(iterations=6, validate_every=2))
    learn(chosen, parts, TrainingLimits(iterations=3, validate_every=3))
    (parts / "validation.csv").unlink()  # of a sitting that validated at other moments
    learn(chosen, parts, TrainingLimits(iterations=6, validate_every=2), resume=True)
    assert untimed(whole / "metrics.csv")[3:] == untimed(parts / "metrics.csv")[3:]
    assert untimed(whole / "validation.csv")[1:] == untimed(parts / "validation.csv")


@pytest.mark.parametrize(("given", "used"), [(None, 1), ("2", 2)])
def test_torch_trains_on_one_thread_by_default(tmp_path, monkeypatch, given, used):
    before, seen = torch.get_num_threads(), []
    if given is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    torch.set_num_threads(2)  # what torch starts with on two cores, or by that variable
    try:
        limits = TrainingLimits(iterations=2, validate_every=2)
        learn(plan(), tmp_path / "run", limits, on_iteration=lambda *_: seen.append(torch.get_num_threads()))
        assert (set(seen), torch.get_num_threads()) == ({used}, 2)
    finally:
        torch.set_num_threads(before)


def test_metrics_cover_learning_and_node_balance(tmp_path):
    learn(plan("dqn"), tmp_path, TrainingLimits(iterations=8, validate_every=8))
    table = rows(tmp_path / "metrics.csv")
    assert [row["iteration"] for row in table] == [str(i) for i in range(1, 9)]
    assert {"reward", "loss", "epsilon", "node_variance", "allocation", "throughput", "return"} <= table[0].keys()
    assert table[0]["loss"] == "" or float(table[0]["loss"]) >= 0
    assert float(table[-1]["loss"]) >= 0
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_late_metric_column_is_kept(tmp_path):
    learn(plan("actor-critic", environments=1), tmp_path, TrainingLimits(iterations=12, validate_every=12))
    table = rows(tmp_path / "metrics.csv")
    ended = [row for row in table if row["return"]]
    assert table[0]["return"] == ""
    assert ended
    assert all(float(row["length"]) > 8 for row in ended)


def test_the_card_and_the_weights_are_those_of_the_network(tmp_path):
    network = NetworkPlan("deepsets", (8, 8), normalisation="batch")
    learn(plan("imitation", network=network), tmp_path, TrainingLimits(iterations=2, validate_every=1))
    card, arrays = read_policy(tmp_path / "policy.safetensors")
    assert (card.network, card.hidden, card.view, card.algorithm) == ("deepsets", (8, 8), "cluster", "imitation")
    assert (card.objective, card.protocol, card.normalisation) == ("balance", "deployments", "none")
    assert not any("norm" in name for name in arrays)
    by_metric = {score.metric: score for score in card.scores}
    assert by_metric["return"].baseline == "least-allocated"
    best = max(float(row["value"]) for row in rows(tmp_path / "validation.csv"))
    score = by_metric["return"]
    assert 100 * (score.mean - score.baseline_mean) / abs(score.baseline_mean) == pytest.approx(best, abs=0.01)
    assert by_metric["node_variance"].mean >= 0


def test_training_starts_from_another_policy(tmp_path):
    learn(plan("imitation"), tmp_path / "first", TrainingLimits(iterations=1, validate_every=1))
    file = tmp_path / "first" / "policy.safetensors"
    config = find_algorithm("imitation").config(batch_size=32, learning_rate=1e-12)
    start = dataclasses.replace(plan("imitation"), config=config, network=NetworkPlan("mlp", (8,), start=file))
    learn(start, tmp_path / "second", TrainingLimits(iterations=1, validate_every=1))
    (_, first), (_, second) = read_policy(file), read_policy(tmp_path / "second" / "policy.safetensors")
    assert all(np.allclose(first[name], second[name], atol=1e-6) for name in first)
    drawn = export(build("mlp", FeatureCounts(28, 11, 10), (8,), seed=1))
    assert not np.allclose(first["head.weight"], drawn["head.weight"], atol=1e-6)
    other = dataclasses.replace(start, network=NetworkPlan("mlp", (16,), start=file))
    with raises(InputError, "8", "16"):
        learn(other, tmp_path / "third", TrainingLimits(iterations=1))
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_diverging_run_keeps_the_best_policy(algorithm, tmp_path):
    rate = "learning_rate" if algorithm == "dqn" else "actor_learning_rate"
    good = plan(algorithm)
    learn(good, tmp_path, TrainingLimits(iterations=2, validate_every=1))
    policy = (tmp_path / "policy.safetensors").read_bytes()
    bad = dataclasses.replace(good, config=dataclasses.replace(good.config, **{rate: 1e6}))
    with raises(SteersmanError, algorithm):
        learn(bad, tmp_path / "bad", TrainingLimits(iterations=50, validate_every=50))
    assert not (tmp_path / "bad" / "policy.safetensors").exists()
    assert "diverged" in (tmp_path / "bad" / "log.txt").read_text()
    assert (tmp_path / "policy.safetensors").read_bytes() == policy


def test_matching_recording_is_learned_from(tmp_path):
    env = scene().make(2)
    file, other = tmp_path / "right.npz", tmp_path / "other.npz"
    save(record(env, lambda _: env.heuristic("least-allocated"), 60, seed=3), file)
    learn(plan("imitation", recording=file), tmp_path / "run", TrainingLimits(iterations=2, validate_every=1))
    assert (tmp_path / "run" / "policy.safetensors").exists()
    larger = scene(nodes=5).make(2)
    save(record(larger, lambda _: larger.heuristic("least-allocated"), 60, seed=3), other)
    with raises(InputError, "5", "3"):
        learn(plan("dqn", recording=other), tmp_path / "o", TrainingLimits(iterations=1))
    with np.load(file) as arrays:
        cut = {name: a[..., :-1] if name.endswith(".nodes") else a for name, a in arrays.items()}
    np.savez_compressed(other, **cut)
    with raises(InputError):
        learn(plan("imitation", recording=other), tmp_path / "o", TrainingLimits(iterations=1))
    assert not (tmp_path / "o").exists()


# The command ----------------------------------------------------------------------------------------------------------

DEPLOYMENTS = ("--protocol", "deployments", "--node-count", "3", "--node-cpu", "16", "--node-memory", "64Gi")
TINY = ("--iterations", "2", "--validate-every", "1", "--validation-episodes", "1", "--hidden", "8")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "protocol", "objective"),
    [
        (TrainingTask(), "deployments", "locality"),
        (TrainingTask(protocol=AnyProtocol.DEPLOYMENTS), "deployments", "locality"),
        (TrainingTask(objective="balance"), "deployments", "balance"),
        (TrainingTask(protocol=AnyProtocol.ARRIVALS), "arrivals", None),
    ],
)
def test_options_file_sets_protocol_and_objective(tmp_path, given, protocol, objective):
    file = tmp_path / "best.json"
    file.write_text(json.dumps({"algorithm": "ppo", "protocol": "deployments", "objective": "locality"}))
    task = dataclasses.replace(given, options=file)
    merged = merge_options(TrainOptions(task, Scenario(), NetworkOptions(), LearningOptions(), {}))
    assert (merged.protocol, merged.task.objective) == (protocol, objective)


def test_the_command_trains_and_takes_options_from_a_file(here, capsys):
    (here / "o.json").write_text(json.dumps({"algorithm": "ppo", "rollout": 8, "clip_range": 0.1, "hidden": "8"}))
    assert main(["train", *DEPLOYMENTS, *TINY, "--options", "o.json", "--clip-range", "0.3", "--output", "run"]) == 0
    assert "than least-allocated earns" in " ".join(capsys.readouterr().out.split())
    told = json.loads((here / "run" / "run.json").read_text())
    assert (told["algorithm"], told["config"]["rollout"], told["config"]["clip_range"]) == ("ppo", 8, 0.3)
    assert told["network"]["hidden"] == [8]


def test_evolution_trains_in_environments(here):
    size = ("--population", "4", "--episodes", "1", "--network", "mlp")
    assert main(["train", "--algorithm", "evolution", *DEPLOYMENTS, *TINY, *size, "--output", "run"]) == 0
    card, arrays = read_policy(here / "run" / "policy.safetensors")
    assert (card.algorithm, card.network, card.hidden) == ("evolution", "mlp", (8,))
    assert arrays["head.weight"].shape == (1, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algorithm", "ppo", "--epsilon-decay", "0.9"), "--epsilon-decay is not an option of ppo; it has --gamma"),
        (("--algorithm", "magic"), "unknown algorithm 'magic'; known are evolution, dqn"),
        (("--network", "gnn"), "gnn cannot be trained by evolution in environments; these can"),
        (("--algorithm", "ppo", "--device", "tpu"), "there is no such device"),
        (("--algorithm", "ppo", "--device", "cuda:99"), "cpu works everywhere"),
        (("--algorithm", "ppo", "--objective", "speed"), "unknown objective 'speed'"),
        (("--algorithm", "ppo", "--objective", "allocation"), "its nodes have no GPU"),
        (
            ("--algorithm", "ppo", "--workload", "default"),
            "--workload belongs to --protocol inflation, arrivals or timed",
        ),
        (("--algorithm", "ppo", "--view", "gpu"), "--view belongs to --protocol inflation, arrivals or timed"),
        (("--algorithm", "ppo", "--zones", "2"), "--zones belongs to --protocol latency"),
        (("--algorithm", "ppo", "--teacher", "fgd"), "dqn and imitation learn from others"),
        (("--algorithm", "dqn", "--teacher", "best-fit"), "only with --use-heuristic or --prefill"),
        (("--algorithm", "imitation", "--teacher", "magic"), "unknown rule 'magic'"),
        (("--algorithm", "ppo", "--hidden", "0"), "widths from 1 to"),
        (("--algorithm", "ppo", "--clip-range", "-1"), "--clip-range -1.0 does not work"),
        (("--algorithm", "ppo", "--node-count", "9-3"), "the first number is the larger one"),
        (("--algorithm", "evolution", "--device", "cpu"), "--device does not apply to evolution in environments"),
        (
            ("--algorithm", "dqn", "--exploration", "linear", "--epsilon-decay", "0.9"),
            "--epsilon-decay has no effect with --exploration linear",
        ),
        (
            ("--algorithm", "dqn", "--exploration-decisions", "9"),
            "--exploration-decisions has no effect with --exploration exponential",
        ),
        (
            ("--options", "complete.json", "--exploration", "linear", "--epsilon-decay", "0.9"),
            "--epsilon-decay has no effect with --exploration linear",
        ),
        (("--options", "idle.json"), "idle.json, exploration_decisions: has no effect unless exploration is linear"),
        (("--options", "none.json"), "none.json: cannot be read"),
        (("--options", "list.json"), "is no JSON object"),
        (("--options", "wrong.json"), "wrong.json, clip_range: is 'much'; expected a number"),
        (("--options", "other.json"), "other.json, clip_range: is not an option of dqn"),
        (("--options", "nan.json"), "nan.json, learning_rate: is nan; expected a number above 0"),
        (("--options", "infinite.json"), "infinite.json, learning_rate: is inf; expected a number above 0"),
        (("--options", "negative.json"), "negative.json, replay_size: is -5; expected a whole number of 1 or more"),
        (("--options", "twice.json"), "twice.json, tau: is there twice"),
        (("--options", "layers.json"), "layers.json, hidden: --hidden 8,x: expected widths from 1 to 65536"),
    ],
)
def test_invalid_input_fails_in_one_line(here, capsys, arguments, message):
    (here / "list.json").write_text("[]")
    (here / "wrong.json").write_text('{"algorithm": "ppo", "clip_range": "much"}')
    (here / "other.json").write_text('{"algorithm": "dqn", "clip_range": 0.1}')
    (here / "nan.json").write_text('{"algorithm": "dqn", "learning_rate": NaN}')
    (here / "infinite.json").write_text('{"algorithm": "dqn", "learning_rate": 1e999}')
    (here / "negative.json").write_text('{"algorithm": "dqn", "replay_size": -5}')
    (here / "twice.json").write_text('{"algorithm": "dqn", "tau": 0.1, "tau": 0.2}')
    (here / "layers.json").write_text('{"algorithm": "dqn", "hidden": "8,x"}')
    (here / "idle.json").write_text('{"algorithm": "dqn", "exploration_decisions": 9}')
    (here / "complete.json").write_text('{"algorithm": "dqn", "epsilon_decay": 0.9}')
    assert main(["train", "--protocol", "deployments", *arguments, "--output", "o"]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert message in said[-1]
    assert [line for line in said if not line.startswith("compiling")] == said[-1:]
    assert not (here / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "default", "--view", "sky"), "unknown view 'sky'; known are cluster, gpu"),
        (("--workload", "default", "--node-count", "5"), "--node-count belongs to --protocol deployments or latency"),
        ((), "--protocol inflation needs --workload"),
    ],
)
def test_invalid_workload_options_fail_in_one_line(here, capsys, arguments, message):
    assert main(["train", "--algorithm", "ppo", *arguments, "--output", "o"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert message in said[-1]
    assert not (here / "o").exists()


@pytest.mark.usefixtures("here")
def test_checkpoint_of_another_algorithm_is_rejected(capsys):
    ppo = ("--algorithm", "ppo", "--rollout", "8", *DEPLOYMENTS, *TINY)
    assert main(["train", *ppo, "--output", "run"]) == 0
    assert main(["train", "--algorithm", "dqn", *DEPLOYMENTS, *TINY, "--output", "run", "--resume"]) == 2
    assert "--algorithm is not that of the run in run" in capsys.readouterr().err
    assert main(["train", *ppo, "--iterations", "3", "--output", "run", "--resume"]) == 0
    assert [row["iteration"] for row in rows(Path("run", "metrics.csv"))] == ["1", "2", "3"]


def config_of(folder):
    """The options of the algorithm, and of the network, of a run."""
    told = json.loads((folder / "run.json").read_text())
    return told["config"], told["network"]


def test_aaml_options_are_accepted(here, capsys):
    dqn = "--hidden 16,8 --gamma 0.9 --learning-rate 0.002 --replay-size 500 --batch-size 32 --update-every 10"
    dqn += " --target-update-every 2 --prefill 40 --use-heuristic --dropout 0.1 --normalisation batch --progress scroll"
    chosen = ("--algorithm", "dqn", *DEPLOYMENTS, "--objective", "balance", *TINY[:-2], *dqn.split())
    assert main(["train", *chosen, "--name", "mine", "--output", "run"]) == 0
    config, network = config_of(here / "run")
    assert (config["gamma"], config["learning_rate"], config["replay_size"]) == (0.9, 0.002, 500)
    assert (config["update_every"], config["target_update_every"], config["prefill"]) == (10, 2, 40)
    assert (network["hidden"], network["dropout"], network["normalisation"]) == ([16, 8], 0.1, "batch")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training: ")]
    assert len(lines) == 2, "a line for each iteration"
    card, arrays = read_policy(here / "run" / "policy.safetensors")
    assert (card.name, card.objective, arrays["layers.1.weight"].shape) == ("mine", "balance", (8, 16))
    rates = ("--actor-learning-rate", "0.001", "--critic-learning-rate", "0.004", "--rollout", "8")
    assert main(["train", "--algorithm", "actor-critic", *DEPLOYMENTS, *TINY, *rates, "--output", "other"]) == 0
    config, _ = config_of(here / "other")
    assert (config["actor_learning_rate"], config["critic_learning_rate"]) == (0.001, 0.004)


OBJECTIVES = {"most-allocated": "ma", "least-allocated": "la", "least-connections": "lc", "latency-aware": "p0"}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_thesis_objective_is_trained_and_compared(here, objective, capsys):
    cluster = ("--protocol", "latency", "--node-count", "4", "--pod-count", "40", "--warmup", "0")
    dqn = "--exploration linear --exploration-decisions 100 --learning-starts 20 --tau 0.5 --batch-size 16"
    chosen = ("--algorithm", "dqn", "--network", "deepsets", "--objective", objective, *dqn.split())
    assert main(["train", *cluster, *chosen, *TINY, "--output", "run"]) == 0
    config, network = config_of(here / "run")
    assert (config["exploration"], config["exploration_decisions"]) == ("linear", 100)
    assert (config["learning_starts"], config["tau"], network["name"]) == (20, 0.5, "deepsets")
    policies = ("--policy", "kube-default", OBJECTIVES[objective], "run/policy.safetensors", "--seeds", "1-2")
    capsys.readouterr()
    compared = ("--objective", objective, "--jobs", "1", "--format", "csv", "--output", "out")
    assert main(["evaluate", *cluster, *policies, *compared]) == 0
    assert {row["policy"] for row in rows(here / "out" / "metrics.csv")} == {
        "kube-default",
        OBJECTIVES[objective],
        "run",
    }
