"""Formulas: what a text means, what is wrong with one, and what its scores and reasons are."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.formulas import random_formula

from steersman.apps.runtime.policy_manager import warm_up
from steersman.apps.service.scoring.explanation import explain_pod
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import FEATURE_COUNT, FEATURE_NAMES, TERM_NAMES, column_name, term_column
from steersman.policies.formulas.formula import HEADER, Formula, FormulaTerm, formula_constants, read_formula
from steersman.policies.formulas.kernels import feature_rows, pod_kinds
from steersman.policies.formulas.policy import FormulaPolicy
from steersman.policies.registry import portable, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.profile import TypicalPod
from steersman.workloads.workload import Workload

TEXT = f"""{HEADER}
# Distilled by hand.
# For tests.

cpu_per_gpu = 8000  # milli-CPU
memory_per_cpu = 4e6
sizes = 250 500 1000
claimed = T4 0.25, Tesla V100 0.1

no GPU:
  -1 idle
a share of a GPU:
one GPU:
  -1.5 short
  +0.25 whole_change  # a comment
several GPUs:
  2e-3 claimed

# the end
"""
KINDS = ((0, 0), (1, 250), (1, 1000), (2, 1000))


def written(folder: Path, text: str = TEXT) -> Path:
    file = folder / "rule.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_text_has_constants_and_terms_by_kind(tmp_path: Path) -> None:
    one_gpu = (FormulaTerm(-1.5, "short"), FormulaTerm(0.25, "whole_change"))
    formula = read_formula(written(tmp_path))
    assert formula.terms == ((FormulaTerm(-1.0, "idle"),), (), one_gpu, (FormulaTerm(0.002, "claimed"),))
    assert (formula.cpu_per_gpu, formula.memory_per_cpu, formula.sizes) == (8000.0, 4e6, (250, 500, 1000))
    assert formula.claimed == {"T4": 0.25, "Tesla V100": 0.1}
    assert formula.comments == ("Distilled by hand.", "For tests.")
    assert [term.line for terms in formula.terms for term in terms] == [11, 14, 15, 17]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (HEADER, "# a recipe", ("line 1", HEADER)),
        ("-1.5 short", "-1.5 sort", ("line 14", "sort", "short")),
        ("-1.5 short", "much short", ("line 14", "short", "'much'")),
        ("-1.5 short", "nan short", ("line 14", "short", "'nan'")),
        ("-1.5 short", "short", ("line 14", "short", "weight")),
        ("one GPU:", "one gpu:", ("line 13", "one gpu", "'one GPU:'")),
        ("one GPU:", "no GPU:", ("line 13", "no GPU", "twice")),
        ("several GPUs:\n  2e-3 claimed", "", ("several GPUs", "missing")),
        ("cpu_per_gpu = 8000", "cpu_per_gpu = 0", ("cpu_per_gpu", "'0'")),
        ("cpu_per_gpu = 8000", "", ("cpu_per_gpu", "missing")),
        ("memory_per_cpu = 4e6", "memory_per_cpu = 4e6\nmemory_per_cpu = 4e6", ("line 7", "memory_per_cpu", "twice")),
        ("memory_per_cpu = 4e6", "memory = 4e6", ("line 6", "memory", "memory_per_cpu")),
        ("sizes = 250 500 1000", "sizes = 500 250", ("sizes", "500 250")),
        ("sizes = 250 500 1000", "sizes = 250 2000", ("sizes", "250 2000")),
        ("claimed = T4 0.25", "claimed = 0.25", ("claimed", "0.25")),
        ("claimed = T4 0.25", "claimed = T4 25", ("claimed", "25")),
        ("no GPU:\n", "+1 idle\nno GPU:\n", ("line 10", "+1 idle")),
        ("  -1 idle\n", "  -1 idle\n" * 22, ("25 terms", "24")),
        ("sizes = 250 500 1000", "", ("sizes", "missing")),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, named: tuple[str, ...]) -> None:
    assert old in TEXT
    text = TEXT.replace("2e-3 claimed", "2e-3 waste") if "sizes" in old and not new else TEXT
    with raises(InputError, "rule.txt", *named):
        read_formula(written(tmp_path, text.replace(old, new, 1)))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"#" * 70_000])
def test_files_that_are_no_texts_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rule.txt"
    file.write_bytes(content)
    with raises(InputError, "rule.txt"):
        read_formula(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with raises(InputError, "rule.txt"):
        resolve(str(tmp_path / "rule.txt"))


def test_constants_are_those_of_the_typical_pods() -> None:
    pods = (
        TypicalPod(4000, 500, 1, ("T4", "V100"), 0.5, memory_bytes=8 << 30),
        TypicalPod(8000, 1000, 2, (), 0.25, memory_bytes=8 << 30),
        TypicalPod(2000, 0, 0, (), 0.25),
    )
    formula = formula_constants(pods)
    # 4.5 CPUs for 0.75 GPUs; half of the 0.25 GPUs of shares for either model.
    assert formula.cpu_per_gpu == 6000.0
    assert formula.memory_per_cpu == pytest.approx((6 << 30) / 4500, rel=1e-5)
    assert formula.sizes == (500, 1000)
    assert formula.claimed == {"T4": pytest.approx(1 / 6, rel=1e-5), "V100": pytest.approx(1 / 6, rel=1e-5)}


def test_of_many_sizes_the_smallest_and_the_most_frequent_stay() -> None:
    pods = tuple(TypicalPod(1000, size, 1, (), size / 1e4) for size in range(50, 1000, 50))
    assert formula_constants(pods).sizes == (50, *range(450, 1000, 50))


def test_every_term_has_a_column() -> None:
    assert [column_name(term_column(name)) for name in TERM_NAMES] == list(TERM_NAMES)
    assert len({term_column(name) for name in TERM_NAMES}) == len(TERM_NAMES)


def features(formula: Formula, state: ClusterState, c: int, n: int) -> dict[str, float]:
    rows = np.zeros((len(state.nodes), 2 * FEATURE_COUNT))
    feature_rows(formula.arrays(state.gpu_types), state.arrays, state.class_arrays, c, rows)
    return {column_name(i): float(value) for i, value in enumerate(rows[n])}


def test_features_are_what_they_are_said_to_be() -> None:
    """A node with GPUs that have 1, 1, 0.6 and 0.1 free; the pod takes 0.5 of the third one."""
    node = Node("n", 16_000, 64 << 30, gpu_count=4, gpu_model="T4")
    state = ClusterState([node])
    c = state.class_id(PodClass(Requests(2000, 4 << 30, gpu_count=1, gpu_milli=500)))
    state.arrays.gpu_free[0] = (1000, 1000, 600, 100)
    state.arrays.free[0, 0] = 10_000
    formula = Formula(((),) * POD_KINDS, 4000.0, float(4 << 20), (250, 500, 1000), {"T4": 0.25})
    found = features(formula, state, c, 0)
    memory = (64 - 4) / 64
    # The free CPU with the pod is 8 cores, worth 2 GPUs; memory would do for 3.84.
    expected = {
        "idle": 2.2,
        "whole": 2.0,
        "parts": 0.2,
        "shared": 2.0,
        "untouched": 0.0,
        "gpus": 4.0,
        "cpu": 2.0,
        "short": 0.2,
        "spare": 0.0,
        "cpu_share": 0.5,
        "memory_share": memory,
        "imbalance": memory - 0.5,
        "dead": 0.2,
        "waste": 0.2,
        "squares": 2.02,
        "idle_idle": 4.84,
        "whole_whole": 4.0,
        "cpu_cpu": 4.0,
        "idle_cpu": 4.4,
        "whole_cpu": 4.0,
        "short_short": 0.04,
        "spare_spare": 0.0,
        "claimed": 0.55,
    }
    assert set(expected) == set(FEATURE_NAMES)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    changes = {"idle_change": -0.5, "whole_change": 0.0, "short_change": 0.0, "squares_change": -0.35}
    # Without the pod: 10 cores are worth 2.5 GPUs, 0.2 less than the 2.7 that are idle; 0.1 of the third GPU is waste.
    changes |= {"waste_change": 0.0, "dead_change": 0.1, "cpu_change": -0.5, "gpus_change": 0.0}
    assert {name: found[name] for name in changes} == pytest.approx(changes, abs=1e-12)


def test_scarce_memory_counts_as_cpu_does() -> None:
    state = ClusterState([Node("n", 16_000, 8 << 30, gpu_count=1)])
    c = state.class_id(PodClass(Requests(0, 0)))
    formula = Formula(((),) * POD_KINDS, 4000.0, float(1 << 20))
    assert features(formula, state, c, 0)["cpu"] == 2.048
    assert features(Formula(((),) * POD_KINDS, 4000.0), state, c, 0)["cpu"] == 4.0


def test_kinds_are_by_devices_and_milli() -> None:
    state = ClusterState([Node("n", 1000, 0, gpu_count=4)])
    for count, milli in KINDS:
        state.class_id(PodClass(Requests(1, 0, gpu_count=count, gpu_milli=milli)))
    assert pod_kinds(state.class_arrays).tolist() == [0, 1, 2, 3]


def rule(name: str, weight: float = 1.0) -> FormulaPolicy:
    return FormulaPolicy("rule", Formula(((FormulaTerm(weight, name),),) * POD_KINDS, 4000.0))


def test_the_highest_score_wins_in_a_simulation() -> None:
    """Whoever likes few free GPUs goes to the small node first, whoever likes many to the large one."""
    nodes = (Node("large", 16_000, 1 << 34, gpu_count=4), Node("small", 16_000, 1 << 34, gpu_count=2))
    pods = tuple(Pod(f"p{i}", PodClass(Requests(1000, 1 << 20, gpu_count=1, gpu_milli=1000))) for i in range(2))
    for weight, expected in ((-1.0, ["small", "small"]), (1.0, ["large", "large"])):
        run = Simulator(Workload("w", nodes, pods)).run(rule("idle", weight), protocol="arrivals", record=True)
        assert run.placements is not None
        assert run.placements.node == expected


def test_reasons_are_the_lines_of_the_file(tmp_path: Path) -> None:
    nodes = (Node("a", 16_000, 1 << 34, gpu_count=4), Node("b", 64_000, 1 << 34, gpu_count=4))
    pod = Pod("p", PodClass(Requests(8000, 1 << 20, gpu_count=1, gpu_milli=1000)))
    policy = resolve(str(written(tmp_path, TEXT.replace("memory_per_cpu = 4e6", "memory_per_cpu = 0"))))
    explanation = explain_pod(policy, Workload("w", nodes, (pod,)), 0)
    assert (explanation.policy, explanation.node, explanation.compared_with) == ("rule", "b", "a")
    # 3 GPUs are idle; 8 cores that are left on `a` are worth one.
    (reason,) = explanation.features
    assert (reason.name, reason.value, reason.other) == ("line 14: -1.5 short", 0.0, 2.0)
    assert (reason.contribution, reason.points, explanation.score) == (3.0, 100.0, -0.25)


def test_a_live_decider_follows_a_node_with_a_new_model(tmp_path: Path) -> None:
    policy = resolve(str(written(tmp_path)))
    warm_up(policy)
    state = ClusterState([Node("a", 16_000, 1 << 34, gpu_count=2, gpu_model="P4")])
    c = state.class_id(PodClass(Requests(1000, 1 << 20, gpu_count=2, gpu_milli=1000)))
    decider = Decider(ClusterView(state), policy)
    first = decider.choose(PodQuery(c))
    assert first is not None
    assert state.nodes[first.slot] == state.nodes[0]
    decider.changed(state.add_node(Node("b", 16_000, 1 << 34, gpu_count=4, gpu_model="T4")))
    second = decider.choose(PodQuery(c))
    # Two GPUs stay idle on `b`, and T4 is claimed: 2e-3 times 2 times 0.25.
    assert second is not None
    assert (second.slot, second.devices) == (1, 0b11)


def test_workers_get_the_policy_instead_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    for spec in (str(file), f"{file}+shortest"):
        policy = portable(spec)
        assert isinstance(policy, FormulaPolicy)
    assert policy.name == "rule+shortest"


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_read_as_the_same_formula(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    formula = random_formula(random, int(random.integers(0, 7)))
    found = read_formula(written(tmp_path, formula.text()))
    assert found.terms == formula.terms
    # Constants that no term reads are left out.
    assert found.text() == formula.text()


def test_a_formula_of_the_largest_export_has_at_most_30_lines() -> None:
    """Five terms of each kind, without comments."""
    names = ("whole_change", "short", "dead", "waste_change", "claimed")
    terms = tuple(FormulaTerm(-1.23, name) for name in names)
    formula = Formula((terms,) * POD_KINDS, 12_000.0, 4e6, (220, 500, 1000), {"T4": 0.1, "V100": 0.2}, ("Why.",))
    lines = [line.partition("#")[0].strip() for line in formula.text().splitlines()]
    assert len([line for line in lines if line]) <= 30
