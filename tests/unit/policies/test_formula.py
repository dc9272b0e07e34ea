"""Formulas: the text of a linear policy is read as what was written, decides alike, and is refused with its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cli.main import main
from steersman.core.errors import InputError, UsageError
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.formula import (
    HEADER,
    KIND_NAMES,
    MEANINGS,
    MOST_BYTES,
    MOST_TERMS,
    formula_text,
    open_formula,
    terms_of,
)
from steersman.policies.greedy_forecast import forecast_card, forecast_policy
from steersman.policies.heuristics import HEURISTIC_IDS, heuristic
from steersman.policies.kinds import as_linear
from steersman.policies.learned_weights import RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import prepare_policy, write_policy
from steersman.policies.portfolios import blends
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Workload

GROWTH = "filled_idle_change"
EMPTY = "\n".join([HEADER, *(f"{kind}:" for kind in KIND_NAMES), ""])


def policy_of(terms: list[dict[str, float]]) -> LinearPolicy:
    """Return the policy of terms by kind of pod, without a text."""
    weights, rules = np.zeros((POD_KINDS, WEIGHTS)), np.zeros((POD_KINDS, RULE_COUNT))
    for kind, of_kind in enumerate(terms):
        for name, weight in of_kind.items():
            if name == "fgd":
                weights[kind, GPU.node_column("fgd_score")] = weight
            elif name in HEURISTIC_IDS:
                rules[kind, HEURISTIC_IDS[name]] = weight
            else:
                weights[kind, GPU.node_column(name)] = weight
    return LinearPolicy("mine", weights, rules if rules.any() else None)


def written(folder: Path, text: str | bytes) -> str:
    file = folder / "mine.txt"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


SIX_DIGITS = st.floats(-1e12, 1e12).map(lambda each: float(f"{each:.6g}")).filter(bool)
TERMS = st.dictionaries(st.sampled_from(sorted(MEANINGS)), SIX_DIGITS, max_size=MOST_TERMS // POD_KINDS)


@given(st.lists(TERMS, min_size=POD_KINDS, max_size=POD_KINDS))
def test_text_is_read_as_what_was_written(tmp_path_factory: pytest.TempPathFactory, terms) -> None:
    policy = policy_of(terms)
    text = formula_text(policy, ("Fitted to my: cluster # 1.", "Because."))
    read = open_formula(written(tmp_path_factory.mktemp("formula"), text))
    assert read.name == "mine"
    assert read.weights.tobytes() == policy.weights.tobytes()
    rules = [np.zeros((POD_KINDS, RULE_COUNT)) if each.rules is None else each.rules for each in (read, policy)]
    assert rules[0].tobytes() == rules[1].tobytes()
    assert formula_text(read, ("Fitted to my: cluster # 1.", "Because.")) == text
    assert [dict(sorted(each.items())) for each in terms_of(read)] == [dict(sorted(each.items())) for each in terms]


def test_text_explains_the_terms_that_it_has() -> None:
    text = formula_text(blends()[-1])
    for term in (GROWTH, "fgd", "best-fit"):
        assert f"#   {term}: {MEANINGS[term]}" in text
    assert "balanced-allocation" not in text
    assert "one GPU:\n  -0.5 filled_idle_change\n" in text


def some_random_weights() -> LinearPolicy:
    random = np.random.default_rng(3)
    names = ["fgd", "best-fit", "dot-product", *(feature.name for feature in GPU.node[:-1])]
    chosen = [random.choice(names, size=12, replace=False) for _ in range(POD_KINDS)]
    return policy_of([{str(name): float(f"{random.normal():.3g}") for name in each} for each in chosen])


@pytest.mark.parametrize(
    "policy", [forecast_policy(), blends()[-1], some_random_weights()], ids=["plain", "rules", "random"]
)
def test_file_and_text_decide_alike_pod_by_pod(policy: LinearPolicy, tmp_path: Path) -> None:
    whole = embedded("gpushare40")
    workload = Workload("shares", whole.nodes[::40], whole.pods[::40])
    assert any(0 < pod.requests.gpu_milli < 1000 for pod in workload.pods)
    file, text = tmp_path / "file.safetensors", written(tmp_path, formula_text(policy))
    write_policy(file, forecast_card("file"), policy.tensors())
    simulator = Simulator(workload)
    runs = [simulator.run(spec, seed=4, record=True).placements for spec in (policy, str(file), text)]
    assert runs[0] is not None
    assert len({node for node in runs[0].node if node}) > 5
    for other in runs[1:]:
        assert other is not None
        assert (other.node, other.devices) == (runs[0].node, runs[0].devices)


@pytest.mark.parametrize("name", ["best-fit", "gpu-packing", "balanced-allocation"])
def test_a_rule_as_a_text_decides_as_the_rule(name: str, tmp_path: Path) -> None:
    policy = as_linear(heuristic(name))
    assert policy is not None
    simulator, text = Simulator(random_cluster(9, nodes=(10, 20))), written(tmp_path, formula_text(policy))
    runs = [simulator.run(spec, seed=1, record=True).placements for spec in (name, text)]
    assert runs[0] is not None
    assert runs[1] is not None
    assert (runs[0].node, runs[0].devices) == (runs[1].node, runs[1].devices)


def put(number: int, line: str) -> str:
    """Return an empty formula with a line at this number; the kinds stand in lines 2 to 5."""
    lines = EMPTY.splitlines()
    return "\n".join([*lines[: number - 1], line, *lines[number - 1 :], ""])


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("", ("line 1", f"expected '{HEADER}'")),
        ("\n" + EMPTY, ("line 1", f"expected '{HEADER}'")),
        (EMPTY.replace("formula 2", "formula 1"), ("line 1", f"expected '{HEADER}'")),
        (EMPTY.partition("\n")[2], ("line 1", f"expected '{HEADER}'")),
        ("# steersman formula 20\n", ("line 1", f"expected '{HEADER}'")),
        (b"\x80\x81" + bytes(range(256)), ("is not UTF-8 text; expected a formula",)),
        (EMPTY.encode("utf-16"), ("is not UTF-8 text; expected a formula",)),
        (EMPTY + "#" * MOST_BYTES, (f"is larger than {MOST_BYTES} bytes; expected a formula",)),
        (put(2, f"1 {GROWTH}"), ("line 2", f"'1 {GROWTH}' precedes the kinds of pods", "'no GPU:'", "'several GPUs:'")),
        (put(2, "two GPUs:"), ("line 2", "two GPUs: is not a kind of pod", "'one GPU:'")),
        (put(2, ":"), ("line 2", "is not a kind of pod", "'one GPU:'")),
        (put(4, "no GPU:"), ("line 4", "no GPU: occurs twice; expected each kind of pod once")),
        (EMPTY.replace("one GPU:\n", ""), ("one GPU: is missing; expected the line 'one GPU:'",)),
        (put(5, f"1 {GROWTH}\n+2 {GROWTH}"), ("line 6", f"{GROWTH}: occurs twice for one GPU; expected each term ")),
        (put(5, "1 fdg"), ("line 5", "fdg: is not a term; did you mean 'fgd'?")),
        (put(5, "1 filled_idle_chang"), ("line 5", f"is not a term; did you mean '{GROWTH}'?")),
        (put(5, "1 zzzzzzzz"), ("line 5", "zzzzzzzz: is not a term; known: ", "best-fit")),
        (put(5, "fgd_score"), ("line 5", "fgd_score: is not a weight and a term; ")),
        (put(5, "0.5"), ("line 5", "0.5: is not a weight and a term; ")),
        (put(5, "1 fgd_score"), ("line 5", "fgd_score: is not a term; ")),
        (put(5, "1 fgd 2"), ("line 5", "fgd 2: is not a term; ")),
        (put(5, "1 FGD"), ("line 5", "FGD: is not a term; ")),
        (put(5, "one fgd"), ("line 5", "fgd: 'one' is not a number from -1e+12 to 1e+12")),
        (put(5, "1e400 fgd"), ("line 5", "fgd: '1e400' is not a number from -1e+12 to 1e+12")),
        (put(5, "-1.1e12 fgd"), ("line 5", "fgd: '-1.1e12' is not a number from")),
        (put(5, "nan fgd"), ("line 5", "fgd: 'nan' is not a number from")),
        (put(5, "-inf fgd"), ("line 5", "fgd: '-inf' is not a number from")),
        (put(5, "0x10 fgd"), ("line 5", "fgd: '0x10' is not a number from")),
        (put(5, "1,5 fgd"), ("line 5", "fgd: '1,5' is not a number from")),
        (put(5, "1_0 fgd"), ("line 5", "fgd: '1_0' is not a number from")),
        (put(5, f"1 {GROWTH}").replace("\n", "\r\n").replace(GROWTH, "fdg"), ("line 5", "did you mean 'fgd'?")),
    ],
    ids=lambda each: each[-1][:30] if isinstance(each, tuple) else "",
)
def test_what_is_no_formula_is_refused_with_its_line(
    content: str | bytes, problems: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = written(tmp_path, content)
    with raises(InputError, spec, *problems) as error:
        resolve(spec)
    assert "\n" not in str(error.value)
    command = ("simulate", "--workload", "default-small", "--policy", spec, "--output", str(tmp_path / "out"))
    assert main([*command]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_too_many_terms_are_refused(tmp_path: Path) -> None:
    names = sorted(MEANINGS)
    lines = [HEADER]
    for kind in KIND_NAMES:
        lines += [f"{kind}:", *(f"1 {name}" for name in names[: MOST_TERMS // POD_KINDS])]
    assert open_formula(written(tmp_path, "\n".join(lines))).name == "mine"
    with raises(InputError, f"has {MOST_TERMS + 1} terms; expected at most {MOST_TERMS}"):
        open_formula(written(tmp_path, "\n".join([*lines, f"1 {names[-1]}"])))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with raises(InputError, "missing.txt", "cannot be read: No such file or directory"):
        resolve(str(tmp_path / "missing.txt"))
    (tmp_path / "folder.txt").mkdir()
    with raises(InputError, "folder.txt", "cannot be read: Is a directory"):
        resolve(str(tmp_path / "folder.txt"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("  -0.5 ", "\t-5e-1\t"),
        lambda text: text.replace("\n", "  # and so on\n").replace(HEADER + "  # and so on", HEADER),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n\n", "\n\n\n  \n"),
    ],
    ids=["CRLF", "BOM", "tabs", "comments", "no last newline", "blank lines"],
)
def test_editors_change_nothing(change, tmp_path: Path) -> None:
    policy = blends()[-1]
    text = formula_text(policy)
    assert change(text) != text
    assert formula_text(open_formula(written(tmp_path, change(text)))) == text


def test_what_has_no_text_is_refused() -> None:
    layers = ((np.ones((2, 5)), np.zeros(2)), (np.ones((1, 2)), np.zeros(1)))
    with raises(UsageError, "policy greedy-forecast has a network", f"at most {MOST_TERMS} weights"):
        formula_text(replace(forecast_policy(), network=layers))
    many = LinearPolicy("many", np.ones((POD_KINDS, WEIGHTS)), None)
    if many.weights.size <= MOST_TERMS:
        many = replace(many, rules=np.ones((POD_KINDS, RULE_COUNT)))
    with raises(UsageError, "policy many has ", f" weights; expected at most {MOST_TERMS} weights in a formula"):
        formula_text(many)


def test_prepared_formula_decides_as_its_text(tmp_path: Path) -> None:
    """The plugin for kube-scheduler reads policy files alone, which also hold the typical pods."""
    workload = Workload("w", embedded("default").nodes[::40], embedded("default").pods[::40])
    text = Path(written(tmp_path, formula_text(some_random_weights())))
    with policy_path(str(text)) as file:
        write_policy(tmp_path / "prepared.safetensors", *prepare_policy(file, workload))
    specs = (str(text), str(tmp_path / "prepared.safetensors"))
    runs = [Simulator(workload).run(resolve(each), seed=5, record=True) for each in specs]
    placed = [(run.placements.node, run.placements.devices) for run in runs if run.placements is not None]
    assert len(placed) == 2
    assert placed[0] == placed[1]
