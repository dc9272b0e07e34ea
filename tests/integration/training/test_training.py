"""Training runs: they improve on FGD, stop and go on to the same policy, and say in one line what is wrong."""

import csv

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import FINAL_STATE_OBJECTIVES, CandidateEvaluator, Evolution, SimulationTask
from steersman.cluster.arrays import CPU
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.policy_file import read_policy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.training.run import POLICY, TrainingLimits, TrainingRun, read_checkpoint, write_checkpoint
from steersman.training.search.evolve import EvolutionPlan, evolve
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload


def small(name, keep=24):
    whole = embedded(name)
    return Workload(f"{name}-small", whole.nodes[::keep], whole.pods[::keep])


def plan(**changes):
    return EvolutionPlan(
        **{
            "name": "p",
            "training": (small("default"), small("gpushare40")),
            "config": EvolutionConfig(population=4, episodes=2),
            "validation_seeds": (5001,),
            **changes,
        }
    )


def rows(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def test_interrupted_run_resumes_to_the_same_policy(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    evolve(plan(), whole, TrainingLimits(iterations=6, validate_every=2))
    evolve(plan(), parts, TrainingLimits(iterations=4, validate_every=2))
    # What a killed run leaves behind: more metrics than its checkpoint knows of, and half a line.
    with open(parts / "metrics.csv", "a") as file:
        file.write("5,1.0,99,99,99\n6,1")
    evolve(plan(), parts, TrainingLimits(iterations=6, validate_every=2), resume=True)
    assert (whole / "policy.safetensors").read_bytes() == (parts / "policy.safetensors").read_bytes()
    for name in ("metrics.csv", "validation.csv"):
        first, second = rows(whole / name), rows(parts / name)
        timed = ("seconds", "throughput")
        assert [{k: v for k, v in r.items() if k not in timed} for r in first] == [
            {k: v for k, v in r.items() if k not in timed} for r in second
        ]
    assert [row["iteration"] for row in rows(parts / "metrics.csv")] == list("123456")


def test_model_card_names_the_origin_of_a_policy(tmp_path):
    evolve(
        plan(validation=(small("cpu100"),), test=("cpu072",)), tmp_path, TrainingLimits(iterations=2, validate_every=1)
    )
    card, _ = read_policy(tmp_path / "policy.safetensors")
    assert card.training == ("default-small", "gpushare40-small")
    assert card.validation == ("cpu100-small",)
    assert card.test == ("cpu072",)
    assert card.algorithm == "evolution"
    (score,) = card.scores
    best = max(float(row["value"]) for row in rows(tmp_path / "validation.csv"))
    assert SimulationTask().gain(score.baseline_mean, score.mean) == pytest.approx(best, abs=0.02)  # the card rounds


def test_search_does_not_depend_on_the_number_of_processes():
    task, config = SimulationTask(), EvolutionConfig(population=4, episodes=2)
    one, two = (Evolution((small("default"),), task, config, seed=3, jobs=jobs) for jobs in (1, 2))
    try:
        for _ in range(2):
            assert one.iterate() == two.iterate()
        assert (one.best() == two.best()).all()
    finally:
        two.close()


def test_evolution_improves_on_its_reference():
    search = Evolution((small("gpuspec25", 12),), SimulationTask(), EvolutionConfig(population=10, episodes=1), seed=1)
    gains = [search.iterate()["gain"] for _ in range(25)]
    assert np.mean(gains[-5:]) > max(5.0, np.mean(gains[:5]) + 5.0)


def test_waiting_time_is_evolved_in_timed_runs():
    task = SimulationTask("waiting-time", "timed", load=1.2)
    search = Evolution((small("default"),), task, EvolutionConfig(population=4, episodes=1), seed=1)
    assert np.isfinite(search.iterate()["gain"])


def test_candidates_and_reference_play_in_the_order_of_the_task():
    """The cost of a policy is its mean wait under the order, and another one under that of age."""
    workload = small("default")
    costs = {}
    for order in ("age", "shortest"):
        task = SimulationTask("waiting-time", "timed", load=1.2, order=order)
        evaluator = CandidateEvaluator([workload], task, "fgd")
        plan, costs[order], _ = evaluator.plan(0, 5)
        policy = with_order(resolve("fgd"), find_order(order))
        execution = Simulator(workload).play(policy, plan, 5)
        assert costs[order] == task.cost(execution)
        assert evaluator.gain(0, 5, resolve("fgd"))[0] == 0.0
    assert costs["shortest"] != costs["age"]


def test_the_order_of_the_task_is_that_of_the_policy_file(tmp_path):
    task = SimulationTask("waiting-time", "timed", load=1.2, order="wfp3:easy@history")
    evolve(plan(training=(small("default"),), task=task), tmp_path, TrainingLimits(iterations=1, validate_every=1))
    assert resolve(str(tmp_path / POLICY)).order == find_order("wfp3:easy@history")


def test_final_state_objectives_match_the_final_state():
    workload, protocol = small("default"), "arrivals"
    arrivals = schedule(workload, protocol, seed=3, ratio=1.0, load=None)
    execution = Execution(Simulator(workload), arrivals, resolve("fgd"), 3, record=False)
    execution.finish(None)
    nodes, metrics = execution.state.arrays, {m.name: m.value for m in execution.result(protocol, 3, 1.0).metrics}
    used = (nodes.allocatable[:, CPU] - nodes.free[:, CPU]) / nodes.allocatable[:, CPU]
    deviation = used.std()
    expected = {
        "allocation": 100.0 - metrics["gpu_allocation_percent"],
        "fragmentation": metrics["gpu_fragmented_percent"],
        "balance": 100.0 * 2.0 * deviation / (deviation + 1.0),
        "most-allocated": 100.0 * metrics["nodes_used"] / len(workload.nodes),
        "least-allocated": 100.0 * np.sqrt((used**2).mean()),
    }
    assert tuple(expected) == FINAL_STATE_OBJECTIVES
    for objective, cost in expected.items():
        assert SimulationTask(objective, protocol).cost(execution) == pytest.approx(cost, abs=0.006), (
            objective
        )  # some are of two decimals
    weighted = SimulationTask("allocation=1,balance=0.5", protocol)
    assert weighted.cost(execution) == pytest.approx(expected["allocation"] + 0.5 * expected["balance"], abs=0.006)


@pytest.mark.parametrize("objective", ["balance", "allocation=1,fragmentation=0.5"])
def test_evolution_in_arrivals_takes_any_final_state_objective(objective, tmp_path):
    task, run = SimulationTask(objective, "arrivals"), tmp_path / "run"
    evolve(plan(task=task, training=(small("default"),)), run, TrainingLimits(iterations=1, validate_every=1))
    card, _ = read_policy(run / POLICY)
    assert (card.protocol, card.objective, card.ratio) == ("arrivals", objective, None)
    assert card.scores[0].metric == "loss_percent"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SimulationTask("speed"), "unknown objective 'speed'; known are allocation"),
        (lambda: SimulationTask("locality"), "'locality' means nothing; known are allocation, .*--view cluster"),
        (lambda: SimulationTask("allocation=1,waiting-time=1", "timed"), "cannot be mixed"),
        (lambda: SimulationTask("balance", "timed"), "needs --protocol inflation or arrivals"),
        (lambda: SimulationTask("waiting-time", "inflation"), "needs --protocol timed"),
        (lambda: EvolutionConfig(population=5), "even number"),
        (lambda: EvolutionConfig(step=0), "above 0"),
        (lambda: TrainingLimits(iterations=0), "--iterations must be at least 1, not 0"),
        (lambda: TrainingLimits(minutes=-1), "above 0"),
        (lambda: plan(training=()), "at least one workload"),
        (lambda: plan(validation=(small("default"),)), "used for training"),
        (lambda: plan(test=("default-small",)), "used for training"),
        (lambda: plan(training=(Workload("cpu", embedded("default").nodes[:1], ()),)), "no GPU"),
    ],
)
def test_invalid_options_fail_in_one_line(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_run_is_neither_overwritten_nor_resumed_from_nothing(tmp_path):
    evolve(plan(), tmp_path / "run", TrainingLimits(iterations=1, validate_every=1))
    with raises(SteersmanError):
        evolve(plan(), tmp_path / "run", TrainingLimits(iterations=1))
    with raises(SteersmanError):
        evolve(plan(), tmp_path / "none", TrainingLimits(iterations=1), resume=True)
    with raises(InputError, "1", "2"):
        evolve(plan(seed=2), tmp_path / "run", TrainingLimits(iterations=2), resume=True)
    file = tmp_path / "run" / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with raises(InputError):
        evolve(plan(), tmp_path / "run", TrainingLimits(iterations=2), resume=True)


class Diverging:
    def iterate(self):
        raise SteersmanError("the search diverged in generation 1")

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_diverging_run_reports_it_and_keeps_the_best_policy(tmp_path):
    run = TrainingRun(tmp_path, {}, TrainingLimits())
    with raises(SteersmanError):
        run.train(Diverging(), lambda: 0.0, [].append)
    assert "diverged" in (tmp_path / "log.txt").read_text()


class Counting:
    """Learns to count."""

    def __init__(self):
        self.count = 0

    def iterate(self):
        self.count += 1
        return {"steps": self.count, "actions": np.arange(3)}

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_early_stopping_keeps_the_best_policy(tmp_path):
    learner, saved = Counting(), []
    run = TrainingRun(tmp_path, {}, TrainingLimits(iterations=100, validate_every=5, patience=3))
    standing = run.train(learner, lambda: -abs(learner.count - 20), lambda _: saved.append(learner.count))
    assert (standing.best_iteration, standing.iteration) == (20, 35)
    assert saved == [5, 10, 15, 20]


def test_checkpoints_round_trip_every_value_type(tmp_path):
    torch = pytest.importorskip("torch")
    state = {
        "numbers": [1, 2.5, None, True, "text"],
        3: (np.arange(4, dtype=np.uint64), np.zeros((2, 0)), np.float64(2.0)),
        "tensors": {0: torch.arange(3.0), "rng": torch.get_rng_state(), "scalar": torch.tensor(2)},
        "array0": np.array(5.0),
    }
    write_checkpoint(tmp_path / "c", state, {"seed": 1})
    back = read_checkpoint(tmp_path / "c", {"seed": 1})
    assert back["numbers"] == state["numbers"]
    assert (back[3][0] == state[3][0]).all()
    assert back[3][0].dtype == np.uint64
    assert isinstance(back[3], tuple)
    assert back[3][1].shape == (2, 0)
    assert back["array0"].shape == ()
    for name, tensor in state["tensors"].items():
        assert torch.equal(back["tensors"][name], tensor)
        assert back["tensors"][name].dtype == tensor.dtype
