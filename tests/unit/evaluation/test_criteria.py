"""Objectives decide a comparison: order, sentence, columns, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises

import steersman
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.evaluation.criteria import check_objectives, criterion, parse_objectives
from steersman.evaluation.evaluation import Evaluation
from steersman.objectives.registry import OBJECTIVES
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.workload import Workload

GIB = 1 << 30
CPU_ONLY = Workload(
    "cpu",
    tuple(Node(f"n{i}", 8000, 32 * GIB, pods=110) for i in range(4)),
    tuple(Pod(f"p{i}", PodClass(Requests(1000, GIB))) for i in range(12)),
)
GPUS = embedded(SMALL)
POLICIES = ("kube-default", "least-allocated", "most-allocated")


def evaluated(objective: str | Sequence[str], workload: Workload = CPU_ONLY) -> Evaluation:
    return steersman.evaluate(workload, POLICIES, seeds=5, protocol="arrivals", objective=objective)


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        ("balance", "least-allocated"),
        ("most-allocated", "most-allocated"),
        ("balance=1,most-allocated=9", "most-allocated"),
        ("balance=9,most-allocated=1", "least-allocated"),
    ],
)
def test_objective_determines_headline_and_order(objective: str, best: str) -> None:
    headline = evaluated(objective).comparisons[0].headline
    order = headline.order("cpu")
    assert headline.means("cpu")[best] == headline.means("cpu")[order[0]]
    assert headline.criterion.phrase in headline.sentence()
    assert headline.columns("cpu")[0].title == headline.criterion.title


def test_several_objectives_are_all_compared_and_the_first_decides() -> None:
    headline = evaluated("most-allocated,balance").comparisons[0].headline
    assert headline.order("cpu")[0] == "most-allocated"
    first, second = headline.sentences()
    assert "nodes in use" in first
    assert "standard deviation of CPU use" in second
    titles = [column.title for column in headline.columns("cpu")]
    assert titles[0].startswith("Nodes in use")
    assert any(title.startswith("Standard deviation") for title in titles)


def test_without_an_objective_nothing_changes() -> None:
    default = steersman.evaluate(CPU_ONLY, POLICIES, seeds=5, protocol="arrivals").comparisons[0].headline
    assert default.criteria == ()
    assert default.primary == "cpu_allocation_percent"
    assert "allocates" in default.sentence()
    assert not any("GPU" in column.title for column in default.columns("cpu"))


def test_custom_objectives_are_compared_by_mean_reward() -> None:
    headline = evaluated("tests.support.extensions.made_up_objective:EVEN").comparisons[0].headline
    assert headline.primary.startswith("reward_mean_")
    assert all(abs(value) < 1e9 for value in headline.means("cpu").values())


def test_reports_show_the_requested_objectives(tmp_path) -> None:
    evaluation = evaluated(["balance", "most-allocated=1,least-allocated=1"])
    evaluation.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "standard deviation of CPU use" in page
    assert "What the policies are compared by." in page
    assert "GPU" not in page.split("<main>")[1].split("How this was measured")[0]
    assert "reward_mean_most-allocated=1,least-allocated=1" in (tmp_path / "out" / "metrics.csv").read_text()


@pytest.mark.parametrize(
    ("objective", "workload", "protocol", "named"),
    [
        ("fragmentation", CPU_ONLY, "arrivals", ("fragmentation", "no GPU", "balance")),
        ("allocation", CPU_ONLY, "arrivals", ("allocation", "no GPU")),
        ("locality", CPU_ONLY, "arrivals", ("locality", "owner")),
        ("latency-aware", CPU_ONLY, "arrivals", ("latency-aware", "--protocol latency")),
        ("waiting-time", CPU_ONLY, "arrivals", ("waiting-time", "arrivals", "timed")),
        ("waiting-time=1,balance=2", GPUS, "inflation", ("waiting-time", "inflation", "timed")),
        ("no-such", CPU_ONLY, "arrivals", ("no-such", "balance")),
        ("balance,", CPU_ONLY, "arrivals", ("''", "balance")),
        ("balance,balance", CPU_ONLY, "arrivals", ("balance", "twice")),
        ("balance=0,most-allocated=1", CPU_ONLY, "arrivals", ("balance", "above 0")),
        ("balance=1,most-allocated", CPU_ONLY, "arrivals", ("most-allocated", "above 0")),
    ],
)
def test_undefined_combination_is_rejected(objective: str, workload: Workload, protocol: Any, named: list[str]) -> None:
    with raises(UsageError, *named):
        check_objectives(parse_objectives([objective]), (workload,), (protocol,))


def test_protocols_without_waiting_are_left_out() -> None:
    waits = parse_objectives(["waiting-time,balance"])
    assert check_objectives(waits, (GPUS,), ("timed", "inflation")) == ("timed",)
    assert check_objectives(parse_objectives(["balance"]), (GPUS,), ("timed", "inflation")) == ("timed", "inflation")


@given(st.lists(st.sampled_from(sorted(OBJECTIVES)), min_size=1, max_size=4, unique=True))
def test_every_objective_has_a_criterion_in_every_protocol(names: list[str]) -> None:
    for each in parse_objectives([",".join(names)]):
        for protocol in ("inflation", "arrivals", "timed"):
            found = criterion(each, protocol)  # type: ignore[arg-type]
            assert found.name
            assert found.title
            assert found.digits >= 1
    mixed = parse_objectives([",".join(f"{name}=1" for name in names)])
    assert [each.name for each in mixed] == [",".join(f"{name}=1" for name in names)]


def test_the_bound_is_shown_only_beside_gpu_allocation() -> None:
    pytest.importorskip("scipy")
    for objective, shown in (("allocation", True), ("balance", False)):
        evaluation = steersman.evaluate(
            replace(GPUS, pods=GPUS.pods[:150]), ["fgd"], seeds=1, protocol="arrivals", bound=True, objective=objective
        )
        assert (evaluation.comparisons[0].headline.bounds is not None) == shown
