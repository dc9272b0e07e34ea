"""Learning from other schedulers: what is observed of them, what DQN's replay buffer gets, and what may fail."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection

import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.support.servers.fake_api_server import KubeDouble, failing
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw
from tests.unit.live.learner.test_agent import at_work, metrics_of, plan_of
from tests.unit.live.learner.test_live_learning import BALANCE, Observed, environment, shares

from steersman.agents.configs import DQNConfig
from steersman.agents.dqn import DQN
from steersman.agents.networks.score_networks import build
from steersman.agents.networks.spec import sizes_of
from steersman.core.errors import SteersmanError
from steersman.core.processes import background_process
from steersman.live.learner.agent_process import (
    MOST_KEPT,
    OffPolicyLearner,
    OtherSchedulers,
    TransitionBuffer,
    observe_others,
)
from steersman.live.learner.bindings import ObservedBinding
from steersman.live.learner.environment import PassiveLiveEnv, padded
from steersman.live.learner.plan import MIN_NODES
from steersman.objectives import summary as summed
from steersman.policies.features import CLUSTER
from steersman.policies.policy_file import read_policy

OTHER = "default-scheduler"
NODES = 8


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_bindings_of_other_schedulers_are_all_observed():
    observed = Observed(others=True)
    observed.bind("a1", "n0")
    observed.bind("a2", "n1", scheduler=OTHER)
    observed.bind("a3", "n2", scheduler="volcano")
    slots = observed.cache.state.slots
    bindings = observed.bindings()
    assert [binding.outcome.slot for binding in bindings] == [slots["n1"], slots["n2"]]
    assert [binding.outcome.before[summed.CPU_TAKEN] for binding in bindings] == [1000, 2000], "ours are there, too"
    observed.clear()
    observed.bind_many(150, OTHER)
    assert [binding.rewards for binding in observed.bindings()] == [None] * 150


def test_foreign_episode_ends_with_the_last_foreign_pod():
    observed = Observed(others=True)
    observed.bind("a1", "n0", scheduler=OTHER)
    observed.bind("a2", "n0")
    observed.cache.delete_pod("default/a2")
    observed.bind("a3", "n0", scheduler=OTHER)
    observed.bind("a4", "n0")
    for name in ("a1", "a3"):
        observed.cache.delete_pod(f"default/{name}")
    observed.bind("a5", "n0", scheduler=OTHER)
    assert [binding.ended_before for binding in observed.bindings()] == [False, False, True]


def test_nodes_reserved_for_foreign_pods_do_not_count():
    observed = Observed(others=True)
    closed = node("closed")
    closed["spec"] = {"taints": [{"key": "control-plane", "effect": "NoSchedule"}]}
    observed.cache.upsert_node(raw(closed))
    observed.bind("a1", "n0")
    observed.bind("a2", "closed", scheduler=OTHER, tolerations=[{"operator": "Exists"}])
    observed.bind("a3", "n1", scheduler=OTHER)
    special, usual = observed.bindings()
    assert special.outcome.before[summed.NODES] == 7
    assert usual.outcome.before[summed.NODES] == 6, "as in observations of our own pods"
    observed.bind("a4", "closed", tolerations=[{"operator": "Exists"}])
    observed.bind("a5", "n1", scheduler=OTHER)
    assert observed.bindings()[0].outcome.before[summed.NODES] == 7


class Others:
    """A cluster that others schedule, its transitions, and what an agent gets of them."""

    def __init__(self, most: int = MOST_KEPT, max_nodes: int = NODES) -> None:
        self.observed = Observed(others=True)
        self.source: queue.Queue[ObservedBinding | None] = queue.Queue()
        self.reads = 0
        self.buffer = TransitionBuffer(PassiveLiveEnv(self.read(), CLUSTER, max_nodes, BALANCE), most)
        self.here, there = multiprocessing.Pipe()
        self.asked: list[int] = []
        self.link = OtherSchedulers(self.here)
        threading.Thread(target=self.answer, args=(there,), daemon=True).start()

    def bind_many(self, number: int) -> list[ObservedBinding]:
        self.observed.bind_many(number, OTHER)
        bindings = self.observed.bindings()
        for binding in bindings:
            self.source.put(binding)
        return bindings

    def collected(self, number: int) -> None:
        """Wait until so many transitions were kept or dropped."""
        # Two bindings are a transition, and the buffer has kept or dropped it when it reads the next one.
        until(lambda: self.reads == number + 2)

    def read(self):
        self.reads += 1
        while (binding := self.source.get()) is not None:
            yield binding
            self.reads += 1
        raise SteersmanError("the watch is forbidden")

    def fail(self) -> None:
        self.source.put(None)

    def answer(self, connection: Connection) -> None:
        try:
            while True:
                self.asked.append(connection.recv())
                connection.send(self.buffer.take(self.asked[-1]))
        except EOFError:
            connection.close()


def learner_of(others: OtherSchedulers, candidates: int = 0) -> tuple[DQN, OffPolicyLearner]:
    """DQN that decides on a cluster of its own, five times in an iteration."""
    env = environment()
    network = build("mlp", sizes_of(env.single_observation_space), (8,), seed=1)
    config = DQNConfig(batch_size=16, update_every=5, candidates=candidates, replay_size=500, initial_epsilon=1.0)
    dqn = DQN(env, network, config, 1)
    return dqn, OffPolicyLearner(dqn, env, others, 5)


def test_replay_buffer_receives_foreign_transitions():
    others = Others()
    dqn, learner = learner_of(others.link)
    others.link.take(5)  # asks; the answer is empty
    until(lambda: others.here.poll())
    expected, rewards, bindings = others.observed, [], []
    for i in range(7):
        expected.bind(f"a{i}", f"n{i % 4}", scheduler=OTHER, cpu="500m")
        used = shares(expected.cache.state)
        rewards.append(1.0 - 2.0 * used.std() / (used.std() + 1.0))
        bindings += expected.bindings()
    for binding in bindings:
        others.source.put(binding)
    others.collected(6)  # the next observation of the last one is not known yet
    metrics = learner.iterate()
    assert (metrics["steps"], metrics["steps_from_others"]) == (5, 0)
    until(lambda: others.here.poll())
    metrics = learner.iterate()
    assert (metrics["steps"], metrics["steps_from_others"], metrics["replay"]) == (10, 5, 10)
    replay = dqn.replay.arrays()
    assert replay["count"] == 15
    theirs = slice(10, 15)
    assert replay["row"][theirs].tolist() == [expected.cache.state.slots[f"n{i % 4}"] for i in range(5)]
    np.testing.assert_allclose(replay["reward"][theirs], rewards[:5], rtol=1e-6)
    assert not replay["terminated"][theirs].any()
    for i, (binding, following) in enumerate(pairwise(bindings[:6])):
        before, after = padded(binding.observation, NODES), padded(following.observation, NODES)
        for part in ("nodes", "pod", "context", "mask", "groups"):
            np.testing.assert_array_equal(replay[f"before.{part}"][10 + i], before[part][0])
            np.testing.assert_array_equal(replay[f"after.{part}"][10 + i], after[part][0])
    assert (dqn.steps, dqn.updates) == (10, 0)
    learner.iterate()
    assert dqn.updates == 1, "gradient steps go by its own decisions"


def test_foreign_transitions_never_outnumber_own_ones():
    others = Others(most=12)
    dqn, learner = learner_of(others.link, candidates=4)
    bindings = others.bind_many(41)
    others.collected(40)
    taken = [others.buffer.take(most).transitions for most in (5, 100)]
    assert [len(each) for each in taken] == [5, 7]
    assert [each.slot for part in taken for each in part] == [each.outcome.slot for each in bindings[:12]]
    assert others.buffer.take(5).dropped == 28
    others.bind_many(100)
    others.collected(140)
    for _ in range(3):
        learner.iterate()
        until(lambda: others.here.poll())
    metrics = learner.iterate()
    assert (metrics["steps"], metrics["steps_from_others"], metrics["dropped_from_others"]) == (20, 12, 116)
    assert set(others.asked) == {5}
    assert dqn.replay.count == 32


def test_foreign_transitions_end_with_their_last_pod():
    others = Others()
    bindings = others.bind_many(60)
    others.collected(59)
    ended = [each.terminated for each in others.buffer.take(59).transitions]
    assert ended == [binding.ended_before for binding in bindings[1:]]
    assert sum(ended) == 2


def test_foreign_transitions_are_counted_across_sessions(tmp_path):
    plan, folder, counts = plan_of(), tmp_path / "run", []
    for _ in range(2):
        others = Others(max_nodes=MIN_NODES)
        others.bind_many(100)
        others.collected(99)
        with at_work(plan, folder, others.link) as scheduler:
            scheduler.place(60)
        last = metrics_of(folder)[-1]
        counts.append(int(float(last["steps_from_others"])))
        assert 0 <= read_policy(folder / "policy.safetensors")[0].steps - float(last["steps"]) <= 5
    assert counts[1] > counts[0] >= 5
    assert counts[1] <= float(last["steps"])


@pytest.mark.parametrize("algorithm", ["actor-critic", "ppo"])
def test_on_policy_agents_ignore_foreign_transitions(tmp_path, algorithm):
    plan, others = plan_of(algorithm), Others(max_nodes=MIN_NODES)
    others.bind_many(50)
    assert not plan.learns_from_others
    with at_work(plan, tmp_path / "run", others.link) as scheduler:
        scheduler.place(150)
    assert others.asked == []
    assert "steps_from_others" not in metrics_of(tmp_path / "run")[-1]
    assert plan_of("dqn").learns_from_others


def test_failing_watch_is_one_warning():
    others = Others()
    dqn, learner = learner_of(others.link)
    others.bind_many(4)
    others.collected(3)
    others.fail()
    until(lambda: others.buffer.take(0).problem)
    with capture_logs() as lines:
        learner.iterate()
        until(lambda: others.here.poll())
        for _ in range(5):
            metrics = learner.iterate()
    (warning,) = lines
    assert (warning["log_level"], warning["error"]) == ("warning", "the watch is forbidden")
    assert (metrics["steps"], metrics["steps_from_others"]) == (30, 3), "what came before is learned from"
    assert dqn.updates > 0


def test_dead_observer_is_one_warning():
    here, there = multiprocessing.Pipe()
    _, learner = learner_of(OtherSchedulers(here))
    learner.iterate()
    there.close()
    with capture_logs() as lines:
        for _ in range(4):
            metrics = learner.iterate()
    (warning,) = lines
    assert (warning["log_level"], warning["error"]) == ("warning", "the observing process has ended")
    assert metrics["steps"] == 25


@contextmanager
def observing(api: KubeDouble) -> Iterator[OtherSchedulers]:
    """The agent's end of a process that observes an API server."""
    here, there = multiprocessing.Pipe()
    with background_process(lambda _: None, observe_others, plan_of(), MIN_NODES, api.config(), None, there):
        there.close()
        yield OtherSchedulers(here)


async def taken(link: OtherSchedulers, holds: Callable[[], object] = lambda: False, number: int = 0) -> None:
    """Take transitions until something holds, or as many as expected have come."""
    transitions, end = 0, time.monotonic() + 60
    while not holds() and not 0 < number <= transitions:
        assert time.monotonic() < end, f"waited in vain; {transitions} transitions"
        transitions += len(link.take(100))
        await asyncio.sleep(0.02)
    assert transitions == number


async def test_a_server_that_forbids_the_watch_is_one_warning():
    async with KubeDouble() as api:
        api.fault = failing(403, "/api/v1/pods")
        with capture_logs() as lines, observing(api) as link:
            await taken(link, lambda: lines)
            assert link.take(5) == []
    (warning,) = lines
    assert warning["log_level"] == "warning"
    assert "403" in warning["error"]


async def test_observation_resumes_after_an_outage():
    async with KubeDouble() as api:
        for i in range(3):
            api.put("/api/v1/nodes", node(f"n{i}"))

        def bind(first: int) -> None:
            for i in range(first, first + 5):
                for on in ("", f"n{i % 3}"):
                    api.put("/api/v1/pods", pod(f"a{i}", uid=str(i), cpu="100m", on=on, schedulerName=OTHER))

        with capture_logs() as lines, observing(api) as link:
            await taken(link, lambda: len(api.watchers) == 2)
            bind(0)
            await taken(link, number=4)
            api.fault = failing(500)
            api.end_watches()
            await asyncio.sleep(0.3)
            api.fault = None
            await taken(link, lambda: len(api.watchers) == 2)
            bind(5)
            await taken(link, number=5)
        assert lines == []
