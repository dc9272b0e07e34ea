"""Learning from another scheduler at work: its bindings as they are observed, and DQN that never plays."""

from __future__ import annotations

import queue
from itertools import count, pairwise

import numpy as np
import pytest
from tests.support.kubeconfig import unreachable
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw

from steersman.agents.configs import DQNConfig
from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import sizes_of
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.live.learner.bindings import TEST_BLOCK, TRAIN_BLOCK, BindingObserver, ObservedBinding
from steersman.live.learner.environment import PassiveLiveEnv
from steersman.live.learner.passive_dqn import DECISIONS, PassiveDQN
from steersman.live.scheduler.agent_policy import AgentSettings
from steersman.objectives import registry
from steersman.objectives import summary as summed
from steersman.objectives.summary import reward
from steersman.policies.features import CLUSTER, GPU, View

BALANCE = registry.resolve("balance")
SCHEDULER = "steersman"  # of the pods of `pod`


class Observed:
    """A cluster of six nodes whose scheduler is observed."""

    def __init__(self, view: View = CLUSTER, objective: str = "balance", *, others: bool = False) -> None:
        client = unreachable()
        self.found: queue.Queue[ObservedBinding | SteersmanError] = queue.Queue()
        settings = AgentSettings("dqn", view, registry.resolve(objective), None)
        self.observer = BindingObserver(client, SCHEDULER, settings, None, self.found, others=others)
        self.cache = self.observer.cache
        self.rng = np.random.default_rng(1)
        self.running: list[str] = []
        self.numbers = count()
        for i in range(6):
            self.cache.upsert_node(raw(node(f"n{i}", cpu=8, gpus=2 if objective == "allocation" else 0)))
        self.observer.rebuild_decider()

    def bind(self, name: str, on: str, *, scheduler: str = SCHEDULER, **spec: object) -> None:
        """A pod arrives and is bound; its first version says what it wants."""
        self.cache.upsert_pod(raw(pod(name, uid=name, **{**spec, "schedulerName": scheduler})))
        self.cache.upsert_pod(raw(pod(name, uid=name, on=on, **{**spec, "schedulerName": scheduler})))
        self.running.append(name)

    def bind_many(self, number: int, scheduler: str = SCHEDULER) -> None:
        """Pods are bound at random; all go when the cluster is half full."""
        for _ in range(number):
            i = next(self.numbers)
            self.bind(f"{'abc'[i % 3]}{i}", f"n{int(self.rng.integers(6))}", scheduler=scheduler, cpu="500m")
            if len(self.running) == 24:
                self.clear()

    def clear(self) -> None:
        for name in self.running:
            self.cache.delete_pod(f"default/{name}")
        self.running.clear()

    def bindings(self) -> list[ObservedBinding]:
        result = []
        while not self.found.empty():
            binding = self.found.get()
            assert isinstance(binding, ObservedBinding)
            result.append(binding)
        return result


def shares(state: ClusterState) -> np.ndarray:
    return 1.0 - state.arrays.free[:6, 0] / state.arrays.allocatable[:6, 0]


def test_binding_yields_states_before_and_after():
    observed = Observed()
    state = observed.cache.state
    for i in range(20):
        observed.bind(f"a{i}", f"n{i % 4}", cpu="500m")
        (binding,) = observed.bindings()
        assert binding.outcome.slot == state.slots[f"n{i % 4}"]
        assert binding.observation["mask"].sum() == 6
        after = binding.outcome.after
        used = shares(state)
        assert after[summed.CPU_SHARE] == pytest.approx(used.sum())
        assert after[summed.CPU_SQUARE] == pytest.approx((used * used).sum())
        assert after[summed.NODES_USED] == min(i + 1, 4)
        assert after[summed.CPU_TAKEN] - binding.outcome.before[summed.CPU_TAKEN] == 500
        expected = 1.0 - 2.0 * used.std() / (used.std() + 1.0)
        assert reward(BALANCE, binding.outcome.before, after) == pytest.approx(expected)
        assert f"default/a{i}" in state.placements


def test_foreign_and_running_pods_are_no_decisions():
    observed = Observed()
    observed.bind("a1", "n0", scheduler="other")
    observed.cache.upsert_pod(raw(pod("b1", uid="b1", on="n1")))
    observed.cache.upsert_pod(raw(pod("c1", uid="c1")))
    observed.cache.delete_pod("default/c1")
    observed.bind("c2", "unknown")
    assert observed.bindings() == []
    observed.bind("a2", "n0")
    (binding,) = observed.bindings()
    assert binding.outcome.before[summed.CPU_TAKEN] == 2000, "they count in the state"


def test_held_out_segments_keep_rewards_of_every_node():
    observed = Observed()
    observed.bind_many(TRAIN_BLOCK + TEST_BLOCK + 5)
    bindings = observed.bindings()
    kept = [i + 1 for i, binding in enumerate(bindings) if binding.rewards is not None]
    assert kept == list(range(TRAIN_BLOCK, TRAIN_BLOCK + TEST_BLOCK))
    for i in kept:
        binding = bindings[i - 1]
        assert binding.rewards is not None
        feasible = binding.observation["mask"] > 0
        assert np.isfinite(binding.rewards[: len(feasible)][feasible]).all()
        assert np.isnan(binding.rewards[: len(feasible)][~feasible]).all()
        done = binding.outcome
        assert binding.rewards[done.slot] == pytest.approx(reward(BALANCE, done.before, done.after))


def test_waiting_time_of_older_pods_counts_until_the_next_binding(monkeypatch: pytest.MonkeyPatch):
    observed, now = Observed(), 100.0
    monkeypatch.setattr("steersman.live.learner.bindings.time.monotonic", lambda: now)
    for name in ("w1", "w2"):
        observed.cache.upsert_pod(raw(pod(name, uid=name, schedulerName=SCHEDULER)))
    observed.bind("a1", "n0")
    now = 103.0
    observed.cache.upsert_pod(raw(pod("w1", uid="w1", on="n1", schedulerName=SCHEDULER)))
    now = 104.5
    observed.cache.upsert_pod(raw(pod("w2", uid="w2", on="n1", schedulerName=SCHEDULER)))
    assert [binding.waited_before for binding in observed.bindings()] == [0.0, 2 * 3.0, 0.0]


def test_episode_ends_when_the_last_pod_is_deleted():
    observed = Observed()
    observed.bind_many(24 + 3)
    ended = [binding.ended_before for binding in observed.bindings()]
    assert [i for i, each in enumerate(ended) if each] == [24]


def test_the_view_gpu_is_observed_too():
    observed = Observed(GPU, "allocation")
    observed.bind("a1", "n0", gpu=(1, 1000))
    (binding,) = observed.bindings()
    assert binding.observation["nodes"].shape[1] == len(GPU.node)
    assert np.isfinite(binding.observation["nodes"]).all()
    assert reward(registry.resolve("allocation"), binding.outcome.before, binding.outcome.after) == 1.0


def environment(max_nodes=8):
    observed = Observed()

    def source():
        while True:
            observed.bind_many(50)
            yield from observed.bindings()

    return PassiveLiveEnv(source(), CLUSTER, max_nodes, BALANCE)


def test_environment_replays_observations_actions_and_rewards():
    env, there = environment(), Observed()
    there.bind_many(31)
    bindings = there.bindings()
    observation, _ = env.reset(seed=1)
    for binding, following in pairwise(bindings):
        assert env.single_observation_space.contains({name: part[0] for name, part in observation.items()})
        assert env.action().tolist() == [binding.outcome.slot]
        np.testing.assert_array_equal(observation["pod"][0], binding.observation["pod"])
        observation, rewards, terminated, truncated, infos = env.step(np.array([0]))
        row = binding.outcome.after
        variance = row[summed.CPU_SQUARE] / 6 - (row[summed.CPU_SHARE] / 6) ** 2
        assert infos["node_variance"] == pytest.approx([variance])
        assert rewards[0] == pytest.approx(reward(BALANCE, binding.outcome.before, row))
        assert not truncated[0]
        assert terminated[0] == following.ended_before


def test_bindings_beyond_the_maximum_nodes_are_skipped():
    env = environment(max_nodes=3)
    env.reset()
    for _ in range(10):
        assert env.action()[0] < 3
        observation, *_ = env.step(np.array([0]))
        assert observation["nodes"].shape[1] == 3


def follower(seed=1):
    env = environment()
    network = build("mlp", sizes_of(env.single_observation_space), (8,), seed=seed)
    return PassiveDQN(env, network, DQNConfig(batch_size=32, update_every=5, candidates=4, replay_size=200), seed)


def test_follower_learns_and_keeps_constant_features():
    agent, there = follower(), Observed()
    there.bind_many(DECISIONS)
    before = export(agent.network)
    metrics = agent.iterate()
    after = export(agent.network)
    assert agent.steps == DECISIONS
    assert {"reward", "loss", "node_variance", "q_value"} <= metrics.keys()
    chosen = [binding.outcome.slot for binding in there.bindings()]
    assert metrics["actions"].tolist() == chosen, "what the scheduler did, not what the network would have done"
    assert (before["layers.0.weight"] != after["layers.0.weight"]).any()
    constant = np.flatnonzero((after["layers.0.weight"] == 0).all(axis=0))
    assert constant.size == 0, "weights of features that did not vary here are kept"


def test_follower_resumes_from_a_checkpoint_without_transitions():
    agent = follower()
    for _ in range(2):
        agent.iterate()
    state = agent.state_dict()
    assert state["more"]["replay"].keys() == {"count"}
    other = follower(seed=2)
    other.load_state_dict(state)
    for name, array in export(agent.network).items():
        np.testing.assert_array_equal(array, export(other.network)[name])
    assert (other.steps, other.updates, len(other.replay)) == (agent.steps, agent.updates, 0)
    assert other.iterate()["steps"] == 3 * DECISIONS
