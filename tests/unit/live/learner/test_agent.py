"""An agent that decides for a scheduler over a pipe: rewards, late answers, its death, its end and its return."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.networks import network_file
from tests.support.servers.fake_prometheus import CPU, LATENCY, Told
from tests.unit.docs.test_features import parse

from steersman.agents.actor_critic import ActorCritic
from steersman.agents.base import Agent
from steersman.agents.dqn import DQN
from steersman.cli.options.live_learning import LiveLearning, live_plan_of
from steersman.cluster.model import NO_LIMITS, LatencyLimits, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.envs.workload import WorkloadOptions
from steersman.live.learner import agent_process
from steersman.live.learner.agent_process import OtherSchedulers, run_agent
from steersman.live.learner.environment import LiveEnv
from steersman.live.learner.plan import AgentOptions, LivePlan, build_agent, init_run, live_plan
from steersman.live.scheduler.agent_link import ABSENT, ANSWERED, INFEASIBLE, LATE, AgentLink, DecisionOutcome, Question
from steersman.live.scheduler.agent_policy import AgentPolicy, AgentScorer, AgentSettings, agent_policy
from steersman.objectives import registry
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.node_metrics import Telemetry
from steersman.policies.policy_file import read_policy
from steersman.policies.registry import resolve
from steersman.training.network import NetworkPlan
from steersman.training.plans import PlanOptions, make_plan
from steersman.training.run import RunEndedError
from steersman.workloads.formats.openb import embedded

NODES = tuple(Node(f"node-{i}", 8000, 32 << 30, pods=110) for i in range(6))
POD = PodClass(Requests(cpu_milli=500, memory_bytes=1 << 30))
LIMITED = LatencyLimits(soft=35, hard=100)


def plan_of(algorithm: str = "dqn", network: str = "mlp", **settings: object) -> LivePlan:
    options = AgentOptions(algorithm, network, (8,) if network != "linear" else None)
    plan = live_plan("steersman", options=options)
    return plan.with_settings({"batch_size": 16, **settings} if algorithm != "actor-critic" else settings)


class Scheduler:
    """The decisions of a scheduler with an agent, without a cluster."""

    def __init__(
        self,
        plan: LivePlan,
        link: AgentLink | None,
        fallback: str = "least-allocated",
        telemetry: Telemetry | None = None,
    ) -> None:
        settings = AgentSettings(plan.algorithm, plan.find_view(), registry.resolve(plan.objective), link)
        self.link = link
        self.policy: AgentPolicy = agent_policy(settings, resolve(fallback), telemetry)
        self.state = ClusterState(NODES)
        self.decider = Decider(ClusterView(self.state, telemetry=telemetry), self.policy)
        self.slots: list[int] = []
        self.running: list[str] = []

    def place(self, count: int) -> None:
        """Place pods; all end when the cluster is half full."""
        for _ in range(count):
            name = f"pod-{len(self.slots)}"
            c = self.ask(name)
            choice = self.decider.choose(PodQuery(c))
            assert choice is not None
            self.state.place(name, c, choice.slot, choice.devices)
            self.decider.changed(choice.slot)
            self.slots.append(choice.slot)
            self.running.append(name)
            if len(self.running) == 48:
                self.clear()

    def ask(self, name: str, limits: LatencyLimits = NO_LIMITS) -> int:
        """Ask about a pod; its class."""
        c = self.state.class_id(POD)
        if self.decider.asks_first:
            asyncio.run(self.decider.ask(PodQuery(c, limits=limits, pod=Pod(name, POD, latency=limits))))
        return c

    def clear(self) -> None:
        for name in self.running:
            self.decider.changed(self.state.remove(name).slot)
        self.running.clear()
        self.policy.transition.has_ended = True


@contextmanager
def at_work(plan: LivePlan, folder: Path, others: OtherSchedulers | None = None) -> Iterator[Scheduler]:
    """A scheduler with an agent that is there, in a thread; a process would import torch once more."""
    live_run = init_run(plan, folder, NODES)
    here, there = multiprocessing.Pipe()

    def work() -> None:
        try:
            run_agent(plan, live_run, there, others)
        finally:
            there.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    link = AgentLink(here, asks_fallback=plan.asks_fallback, seconds=20.0)
    try:
        scheduler = Scheduler(plan, link)
        deadline = time.monotonic() + 900  # it imports torch, and other tests may keep all cores busy
        while not link.results[ANSWERED]:
            assert time.monotonic() < deadline
            scheduler.place(1)
            time.sleep(0.02)
        yield scheduler
    finally:
        link.close()
        thread.join(120)
        assert not thread.is_alive()


def metrics_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


@pytest.mark.parametrize("algorithm", ["dqn", "actor-critic", "ppo"])
@pytest.mark.parametrize("network", ["mlp", "gnn"])
def test_every_algorithm_decides_learns_and_writes_a_policy(tmp_path, algorithm, network):
    plan = plan_of(algorithm, network)
    with at_work(plan, tmp_path / "run") as scheduler:
        scheduler.place(150)
    assert scheduler.link.results[LATE] == 0
    assert scheduler.link.results[ANSWERED] >= 150
    card, _ = read_policy(tmp_path / "run" / "policy.safetensors")
    assert (card.algorithm, card.network, card.protocol, card.objective) == (algorithm, network, "live", "balance")
    assert 100 <= card.steps <= 151
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["max_nodes"], said["algorithm"], said["network"]["name"]) == (64, algorithm, network)
    rows = metrics_of(tmp_path / "run")
    assert {"reward", "cumulative_reward", "node_variance", "loss" if algorithm == "dqn" else "policy_loss"} <= rows[
        -1
    ].keys()
    assert float(rows[-1]["episodes"]) >= 2
    decider = Decider(ClusterView(ClusterState(NODES)), resolve(str(tmp_path / "run" / "policy.safetensors")))
    assert decider.choose(PodQuery(decider.state.class_id(POD))) is not None


def test_reward_is_of_the_state_after_each_placement(tmp_path):
    plan = plan_of(update_every=1)
    with at_work(plan, tmp_path / "run") as scheduler:
        rewards, before = [], len(scheduler.slots)
        for _ in range(40):
            scheduler.place(1)
            used = 1.0 - scheduler.state.arrays.free[:, 0] / scheduler.state.arrays.allocatable[:, 0]
            rewards.append(1.0 - 2.0 * used.std() / (used.std() + 1.0) if scheduler.running else math.nan)
        assert before < 48
        scheduler.place(1)
    rows = metrics_of(tmp_path / "run")
    seen = [float(row["reward"]) for row in rows][-40:]
    known = [(one, other) for one, other in zip(seen, rewards, strict=True) if not math.isnan(other)]
    assert len(known) >= 39
    np.testing.assert_allclose(*zip(*known, strict=True), rtol=1e-6)


def test_untrained_agent_improves(tmp_path):
    plan = plan_of(update_every=2, gamma=0.0, epsilon_decay=0.99, learning_rate=3e-3)
    with at_work(plan, tmp_path / "run") as scheduler:
        scheduler.place(1500)
    rows = [float(row["reward"]) for row in metrics_of(tmp_path / "run")]
    assert np.mean(rows[-200:]) > np.mean(rows[:100]) + 0.02


def test_agent_reports_ready_after_its_imports(tmp_path, monkeypatch):
    here, there = multiprocessing.Pipe()
    was_ready: list[bool] = []
    monkeypatch.setattr(agent_process, "summary_writer", lambda: was_ready.append(here.poll()))
    plan = plan_of()
    here.send(None)  # no question comes
    with pytest.raises(RunEndedError):
        run_agent(plan, init_run(plan, tmp_path / "run", NODES), there)
    assert (was_ready, here.poll()) == ([False], True)


class SlowAgent:
    """The other end of a link, by hand. It has a minute for an answer, which takes it no time, or none at all."""

    def __init__(self, *, asks_fallback: bool = False, has_time: bool = True) -> None:
        here, self.connection = multiprocessing.Pipe()
        self.link = AgentLink(here, asks_fallback=asks_fallback, seconds=60.0 if has_time else 0.0)

    def send(self, message: int | None) -> None:
        """Send a message, and wait until the link has it."""
        self.connection.send(message)
        self.link._pending.result(60.0)

    @contextmanager
    def answering(self, slot: int, questions: list[Question] | None = None) -> Iterator[None]:
        """Answer a question that is asked in the block, in time, in a thread."""

        def answer() -> None:
            question = self.connection.recv()
            if questions is not None:
                questions.append(question)
            self.connection.send(slot)

        self.link.seconds = 60.0
        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


def with_slow_agent(*, has_time: bool = True) -> tuple[SlowAgent, Scheduler]:
    """An agent that is ready, and its scheduler."""
    other = SlowAgent(has_time=has_time)
    other.send(None)
    return other, Scheduler(plan_of(), other.link)


def test_rule_decides_until_the_agent_is_ready():
    other = SlowAgent()
    scheduler, rule = Scheduler(plan_of(), other.link), Scheduler(plan_of(), None)
    scheduler.place(20)
    rule.place(20)
    assert scheduler.slots == rule.slots
    assert other.link.results[ABSENT] == 20
    assert not other.connection.poll(), "nothing is asked"


def test_late_answer_is_dropped_and_the_agent_learns_the_outcome_of_its_pod():
    other, scheduler = with_slow_agent(has_time=False)
    rule, questions = Scheduler(plan_of(), None), list[Question]()
    scheduler.place(3)  # the rule fills nodes 0, 1 and 2; the agent was asked about the first pod alone
    rule.place(3)
    assert scheduler.slots == rule.slots
    assert other.link.results == {ANSWERED: 0, INFEASIBLE: 0, LATE: 1, ABSENT: 2}, "one question at a time"
    assert other.connection.recv().previous is None
    other.send(5)
    with other.answering(4, questions):
        scheduler.place(1)
    assert scheduler.slots[-1] == 4
    assert other.link.results[ANSWERED] == 1
    assert questions[0].previous.slot == 0


def test_pod_deleted_during_a_question_is_dropped():
    other, scheduler = with_slow_agent()
    questions = list[Question]()
    for slot, is_deleted in ((5, True), (4, False), (3, True), (2, False)):
        with other.answering(slot, questions):
            scheduler.ask("deleted") if is_deleted else scheduler.place(1)
    assert scheduler.slots == [4, 2]
    first, second, third, fourth = (question.previous for question in questions)
    assert first is None
    assert second.reward == 0.0, "no pod was placed yet"
    assert (second.slot, third.slot, fourth.slot) == (-1, 4, -1), "nothing is learned from a pod that was not placed"


def test_outcome_is_matched_to_its_own_pod():
    other, scheduler = with_slow_agent(has_time=False)
    scheduler.ask("deleted")  # the answer is late, and the pod goes meanwhile
    scheduler.place(1)  # the agent is still busy: the rule decides, and nobody asks
    other.connection.recv()
    other.send(5)
    questions: list[Question] = []
    with other.answering(4, questions):
        scheduler.place(1)
    previous = questions[0].previous
    assert (previous.slot, previous.reward) == (-1, 0.0), "nothing was placed for the agent yet"


def test_event_loop_runs_while_the_agent_decides():
    other, scheduler = with_slow_agent()

    async def ask() -> None:
        async def think() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            other.connection.send(4)

        thinking = asyncio.create_task(think())
        await scheduler.decider.ask(PodQuery(scheduler.state.class_id(POD), pod=Pod("pod", POD)))
        assert thinking.done()

    asyncio.run(ask())
    assert other.link.results[LATE] == other.link.results[ABSENT] == 0


def test_infeasible_answer_is_replaced_by_the_rule():
    other, scheduler = with_slow_agent()
    with other.answering(3):
        c = scheduler.ask("pod")
    scheduler.state.remove_node("node-3")
    scheduler.decider.changed(3)
    choice = scheduler.decider.choose(PodQuery(c))
    assert choice is not None
    assert choice.slot == 0
    assert other.link.results == {ANSWERED: 0, INFEASIBLE: 1, LATE: 0, ABSENT: 0}


@pytest.mark.parametrize("wrong", [17, -1])
def test_empty_slot_is_an_invalid_answer(wrong):
    other, scheduler = with_slow_agent()
    with other.answering(wrong):
        scheduler.place(1)
    assert scheduler.slots == [0]
    assert other.link.results == {ANSWERED: 0, INFEASIBLE: 1, LATE: 0, ABSENT: 0}


@pytest.mark.parametrize("fallback", ["least-allocated", "random", "kube-default", "la"])
@pytest.mark.parametrize("is_ready", [False, True])
def test_decision_with_a_hard_limit_counts_once(fallback, is_ready):
    other, told = SlowAgent(asks_fallback=True), Told()
    told.tell(LATENCY, {node.name: 20.0 for node in NODES})
    told.tell(CPU, {node.name: 10.0 for node in NODES})
    scheduler = Scheduler(plan_of(), other.link, fallback, told)
    if is_ready:
        other.send(None)
    with other.answering(-1) if is_ready else nullcontext():
        c = scheduler.ask("pod", LIMITED)
    assert scheduler.decider.choose(PodQuery(c, limits=LIMITED)) is not None
    assert told.limits == {"kept safely": 1}


def test_dead_agent_delays_no_pod():
    other, scheduler = with_slow_agent()
    other.connection.close()
    scheduler.place(31)
    assert len(scheduler.slots) == 31
    assert other.link.results == {ANSWERED: 0, INFEASIBLE: 0, LATE: 0, ABSENT: 31}
    other.link.close()


def test_run_resumes_where_it_ended(tmp_path):
    plan, folder, rows = plan_of(), tmp_path / "run", 0
    for session in (1, 2, 3):
        if session == 3:  # the checkpoint alone is enough
            for name in ("policy.safetensors", "run.json"):
                (folder / name).unlink()
        with at_work(plan, folder) as scheduler:
            scheduler.place(100)
        assert 95 * session <= read_policy(folder / "policy.safetensors")[0].steps <= 101 * session + 1
        assert (folder / "log.txt").read_text().count("continuing at iteration") == session - 1
        assert json.loads((folder / "run.json").read_text())["max_nodes"] == 64
        assert rows < (rows := len(metrics_of(folder)))
    with raises(SteersmanError, str(folder / "checkpoint.safetensors"), "seed", "2", "1"):
        init_run(replace(plan, seed=2), folder, NODES)
    many = tuple(replace(NODES[0], name=f"n{i}") for i in range(100))
    with raises(SteersmanError, str(folder / "checkpoint.safetensors"), "64", "100"):
        init_run(plan, folder, many)


def test_files_before_the_first_checkpoint_are_kept(tmp_path):
    plan, folder = plan_of(), tmp_path / "run"
    init_run(plan, folder, NODES).lock.close()
    for name in ("metrics.csv", "policy.safetensors"):
        (folder / name).write_text("of before")
    init_run(replace(plan, seed=2), folder, NODES).lock.close()
    assert (folder / "metrics.csv.1").read_text() == (folder / "policy.safetensors.1").read_text() == "of before"
    assert json.loads((folder / "run.json.1").read_text())["seed"] == 1
    assert json.loads((folder / "run.json").read_text())["seed"] == 2


def test_locked_run_folder_is_left_alone(tmp_path):
    plan, folder = plan_of(), tmp_path / "run"
    with init_run(plan, folder, NODES).lock:
        (folder / "metrics.csv").write_text("of the first")
        with raises(SteersmanError, str(folder), "in use by process"):
            init_run(plan, folder, NODES)
        assert sorted(path.name for path in folder.iterdir()) == ["metrics.csv", "run.json", "run.lock"]


def test_folder_of_another_training_is_rejected(tmp_path):
    (tmp_path / "run.json").write_text('{"algorithm": "dqn"}')
    (tmp_path / "policy.safetensors").write_text("of steersman train")
    with raises(SteersmanError, str(tmp_path), "name a new folder"):
        init_run(plan_of(), tmp_path, NODES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.safetensors", "run.json"]


def test_the_teacher_is_the_rule(tmp_path):
    plan = plan_of(use_heuristic=True, prefill=30)
    with at_work(plan, tmp_path / "run") as scheduler:
        rule = Scheduler(plan, None)
        rule.place(len(scheduler.slots))
        assert scheduler.slots == rule.slots, "the prefill is the rule's"


class AlternatingScheduler:
    """The scheduler's end of a pipe, by turns taking the agent's answer, rewarded 1, and another node, rewarded 100."""

    def __init__(self, plan: LivePlan, *, closed_slot: int | None = None) -> None:
        decider = Scheduler(plan, None).decider
        query = PodQuery(decider.state.class_id(POD))
        nodes = decider.candidates(query)
        scorer = decider.live.scorer
        assert isinstance(scorer, AgentScorer)
        self.seen, self.outcome = scorer.observe(query, nodes), scorer.outcome(query, nodes, 0)
        if closed_slot is not None:
            self.seen["mask"][closed_slot] = 0
        self.previous: DecisionOutcome | None = None
        self.count = 0
        self.agent: Agent | None = None

    def send(self, answer: int | None) -> None:
        if answer is None:
            return
        slot, reward = answer, 1.0
        self.count += 1
        if self.count % 2 == 0:
            assert self.agent is not None
            sample, capacity = self.agent.sample, self.agent.sample.observation["mask"].shape[1]
            offered = np.arange(capacity) if sample.slots is None else sample.slots[0]
            offered = offered[sample.observation["mask"][0] > 0]
            slot, reward = next(slot for slot in range(len(NODES)) if slot not in offered), 100.0
        self.previous = replace(self.outcome, slot=slot, reward=reward)

    def recv(self) -> Question:
        return Question(self.seen, len(NODES) - 1, self.previous)


@pytest.mark.parametrize(
    ("max_nodes", "candidates", "closed_slot"),
    [
        pytest.param(4, 0, None, id="cut off"),
        pytest.param(64, 3, None, id="not sampled"),
        pytest.param(64, 0, 2, id="infeasible when it was observed"),
    ],
)
@pytest.mark.parametrize("algorithm", ["dqn", "actor-critic", "ppo"])
def test_nothing_is_learned_from_a_node_that_the_agent_was_not_offered(algorithm, max_nodes, candidates, closed_slot):
    plan = plan_of(algorithm, candidates=candidates, gamma=0.5)
    scheduler = AlternatingScheduler(plan, closed_slot=closed_slot)
    objective = registry.resolve(plan.objective)
    env = LiveEnv(cast("Connection", scheduler), plan.find_view(), max_nodes, objective)
    scheduler.agent = learner = build_agent(plan, env, env.fallback_action)
    metrics = [learner.iterate() for _ in range(4)]
    if isinstance(learner, DQN):
        assert set(learner.replay.arrays()["reward"]) == {1.0}
    else:
        assert isinstance(learner, ActorCritic)
        played = learner._play()
        _, counts = np.unique(played.targets, return_counts=True)
        assert played.targets.max() < 50.0
        assert len(played.rows) == learner.config.rollout
        # Each of these decisions is followed by one that is left out, so none has a further reward in its target.
        assert candidates or max(counts) == len(played.rows)
    assert sum(len(each["actions"]) for each in metrics) >= 4, "what was taken is reported all the same"


def test_fallback_choice_beyond_capacity_is_not_imitated():
    plan = plan_of(use_heuristic=True, prefill=4, candidates=2)
    scheduler = AlternatingScheduler(plan)
    env = LiveEnv(cast("Connection", scheduler), plan.find_view(), 4, registry.resolve(plan.objective))
    scheduler.agent = learner = build_agent(plan, env, env.fallback_action)
    assert learner.sample.to_slots(learner.teacher_actions()).tolist() == [0]


@pytest.mark.parametrize("algorithm", ["dqn", "actor-critic", "ppo"])
@pytest.mark.parametrize(
    ("objective", "gamma"),
    [("balance", 0.0), ("locality", 0.0), ("allocation", 0.99), ("balance=1,allocation=0.5", 0.99)],
)
def test_default_discount_is_that_of_the_objective_live_and_in_training(algorithm, objective, gamma):
    assert live_plan("steersman", options=AgentOptions(algorithm, objective=objective)).config.gamma == gamma
    pods = WorkloadOptions((embedded("default-small"),), objective)
    assert make_plan(pods, "p", algorithm, PlanOptions()).config.gamma == gamma
    assert make_plan(pods, "p", algorithm, PlanOptions(settings={"gamma": 0.5})).config.gamma == 0.5


def test_options_of_aamls_agents_are_options_of_the_command(tmp_path):
    words = "--gamma 0.9 --learning-rate 0.002 --replay-size 2000 --batch-size 99 --update-every 25".split()  # noqa: SIM905
    words += ["--target-update-every", "2"]
    schedule = ["schedule", "--learn", str(tmp_path / "run"), "--algorithm", "dqn", *words]
    parse(schedule)
    declared = {
        name[2:].replace("-", "_"): json.loads(value) for name, value in zip(words[::2], words[1::2], strict=True)
    }
    learning = LiveLearning(learn=tmp_path / "run", algorithm="dqn", hidden="64,64")
    config = live_plan_of(learning, declared, None, "steersman", has_telemetry=False).config
    assert {name: getattr(config, name) for name in declared} == declared
    learning = LiveLearning(learn=tmp_path / "run", algorithm="actor-critic")
    rates = {"actor_learning_rate": 0.002, "critic_learning_rate": 0.004}
    assert live_plan_of(learning, rates, None, "steersman", has_telemetry=False).config.critic_learning_rate == 0.004
    with raises(UsageError, "--actor-learning-rate is not an option of dqn"):
        live_plan_of(replace(learning, algorithm="dqn"), rates, None, "steersman", has_telemetry=False)


def test_plans_are_checked(tmp_path):
    for arguments, named in (
        ({"algorithm": "evolution"}, ("--algorithm evolution",)),
        ({"algorithm": "imitation"}, ("--algorithm imitation",)),
        ({"network": "cnn"}, ("cnn",)),
        ({"objective": "latency"}, ("latency",)),
    ):
        with raises(UsageError, *named):
            live_plan("steersman", options=AgentOptions(**arguments))
    with raises(UsageError, "allocation", "least-connections"):
        live_plan("steersman", options=AgentOptions(objective="allocation"), has_telemetry=True)
    with raises(InputError, "none.safetensors"):
        live_plan("steersman", tmp_path / "none.safetensors")
    with raises(UsageError, "1.5"):
        live_plan("steersman", options=AgentOptions(dropout=1.5))
    file = Path(network_file(tmp_path, CLUSTER))
    assert live_plan("steersman", file).network.layers == (8,)
    with raises(InputError, file, "hidden", "8", "16"):
        live_plan("steersman", file, AgentOptions(hidden=(16,)))
    plan = live_plan("steersman", options=AgentOptions(objective="allocation"))
    with raises(UsageError, "allocation", "GPU"):
        init_run(plan, tmp_path / "run", NODES)
    assert not (tmp_path / "run").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with raises(SteersmanError, str(tmp_path / "other")):
        init_run(plan_of(), tmp_path / "other", NODES)


@pytest.mark.parametrize(
    ("algorithm", "settings", "explores"),
    [
        ("dqn", {}, True),
        ("dqn", {"initial_epsilon": 0.0}, True),  # its minimum is 0.01, which it reaches with the first update
        ("dqn", {"initial_epsilon": 0.0, "minimum_epsilon": 0.1, "exploration": "linear"}, True),
        ("dqn", {"initial_epsilon": 0.0, "minimum_epsilon": 0.0, "prefill": 10}, True),
        ("dqn", {"initial_epsilon": 0.0, "minimum_epsilon": 0.0}, False),
        ("ppo", {}, True),
        ("actor-critic", {}, True),
    ],
)
def test_exploration_is_announced_at_the_start(algorithm, settings, explores):
    plan = live_plan("steersman", options=AgentOptions(algorithm)).with_settings(settings)
    assert plan.explores is explores


BEST = {"algorithm": "dqn", "network": "deepsets", "hidden": "8", "dropout": 0.1, "normalisation": "batch"}


def test_tuned_options_are_valid_for_an_agent(tmp_path):
    file = tmp_path / "best.json"
    file.write_text(json.dumps({**BEST, "gamma": 0.9, "batch_size": 16}))
    given = LiveLearning(tmp_path / "run", options=file)
    plan = live_plan_of(given, {}, None, "steersman", has_telemetry=False)
    assert (plan.algorithm, plan.config.gamma, plan.config.batch_size) == ("dqn", 0.9, 16)
    assert plan.network == NetworkPlan("deepsets", (8,), 0.1, "batch")
    with at_work(plan, tmp_path / "run") as scheduler:
        scheduler.place(100)
    assert isinstance(resolve(str(tmp_path / "run" / "policy.safetensors")), NetworkPolicy)
    given = replace(given, learn=tmp_path / "other", network="mlp", hidden="16")
    plan = live_plan_of(given, {"initial_epsilon": 0.5}, None, "steersman", has_telemetry=False)
    assert (plan.network.name, plan.network.hidden, plan.config.initial_epsilon) == ("mlp", (16,), 0.5)
    given = LiveLearning(tmp_path / "other", options=file)
    for name, value, error in (
        ("dropout", 2.0, InputError),
        ("network", "cnn", InputError),
        ("clip_range", 0.1, InputError),
        ("reference", "fgd", InputError),
        ("algorithm", "evolution", UsageError),
    ):
        file.write_text(json.dumps({name: value}))
        with raises(error, name):
            live_plan_of(given, {}, None, "steersman", has_telemetry=False)


@pytest.mark.parametrize(
    ("in_file", "given", "named"),
    [
        ({}, {"exploration_decisions": 9}, ("--exploration-decisions", "--exploration exponential")),
        ({"exploration": "linear"}, {"epsilon_decay": 0.9}, ("--epsilon-decay", "--exploration linear")),
        ({"epsilon_decay": 0.9, "exploration": "linear"}, {}, ("best.json", "epsilon_decay", "exponential")),
        ({"batch_size": 200, "replay_size": 100}, {}, ("--batch-size 200", "--replay-size 100")),
        ({}, {"initial_epsilon": 1.5}, ("--initial-epsilon 1.5",)),
    ],
)
def test_options_without_effect_are_rejected(tmp_path, in_file, given, named):
    file = tmp_path / "best.json"
    file.write_text(json.dumps(in_file))
    with raises((InputError, UsageError), *named):
        live_plan_of(LiveLearning(tmp_path / "run", options=file), given, None, "steersman", has_telemetry=False)


def test_an_option_of_the_file_may_have_no_effect_by_the_command_line(tmp_path):
    file = tmp_path / "best.json"
    file.write_text(json.dumps({"epsilon_decay": 0.9}))
    given = {"exploration": "linear", "exploration_decisions": 9}
    plan = live_plan_of(LiveLearning(tmp_path / "run", options=file), given, None, "steersman", has_telemetry=False)
    assert (plan.config.exploration, plan.config.exploration_decisions) == ("linear", 9)
