"""Distillation: terms that explain a policy's decisions, weights that do as well, and the command that writes them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.formulas import random_formula

from steersman.cli.main import main
from steersman.core.errors import UsageError
from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import term_column
from steersman.policies.formulas.formula import Formula, FormulaTerm, read_formula
from steersman.policies.formulas.kernels import FormulaArrays
from steersman.policies.formulas.policy import FormulaPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import resample
from steersman.simulation.run import Simulator
from steersman.training.search.distil import (
    TERMS,
    DistillationOptions,
    FormulaTrials,
    distil,
    rounded_formula,
)
from steersman.training.search.imitation_terms import imitated_choices, imitating_terms
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload

QUICK = DistillationOptions(generations=3)


def cluster(seed: int, nodes: int = 24) -> Workload:
    return random_cluster(seed, distribution=Distribution.TRAINING, nodes=(nodes, nodes))


@pytest.mark.parametrize("seed", range(6))
def test_filling_is_a_simulation(seed: int) -> None:
    """The compiled loop of the search ends as the simulator does, with every pod on the same node."""
    random = np.random.default_rng(seed)
    workload, formula = cluster(seed), random_formula(random)
    trials, simulator = FormulaTrials(workload, 1.3), Simulator(workload)
    trial = trials.draw(seed, len(workload.nodes))
    run = simulator.play(FormulaPolicy("rule", formula), resample(workload, ratio=1.3, seed=seed), seed)
    assert trials.cost(trials.arrays(formula), trial) == pytest.approx(run.cost("inflation"), abs=1e-9)


def test_a_search_whose_weights_grow_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of weights matters to no decision, so that nothing but the search itself bounds it."""

    def cost(_: FormulaTrials, arrays: FormulaArrays, __: object) -> float:
        return -float(np.abs(arrays.weights).sum())

    monkeypatch.setattr(FormulaTrials, "cost", cost)
    found = distil(cluster(2), resolve("fgd"), replace(QUICK, generations=2000))
    assert 0 < found.generations < 1000


def test_large_clusters_are_searched_in_parts() -> None:
    workload = cluster(3, nodes=60)
    trials = FormulaTrials(workload, 1.3)
    part, whole = trials.draw(1, 20), trials.draw(1, 60)
    assert len(part.order) == 20
    assert part.order.tolist() == whole.order[:20].tolist()
    assert part.capacity == 1000 * sum(workload.nodes[n].gpu_total for n in part.order.tolist())
    assert len(part.arrivals) < len(whole.arrivals)


def test_a_policy_of_one_term_is_found_by_its_decisions() -> None:
    """Of a policy that is a formula the terms come back, up to what a decision does not depend on."""
    workload = cluster(5)
    terms = (FormulaTerm(-3.0, "idle"), FormulaTerm(2.0, "spare"))
    source = Formula((terms,) * POD_KINDS, 6000.0)
    simulator = Simulator(workload)
    choices = imitated_choices(simulator, FormulaPolicy("source", source), source, 1.3)
    found = replace(source, terms=tuple(imitating_terms(each, 4) for each in choices))
    for each, terms_found in zip(choices, found.terms, strict=True):
        if not len(each.states):
            continue
        weights = np.zeros(each.states.shape[2])
        for term in terms_found:
            weights[term_column(term.name)] = term.weight
        scores = np.where(each.valid, each.states @ weights, -np.inf)
        # The chosen state is the first one; others may be as good.
        assert (scores[:, 0] >= scores.max(axis=1) - 1e-9).mean() > 0.9


def test_distillation_is_reproducible_and_close() -> None:
    workload = cluster(1)
    one, two = (distil(workload, resolve("fgd"), QUICK) for _ in range(2))
    assert one.formula == two.formula
    assert one.generations == 3
    assert one.loss == pytest.approx(float((one.costs - one.source_costs).mean()))
    # FGD needs a table of typical pods, the formula does not; worst is 10 points below on these clusters.
    assert one.loss < 2.0
    assert all(len(terms) <= TERMS for terms in one.formula.terms)
    assert all(term.weight == float(f"{term.weight:.3g}") for terms in one.formula.terms for term in terms)


def test_rounding_keeps_the_scale_of_a_kind_and_drops_nothing_else() -> None:
    terms = (FormulaTerm(-12345.6, "idle"), FormulaTerm(0.034567, "short"))
    formula = rounded_formula(Formula((terms, (), (FormulaTerm(0.0, "idle"),), ())))
    assert formula.terms == ((FormulaTerm(-1.23, "idle"), FormulaTerm(3.46e-06, "short")), (), (), ())


def test_without_gpus_there_is_nothing_to_distil() -> None:
    workload = cluster(1)
    nodes = tuple(replace(node, gpu_count=0) for node in workload.nodes)
    with raises(UsageError, "GPU"):
        distil(replace(workload, nodes=nodes), resolve("fgd"), QUICK)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("cluster") / "c"
    assert main(["workload", "random", "--nodes", "12-16", "--seed", "4", "--output", str(folder)]) == 0
    return "--nodes", str(folder / "nodes.yaml"), "--pods", str(folder / "pods.yaml")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, inputs: tuple[str, ...]) -> Path:
    file = tmp_path_factory.mktemp("exported") / "my_rule.txt"
    command = ["policy", "export", "steersman", *inputs, "--generations", "2", "--output", str(file)]
    assert main(command) == 0
    return file


def test_the_text_says_what_it_is_and_is_a_policy(exported: Path, inputs: tuple[str, ...], tmp_path: Path) -> None:
    formula = read_formula(exported)
    assert any(formula.terms)
    distilled, loss = formula.comments
    assert distilled.startswith("Distilled from steersman, its member ")
    assert "held-out draws it allocates" in loss
    command = ["evaluate", *inputs, "--policy", str(exported), "fgd", "--seeds", "2", "--output", str(tmp_path / "out")]
    assert main(command) == 0


def test_figures_are_a_json_document(
    inputs: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rule.txt"
    command = ["policy", "export", "best-fit", *inputs, "--output", str(file), "--format", "json"]
    capsys.readouterr()
    assert main([*command, "--generations", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["generations"]) == ("best-fit", 1)
    percent = found["gpus_not_allocated_percent"]
    assert found["loss"]["mean"] == pytest.approx(percent["formula"] - percent["source"])
    terms = [[(each["weight"], each["feature"]) for each in kind] for kind in found["terms"].values()]
    assert terms == [[(term.weight, term.name) for term in kind] for kind in read_formula(file).terms]


@pytest.mark.parametrize(("name", "named"), [("rule.py", ".txt"), ("notes.txt", "formula"), ("folder.txt", "formula")])
def test_a_wrong_output_is_refused_before_the_search(
    inputs: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, named: str
) -> None:
    notes = tmp_path / name
    if notes.stem == "notes":
        notes.write_text("mine\n")
    elif notes.stem == "folder":
        notes.mkdir()
    assert main(["policy", "export", "fgd", *inputs, "--output", str(notes)]) == 2
    error = capfd.readouterr().err.strip()
    assert "\n" not in error
    assert all(each in error for each in ("--output", name, named))
    assert not notes.is_file() or notes.read_text() == "mine\n"


def test_a_workload_is_needed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "export", "fgd", "--output", str(tmp_path / "rule.txt")]) == 2
    assert "--workload" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_formula_is_distilled_again_in_its_place(exported: Path, inputs: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "rule.txt"
    file.write_bytes(exported.read_bytes())
    assert main(["policy", "export", str(file), *inputs, "--generations", "1", "--output", str(file)]) == 0
    distilled, _ = read_formula(file).comments
    assert distilled.startswith(f"Distilled from {file} for ")
