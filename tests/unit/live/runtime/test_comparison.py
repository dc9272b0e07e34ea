"""A live cluster is never scheduled blindly: a learned policy decides once it was compared there with every rule."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs
from tests.support.servers.tasks import serving

from steersman.cli.main import main
from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.core.processes import ask_process
from steersman.live.runtime import comparison as live_comparison
from steersman.live.runtime import policy_manager as policy_manager_module
from steersman.live.runtime.comparison import (
    LEAST_PODS,
    RETRY_SECONDS,
    ComparisonBasis,
    PolicyComparison,
    PolicyReloader,
    basis_of,
)
from steersman.live.runtime.policy_manager import PolicyManager, PolicyMetrics
from steersman.policies.base import Need, Policy, renamed
from steersman.policies.greedy_forecast import blend
from steersman.policies.heuristics import HEURISTIC_IDS, HeuristicPolicy, heuristic
from steersman.policies.kinds import kube_scheduler
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import ComparedOn, prepare_policy, read_policy, write_policy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.prepared_policy import prepare_chosen
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import MemberChoice
from steersman.simulation.selection.fitting import FITTED
from steersman.workloads.profile import node_shapes, profile_distance, shapes_digest
from steersman.workloads.workload import Workload

SHARE, GPU_MILLI, MANY = (Requests(4000, 8 << 30, 0, count, milli) for count, milli in ((1, 400), (1, 1000), (4, 1000)))
PODS = tuple(PodClass(each) for each in (SHARE, GPU_MILLI, SHARE, MANY, SHARE, GPU_MILLI) * 5)
CPU_PODS = tuple(PodClass(Requests(1000, 1 << 30)) for _ in range(50))


def some_nodes(count: int = 6, gpus: int = 8) -> list[Node]:
    return [Node(f"n{i}", 96_000, 512 << 30, gpu_count=gpus, gpu_model="A100" if gpus else "") for i in range(count)]


def made_up(choose: Callable[[Policy], Policy], task: tuple[Workload, Policy]) -> MemberChoice:
    """The outcome of a comparison in two draws: what is chosen of the policy that is compared."""
    decides = choose(task[1])
    return MemberChoice(decides, f"{decides.name} decides: as the test says", np.array([2.0, 4.0]))


def second(policy: Policy) -> Policy:
    assert isinstance(policy, PortfolioPolicy)
    return policy.members[1]


first_member = functools.partial(made_up, lambda policy: policy.members[0])
second_member = functools.partial(made_up, second)  # which a process takes
default_of_kube_scheduler = functools.partial(made_up, lambda policy: policy.members[-1])
fitted = functools.partial(made_up, lambda _: renamed(blend(0.03, 0.03), FITTED))
fitted_again = functools.partial(made_up, lambda _: renamed(blend(0.1, 0.0), FITTED))
a_rule = functools.partial(made_up, lambda _: heuristic("best-fit"))
the_policy = functools.partial(made_up, lambda policy: policy)


def failing(_: tuple[Workload, Policy]) -> MemberChoice:
    raise SteersmanError("no luck")


def dying(*_: object) -> Any:
    os._exit(3)


def sleeping(_: tuple[Workload, Policy]) -> MemberChoice:
    time.sleep(600)
    raise AssertionError


Work = Callable[[tuple[Workload, Policy]], MemberChoice]


def in_turn(*works: Work) -> Work:
    """The outcomes of one comparison after the other."""
    left = iter(works)
    return lambda task: next(left)(task)


def second_after(failure: Work, file: Path, task: tuple[Workload, Policy]) -> MemberChoice:
    """Fail until there is a file, which a process sees, too."""
    return (second_member if file.exists() else failure)(task)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def comparison(spec: str | Path = "steersman", **options: Any) -> PolicyComparison:
    return PolicyComparison(PolicyReloader(str(spec)), **options)


def look(made: PolicyComparison, nodes: Sequence[Node] = (), pods: Sequence[PodClass] = PODS) -> bool:
    return asyncio.run(made.compare_if_due(nodes or some_nodes(), pods))


async def work_here(work: Callable[[Any], Any], task: Any, **_: object) -> Any:
    return work(task)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare in this process, where the outcome is what matters; to start one and load modules takes a second."""

    monkeypatch.setattr(live_comparison, "ask_process", work_here)


def scraped(made: PolicyComparison) -> str:
    registry = CollectorRegistry()
    registry.register(PolicyMetrics(made))
    return generate_latest(registry).decode()


def bad_policy(folder: Path) -> Path:
    """What greedy-forecast likes best it likes least."""
    with policy_path("steersman") as path:
        card, arrays = read_policy(path)
    bad = msgspec.structs.replace(card, name="bad", network="linear", members=())
    file = folder / "bad.safetensors"
    write_policy(file, bad, {"weights": -arrays["weights"][0], "rules": -arrays["rules"][0]})
    return file


# Who decides until and after a comparison ---------------------------------------------------------------------------


def test_best_member_decides_after_the_comparison_and_the_rule_before() -> None:
    made = comparison(work=second_member, clock=Clock())
    assert made.choice.policy == resolve("fgd")
    assert 'steersman_policy_info{digest="",member="",name="fgd"} 1.0' in scraped(made)
    assert "difference" not in scraped(made)
    with capture_logs() as log:
        assert look(made)
    portfolio = resolve("steersman")
    assert isinstance(portfolio, PortfolioPolicy)
    member = portfolio.members[1]
    assert isinstance(made.choice.policy, LinearPolicy)
    np.testing.assert_array_equal(made.choice.policy.weights, member.weights)  # type: ignore[union-attr]
    assert (made.choice.policy.name, made.choice.member) == ("steersman", member.name)
    (said,) = [each for each in log if each["event"] == "the policy was compared"]
    assert (said["member"], said["draws"]) == (member.name, 2)
    assert said["evidence"] == made.choice.evidence == f"{member.name} decides: as the test says"
    text = scraped(made)
    assert f'member="{member.name}",name="steersman"}} 1.0' in text
    assert "steersman_policy_comparison_difference_points -3.0" in text
    assert "steersman_policy_comparison_timestamp_seconds 1000.0" in text


@pytest.mark.usefixtures("_at_once")
def test_a_rule_that_is_better_decides_with_a_warning(tmp_path: Path) -> None:
    made = comparison(bad_policy(tmp_path), work=a_rule)
    with capture_logs() as log:
        assert look(made)
    assert made.choice.policy == resolve("best-fit")
    (said,) = [each for each in log if each["log_level"] == "warning"]
    assert (said["rule"], said["policy"]) == ("best-fit", "bad")


@pytest.mark.usefixtures("_at_once")
def test_policy_that_no_rule_clearly_beats_is_accepted(tmp_path: Path) -> None:
    made = comparison(bad_policy(tmp_path), work=the_policy)
    assert look(made)
    assert (made.choice.policy.name, made.choice.version) == ("bad", made.file.version)


@pytest.mark.usefixtures("_at_once")
def test_default_of_kube_scheduler_decides_under_the_name_of_the_portfolio() -> None:
    """Its Services are watched from the start, since it spreads the pods that they select."""
    made = comparison(work=default_of_kube_scheduler)
    assert look(made)
    assert (made.choice.policy.name, made.choice.member) == ("steersman", "kube-default")
    assert kube_scheduler(made.choice.policy) is not None
    assert Need.SELECTORS in made.file.policy.needs


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("outcome", "another"), [(second_member, first_member), (fitted, fitted_again)])
def test_only_another_outcome_of_a_comparison_changes_the_policy(outcome: Work, another: Work) -> None:
    """Weights that were fitted again are another one, though both are called fitted."""
    made = comparison(work=in_turn(outcome, outcome, another))
    assert look(made)
    assert not look(made), "nothing is another"
    former = made.choice
    assert not look(made, some_nodes(12)), "compared again, with the same outcome"
    assert made.choice.is_same(former)
    assert look(made, some_nodes(24))
    assert not made.choice.is_same(former)


@pytest.mark.parametrize(("nodes", "pods"), [(6, 19), (6, 0), (6, -1), (-1, 30)])
def test_empty_comparison_is_reported_once(nodes: int, pods: int) -> None:
    made = comparison(work=failing)
    there = [Node("none", 8000, 1 << 30)] if nodes < 0 else some_nodes(nodes)
    with capture_logs() as log:
        for _ in range(3):
            assert not asyncio.run(made.compare_if_due(there, CPU_PODS if pods < 0 else PODS[:pods]))
    assert [each["event"] for each in log] == ["the policy cannot be compared with rules yet"]
    assert made.choice.policy.name == log[0]["decides"] == "fgd"
    assert made.failures == 0


def test_no_gpu_warning_before_nodes_are_listed() -> None:
    made = comparison(work=failing)
    with capture_logs() as log:
        assert not asyncio.run(made.compare_if_due([], PODS[:30]))
    assert log == []


@pytest.mark.parametrize("spec", ["fgd", "best-fit", "fgd=2,best-fit=1", "kube-default", "random", "lc"])
def test_policy_chosen_by_the_user_is_not_compared(spec: str) -> None:
    made = comparison(spec, work=failing)
    assert made.choice.policy == resolve(spec)
    assert not look(made)
    assert made.failures == 0


def test_unchecked_the_first_member_decides_from_the_first_pod_on() -> None:
    made = comparison(unchecked=True, work=failing)
    portfolio = resolve("steersman")
    assert isinstance(portfolio, PortfolioPolicy)
    assert (made.choice.policy.name, made.choice.member) == ("steersman", portfolio.members[0].name)
    assert not look(made)
    assert made.failures == 0


def test_policy_with_another_objective_is_not_compared_by_gpus(tmp_path: Path) -> None:
    file = bad_policy(tmp_path)
    card, arrays = read_policy(file)
    write_policy(file, msgspec.structs.replace(card, objective="balanced"), arrays)
    with capture_logs() as log:
        made = comparison(file, work=failing)
    assert log[0]["objective"] == "balanced"
    assert made.choice.policy.name == "bad"
    assert not look(made)


# Whatever goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "said"),
    [(failing, "no luck"), (dying, "a worker process died, perhaps for lack"), (sleeping, "took longer than 0.5 s")],
)
def test_failed_comparison_changes_nothing(
    work: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    made = comparison(
        work=functools.partial(second_after, work, tmp_path / "tried"),
        limit=0.5 if work is sleeping else 600.0,
        clock=clock,
    )
    with capture_logs() as log:
        assert not look(made)
    (error,) = [each for each in log if each["log_level"] == "error"]
    assert said in error["error"]
    assert made.choice.policy.name == "fgd"
    assert "steersman_policy_comparison_failures_total 1.0" in scraped(made)
    assert not look(made), "it is not tried again at once"
    assert made.failures == 1
    clock.now += RETRY_SECONDS
    (tmp_path / "tried").touch()
    monkeypatch.setattr(live_comparison, "ask_process", work_here)
    assert look(made)


def test_comparison_process_blocks_nothing_and_ends_with_its_parent() -> None:
    async def story() -> None:
        asked = asyncio.create_task(ask_process(_sleep_and_tell, 600.0, seconds=600.0))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not asked.done()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    began = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - began < 300, "the loop's end did not wait for the process"


def _sleep_and_tell(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


# When it is repeated ------------------------------------------------------------------------------------------------


KINDS = st.dictionaries(
    st.tuples(st.integers(0, 8), st.sampled_from([0, 250, 500, 1000])), st.integers(1, 50), min_size=1, max_size=6
)


@given(KINDS, KINDS)
def test_distances_of_mixes(one: dict[tuple[int, int], int], other: dict[tuple[int, int], int]) -> None:
    a, b = ({kind: n / sum(each.values()) for kind, n in each.items()} for each in (one, other))
    assert profile_distance(a, a) == 0
    assert profile_distance(a, b) == pytest.approx(profile_distance(b, a))
    assert -1e-9 <= profile_distance(a, b) <= 1 + 1e-9
    if not a.keys() & b.keys():
        assert profile_distance(a, b) == pytest.approx(1)


@given(st.integers(1, 50), st.integers(LEAST_PODS, 200), st.randoms(use_true_random=False))
def test_reordered_cluster_needs_no_new_comparison(nodes: int, pods: int, random: Any) -> None:
    there, classes = some_nodes(nodes), [PODS[i % len(PODS)] for i in range(pods)]
    first = basis_of(there, classes)
    random.shuffle(there)
    random.shuffle(classes)
    renamed = [replace(node, name=f"other-{node.name}", labels={"rack": "7"}) for node in there]
    assert first.holds_for(basis_of(renamed, classes))
    assert shapes_digest(node_shapes(renamed)) == shapes_digest(first.nodes)


def test_samples_of_a_profile_match_it_and_others_do_not() -> None:
    random = np.random.default_rng(1)
    pool = np.array([0] * 60 + [1] * 30 + [2] * 10)
    sizes = (SHARE, GPU_MILLI, MANY)

    def drawn(pool: Any, count: int) -> ComparisonBasis:
        return basis_of(some_nodes(), [PodClass(sizes[i]) for i in random.choice(pool, count)])

    reference = drawn(pool, 1000)
    alike = [reference.holds_for(drawn(pool, count)) for count in (20, 50, 200, 900) for _ in range(50)]
    assert np.mean(alike) > 0.97
    others = [reference.holds_for(drawn(np.array([0, 1, 2, 2, 2, 2]), count)) for count in (50, 200, 900)]
    assert not any(others)


def test_changes_that_trigger_a_comparison() -> None:
    base = basis_of(some_nodes(40), PODS)
    assert base.holds_for(basis_of(some_nodes(41), PODS)), "one node of forty is no other cluster"
    assert not base.holds_for(basis_of(some_nodes(46), PODS))
    assert not base.holds_for(basis_of(some_nodes(40, gpus=4), PODS))
    assert not base.holds_for(basis_of(some_nodes(40), PODS * 4)), "so many more pods say more"
    assert not base.holds_for(basis_of(some_nodes(40), [PodClass(MANY)] * 30))
    assert base.holds_for(basis_of(some_nodes(40), [PodClass(MANY)] * (LEAST_PODS - 1))), "too few to tell"


# Files ---------------------------------------------------------------------------------------------------------------


def fitted_to(folder: Path, nodes: Sequence[Node]) -> Path:
    """A prepared file whose card says that it was compared on these nodes."""
    workload = live_comparison.cluster_workload(nodes, PODS)
    with policy_path("steersman") as path:
        card, arrays = prepare_policy(path, workload, resolve("steersman").members[2])
    made = ComparedOn(len(nodes), shapes_digest(node_shapes(nodes)), 8)
    file = folder / "mine.safetensors"
    write_policy(file, msgspec.structs.replace(card, compared_on=made), arrays)
    return file


def test_a_file_that_was_fitted_to_this_cluster_is_not_compared_again(tmp_path: Path) -> None:
    made = comparison(fitted_to(tmp_path, some_nodes()), work=failing)
    with capture_logs() as log:
        assert made.recognise(some_nodes(), ())
    assert log[0]["event"] == "the policy file was compared on an equal cluster when it was written"
    assert made.choice.policy.name == "mine"
    assert not look(made)
    assert not look(made, pods=PODS * 40), "the same mix, of more pods"
    assert made.failures == 0


@pytest.mark.usefixtures("_at_once")
def test_a_file_that_was_fitted_to_another_cluster_is_compared(tmp_path: Path) -> None:
    file = fitted_to(tmp_path, some_nodes())
    others = comparison(file, work=a_rule)
    assert not others.recognise(some_nodes(7), PODS)
    assert others.choice.policy.name == "fgd"
    assert look(others, some_nodes(7))
    assert others.choice.policy.name == "best-fit"
    drifted = comparison(file, work=a_rule)
    assert look(drifted, pods=[PodClass(MANY)] * 100)
    assert drifted.choice.policy.name == "best-fit"


@pytest.mark.usefixtures("_at_once")
def test_a_changed_file_is_compared_while_the_former_one_decides(tmp_path: Path) -> None:
    file = PolicyReloader(str(bad_policy(tmp_path)))
    made = PolicyComparison(file, work=the_policy)
    assert look(made)
    former = made.choice
    card, arrays = read_policy(tmp_path / "bad.safetensors")
    write_policy(tmp_path / "bad.safetensors", card, arrays | {"weights": arrays["weights"] * 2})
    assert file.renewed()
    assert made.choice is former
    assert look(made), "the new one was compared, and decides"
    assert made.choice.version != former.version


# The real comparison, in a real process ------------------------------------------------------------------------------


def test_inverted_policy_is_detected(tmp_path: Path) -> None:
    made = comparison(bad_policy(tmp_path))
    assert look(made)
    assert isinstance(made.choice.policy, HeuristicPolicy)
    assert made.choice.policy.name in HEURISTIC_IDS
    assert f"{made.choice.policy.name} allocates" in made.choice.evidence
    assert "more than bad" in made.choice.evidence


def test_member_of_a_real_comparison_is_the_one_of_every_command() -> None:
    made = comparison("rules")
    assert look(made)
    assert made.choice.policy.name == "rules"
    workload = live_comparison.cluster_workload(some_nodes(), PODS)
    promised = Simulator(workload).member(resolve("rules"))
    assert (made.choice.member, made.choice.evidence) == (promised.policy.name, promised.evidence)


def test_policy_that_is_a_rule_is_not_compared_with_itself(tmp_path: Path) -> None:
    file = tmp_path / "best-fit.safetensors"
    workload = live_comparison.cluster_workload(some_nodes(), PODS)
    with policy_path("rules") as path:
        write_policy(file, *prepare_policy(path, workload, heuristic("best-fit")))
    choice = live_comparison.compare((workload, resolve(str(file))))
    assert choice.evidence.count("best-fit") <= 1


def test_the_member_that_is_prepared_is_the_one_that_does_best(tmp_path: Path) -> None:
    workload = live_comparison.cluster_workload(some_nodes(), PODS)
    portfolio = resolve("steersman")
    member = Simulator(workload).member(portfolio).policy
    with policy_path("steersman") as path:
        card, arrays, evidence = prepare_chosen(path, portfolio, workload)
        with pytest.raises(SteersmanError, match="card, network: is a portfolio; one member"):
            prepare_policy(path, workload)
    assert card.members == (member.name,)
    assert evidence.startswith(f"{member.name} decides: ")
    assert card.network == ("rule" if isinstance(member, HeuristicPolicy) else "linear")
    write_policy(tmp_path / "p.safetensors", card, arrays)
    assert resolve(str(tmp_path / "p.safetensors")).name == "p"
    assert main(["policy", "show", str(tmp_path / "p.safetensors")]) == main(["policy", "show", "steersman"]) == 0
    bare = replace(workload, pods=tuple(replace(pod, pod_class=CPU_PODS[0]) for pod in workload.pods))
    assert Simulator(bare).member(portfolio).policy in portfolio.members


async def test_deciders_are_rebuilt_when_another_policy_decides() -> None:
    """By what follows from the mix, which is there by then: nothing is worked out when a pod waits."""
    policy_manager, state = PolicyManager(PolicyReloader("steersman")), ClusterState(some_nodes())
    policy_manager.comparison = PolicyComparison(policy_manager.file, work=second_member)
    for each in PODS:
        policy_manager.profile.see(each)
    await policy_manager.begin(state)

    def found() -> tuple[str, bool]:
        return policy_manager.deciding.name, policy_manager.profile.leftovers is not None

    before, changed = found(), asyncio.Event()
    async with asyncio.timeout(120), serving(policy_manager.keep(lambda: state, changed.set), changed.is_set):
        assert (before, found()) == (("fgd", True), ("steersman", True))


async def test_doubled_pods_trigger_a_comparison_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of a few controllers came first, and others follow before the next look is due."""
    monkeypatch.setattr(policy_manager_module, "LOOK_SECONDS", 0.001)
    looks: list[int] = []
    policy_manager, state = PolicyManager(PolicyReloader("steersman"), unchecked=True), ClusterState(some_nodes())

    async def look(_: object, classes: tuple[object, ...]) -> bool:
        looks.append(len(classes))
        return False

    monkeypatch.setattr(policy_manager.comparison, "compare_if_due", look)
    policy_manager.profile.see(PODS[0])
    async with serving(policy_manager.keep(lambda: state, lambda: None), lambda: True):
        for many in (10, 15, 20):
            await asyncio.sleep(0.05)
            while len(policy_manager.profile) < many:
                policy_manager.profile.see(PODS[0])
        await asyncio.sleep(0.05)
    assert looks == [1, 10, 20]


async def test_the_profile_follows_the_first_pods_and_every_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_manager_module, "GROWTH_INTERVAL_SECONDS", 0.001)
    renewed: list[int] = []
    policy_manager, state = PolicyManager(PolicyReloader("fgd"), unchecked=True), ClusterState(some_nodes())
    monkeypatch.setattr(policy_manager.comparison, "compare_if_due", not_due)
    await policy_manager.begin(state)
    assert policy_manager.profile.pods == ()
    keeping = policy_manager.keep(lambda: state, lambda: renewed.append(len(policy_manager.profile)))
    async with serving(keeping, lambda: True):
        for many in (1, 2, 3, 4, 7, 8):
            while len(policy_manager.profile) < many:
                policy_manager.profile.see(PODS[min(many, 3)])
            await asyncio.sleep(0.05)
    assert renewed == [1, 2, 4, 8]


async def not_due(*_: object) -> bool:
    return False


async def test_failed_profile_rebuild_keeps_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leftover tables are computed by a process, which the kernel may kill and may have no memory to start."""
    policy_manager, state = PolicyManager(PolicyReloader("steersman"), unchecked=True), ClusterState(some_nodes())
    policy_manager.profile.see(PODS[0])
    await policy_manager.begin(state)
    former = policy_manager.profile.pods
    assert len(former) == 1
    policy_manager.profile.see(PODS[3])
    with monkeypatch.context() as patch, capture_logs() as log:
        patch.setattr(policy_manager_module, "leftover_arrays", dying)
        await policy_manager.begin(state)
        patch.setattr("multiprocessing.context.SpawnProcess.start", no_memory)
        await policy_manager.begin(state)
    assert [each["event"] for each in log] == ["the workload profile could not be rebuilt; the previous one stays"] * 2
    assert ["a worker process died" in log[0]["error"], "no process could be started" in log[1]["error"]] == [True] * 2
    assert policy_manager.profile.pods == former
    await policy_manager.begin(state)
    assert len(policy_manager.profile.pods) == 2


def no_memory(_: object) -> None:
    raise OSError(12, "Cannot allocate memory")


def test_no_comparison_during_a_burst_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    policy_manager, state = PolicyManager(PolicyReloader("steersman")), ClusterState(some_nodes())
    looks: list[int] = []
    coming = iter((30, 30, 30, 0, 1, 20, 0))

    async def look(_: object, classes: tuple[object, ...]) -> bool:
        looks.append(len(classes))
        return False

    async def sleep(seconds: float) -> None:
        if seconds == policy_manager_module.GROWTH_INTERVAL_SECONDS:
            await asyncio.Event().wait()  # the profile is another matter
        more = next(coming, None)
        if more is None:
            raise TimeoutError
        for _ in range(more):
            policy_manager.profile.see(PODS[0])

    monkeypatch.setattr(policy_manager.comparison, "compare_if_due", look)
    monkeypatch.setattr(policy_manager_module.asyncio, "sleep", sleep)
    with pytest.raises(ExceptionGroup):
        asyncio.run(policy_manager.keep(lambda: state, lambda: None))
    assert looks == [0, 90, 91, 111]


def test_a_fitted_policy_decides_from_the_first_decider_on(tmp_path: Path) -> None:
    policy_manager = PolicyManager(PolicyReloader(str(fitted_to(tmp_path, some_nodes()))))
    assert policy_manager.deciding.name == "fgd"
    asyncio.run(policy_manager.begin(ClusterState(some_nodes())))
    assert policy_manager.deciding.name == "mine"
