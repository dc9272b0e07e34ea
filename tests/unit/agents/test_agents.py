"""What all agents share: advantages, replay, candidates, recordings, divergence, and resuming to the same result."""

import importlib
import io

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.environments.toy_environment import ToyVectorEnv
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.recordings import record, save

from steersman.agents import actor_critic, configs, dqn, imitation, ppo
from steersman.agents.base import DivergedError, RolloutStats, random_rows, teacher_of
from steersman.agents.buffers import Recording, ReplayBuffer, generalised_advantages
from steersman.agents.networks.score_networks import MASKED, build
from steersman.agents.networks.spec import sizes_of
from steersman.agents.networks.tensors import draw, entropy, log_probabilities, sample_candidates
from steersman.agents.registry import GRADIENT_ALGORITHMS, find_algorithm
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.extras import MissingExtraError

AGENTS = {
    "dqn": (
        dqn.DQN,
        configs.DQNConfig(batch_size=16, update_every=12, target_update_every=2, use_heuristic=True, prefill=30),
    ),
    "actor-critic": (actor_critic.ActorCritic, configs.ActorCriticConfig(rollout=4)),
    "ppo": (ppo.PPO, configs.PPOConfig(rollout=4, batch_size=20, epochs=2)),
    "imitation": (imitation.Imitation, configs.ImitationConfig(batch_size=16, update_every=12)),
}


def make(name, network="mlp", norm="none", dropout=0.0, seed=1, env=None, **options):
    env = env or ToyVectorEnv(8, "reserve", nodes=4, max_nodes=5, limit=5)
    kind, config = AGENTS[name]
    config = type(config)(**{field: getattr(config, field) for field in config.__dataclass_fields__} | options)
    net = build(network, sizes_of(env.single_observation_space), (8,), dropout, norm, seed)
    return kind(env, net, config, seed, teacher=teacher_of(env))


def iterate(agent, count):
    return [agent.iterate() for _ in range(count)]


def same(one, other):
    """Whether nested states are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    ("name", "network", "norm", "dropout", "options"),
    [(name, "mlp", "none", 0.0, {}) for name in AGENTS]
    + [(name, "deepsets", "batch", 0.2, {"candidates": 3}) for name in AGENTS]
    + [("ppo", "gnn", "layer", 0.1, {})],
)
def test_resumed_run_is_the_uninterrupted_run(name, network, norm, dropout, options):
    whole = make(name, network, norm, dropout, **options)
    for _ in range(3):
        whole.iterate()
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    metrics = [whole.iterate() for _ in range(3)]

    torch.manual_seed(12345)  # another process: other global randomness, other first weights, another start
    resumed = make(name, network, norm, dropout, seed=9, **options)
    resumed.iterate()
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert same(metrics, [resumed.iterate() for _ in range(3)])
    assert same(whole.state_dict(), resumed.state_dict())


def test_agent_state_is_a_copy():
    agent = make("dqn")
    agent.iterate()
    kept = agent.state_dict()
    again = agent.state_dict()
    agent.iterate()
    assert same(kept, again)
    assert not same(kept, agent.state_dict())


def test_checkpoint_of_another_algorithm_fails_in_one_line():
    state = make("dqn").state_dict()
    with raises(SteersmanError):
        make("ppo").load_state_dict(state)
    with raises(SteersmanError):
        make("dqn", "linear").load_state_dict(state)


@pytest.mark.parametrize("name", AGENTS)
def test_iteration_leaves_global_randomness_alone_and_depends_on_the_seed(name):
    state = torch.get_rng_state()
    one, again, other = (make(name, dropout=0.3, seed=seed) for seed in (4, 4, 5))
    metrics = [[agent.iterate() for _ in range(2)] for agent in (one, again, other)]
    assert torch.equal(state, torch.get_rng_state())
    assert same(metrics[0], metrics[1])
    assert not same(metrics[0], metrics[2])


class Recorded(ToyVectorEnv):
    """Keeps what is asked of it, and counts what is not in the mask."""

    illegal = 0

    def step(self, actions):
        self.illegal += int((~self._mask()[np.arange(self.num_envs), actions]).sum())
        return super().step(actions)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("candidates", [0, 2])
def test_agents_choose_feasible_actions_only(name, candidates):
    env = Recorded(8, "reserve", nodes=6, max_nodes=8)
    agent = make(name, "deepsets", env=env, candidates=candidates)
    for _ in range(6):
        metrics = agent.iterate()
    assert env.illegal == 0
    assert len(metrics["actions"]) % 8 == 0
    observation, _ = env.reset(seed=1)
    for greedy in (True, False):
        agent._teacher_actions = env.heuristic()  # what exploring DQN may follow
        if candidates == 0:
            chosen = agent.act(observation, greedy)
            assert (observation["mask"][np.arange(8), chosen] == 1).all()


@pytest.mark.parametrize(("norm", "dropout"), [("none", 0.0), ("batch", 0.0), ("layer", 0.4), ("batch", 0.4)])
def test_first_ppo_ratio_is_one_with_dropout_and_batch_norm(norm, dropout):
    agent = make("ppo", "deepsets", norm, dropout, rollout=4, epochs=1, batch_size=64)
    for _ in range(3):
        metrics = agent.iterate()
        assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-6)
        assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("name", ["dqn", "actor-critic", "ppo"])
def test_diverging_run_is_reported(name):
    class Broken(ToyVectorEnv):
        def step(self, actions):
            observation, rewards, *rest = super().step(actions)
            return observation, rewards + (np.nan if self._decisions.max() > 1 else 0.0), *rest

    agent = make(name, env=Broken(8, "reserve"))
    with raises(DivergedError, name):
        iterate(agent, 10)


def test_divergence_by_a_large_learning_rate_is_detected():
    with raises(DivergedError):
        iterate(make("imitation", learning_rate=1e30), 10)


def test_non_finite_weights_are_detected():
    agent = make("dqn", batch_size=1000)  # no update yet, so no loss
    with torch.no_grad():
        agent.network.head.bias.fill_(np.nan)
    with raises(DivergedError, "1"):
        agent.iterate()


def test_truncated_episode_bootstraps_from_its_last_observation():
    env = ToyVectorEnv(8, "reserve", limit=2)
    agent = make("ppo", env=env)
    first = agent.step(env.heuristic())
    assert not first.truncated.any()
    assert np.array_equal(first.after["nodes"], agent.sample.observation["nodes"])
    second = agent.step(env.heuristic())
    assert second.truncated.all()
    left = second.before["context"].sum(1) - second.after["context"].sum(1)
    assert (left > 0).all()  # a pod and a slot fewer, where the next episode starts with all of them
    assert not np.array_equal(second.after["nodes"], agent.sample.observation["nodes"])


@given(data=st.data())
@settings(max_examples=examples(30))
def test_advantages_match_the_gae_definition(data):
    t, e = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    rewards, values, following = rng.normal(size=(3, t, e)).astype(np.float32)
    terminated, truncated = rng.random((t, e)) < 0.3, rng.random((t, e)) < 0.3
    gamma, gae_lambda = data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    found = generalised_advantages(rewards, values, following, terminated, truncated, gamma, gae_lambda)
    for copy in range(e):
        for start in range(t):
            total, weight = 0.0, 1.0
            for i in range(start, t):
                after = 0.0 if terminated[i, copy] else following[i, copy]
                total += weight * (rewards[i, copy] + gamma * after - values[i, copy])
                weight *= gamma * gae_lambda
                if terminated[i, copy] or truncated[i, copy]:
                    break
            assert found[start, copy] == pytest.approx(total, abs=1e-4)


def test_critic_bootstraps_truncated_episodes():
    """Every decision earns 1: if episodes go on, a state is worth 1 / (1 - gamma); if they end, less than that."""
    values = {}
    for cut in (True, False):

        class Constant(ToyVectorEnv):
            is_end = not cut

            def step(self, actions):
                observation, rewards, _, truncated, infos = super().step(actions)
                ends = truncated & self.is_end
                return observation, np.ones_like(rewards), ends, truncated & ~ends, infos

        agent = make(
            "actor-critic",
            "linear",
            env=Constant(8, "reserve", limit=2),
            rollout=8,
            gamma=0.5,
            critic_learning_rate=0.1,
        )
        iterate(agent, 40)
        values[cut] = float(agent._values(agent.sample.observation).mean())
    assert values[True] == pytest.approx(2.0, abs=0.15)
    assert values[False] < 1.6  # at most 1.5, of two decisions


@given(data=st.data())
@settings(max_examples=examples(30))
def test_replay_keeps_the_newest(data):
    size = data.draw(st.integers(1, 9))
    replay, added = ReplayBuffer(size), []
    for length in data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6)):
        new = np.arange(len(added), len(added) + length)
        replay.add({"number": new, "square": (new**2).reshape(-1, 1)})
        added += new.tolist()
    kept = replay.arrays()
    assert sorted(kept["number"].tolist()) == added[-size:]
    assert np.array_equal(kept["square"][:, 0], kept["number"] ** 2)
    copy = ReplayBuffer(size)
    copy.restore(kept)
    for each in (replay, copy):
        each.add({"number": np.array([-1]), "square": np.array([[1]])})
    assert same(replay.arrays(), copy.arrays())


def test_replay_refuses_clusters_of_another_size():
    replay = ReplayBuffer(4)
    replay.add({"nodes": np.zeros((1, 5, 2))})
    with raises(SteersmanError, "--candidates"):
        replay.add({"nodes": np.zeros((1, 6, 2))})


@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 12), candidates=st.integers(1, 12))
@settings(max_examples=examples(60))
def test_candidates_represent_the_whole_cluster(seed, nodes, candidates):
    rng = np.random.default_rng(seed)
    present = rng.random((4, nodes)) < 0.8
    mask = present & (rng.random((4, nodes)) < rng.random())
    mask[:, 0] = present[:, 0] = True
    rows = (rng.integers(1, 9, (4, nodes, 2)) * present[..., None]).astype(np.float32)
    observation = {
        "nodes": rows,
        "pod": np.ones((4, 4), np.float32),
        "context": np.ones((4, 1), np.float32),
        "mask": mask.astype(np.int8),
        "groups": rng.integers(-1, 3, (4, nodes, 2)).astype(np.int32),
    }
    chosen = random_rows(mask, rng)
    sample = sample_candidates(observation, candidates, rng, chosen)
    seen = sample.observation
    assert np.array_equal(sample.to_slots(sample.to_rows(chosen)), chosen)
    copies = np.arange(4)
    assert seen["mask"][copies, sample.to_rows(chosen)].all()
    if candidates >= nodes:
        assert sample.slots is None
        return
    assert seen["nodes"].shape == (4, candidates, 2)
    for copy in range(4):
        slots = sample.slots[copy]
        assert len(set(slots.tolist())) == candidates
        assert np.array_equal(seen["nodes"][copy], rows[copy, slots])
        assert np.array_equal(seen["groups"][copy], observation["groups"][copy, slots])
        weight, feasible = seen["weight"][copy], seen["mask"][copy] > 0
        assert np.array_equal(feasible, mask[copy, slots])
        assert weight[feasible].sum() == pytest.approx(mask[copy].sum())
        others = (present & ~mask)[copy].sum()
        assert weight[~feasible].sum() == pytest.approx(others if (weight[~feasible] > 0).any() else 0)
        assert (weight > 0).sum() == min(candidates, present[copy].sum())


def test_samples_follow_the_masked_softmax():
    scores = np.tile(np.array([[0.0, 1.0, 2.0, 5.0]], np.float32), (20_000, 1))
    mask = np.tile(np.array([[True, True, True, False]]), (20_000, 1))
    scores[~mask] = MASKED
    shares = np.bincount(draw(scores, mask, np.random.default_rng(0)), minlength=4) / 20_000
    wanted = log_probabilities(torch.tensor(scores[:1])).exp().numpy()[0]
    assert shares[3] == wanted[3] == 0.0
    assert shares == pytest.approx(wanted, abs=0.015)
    flat = log_probabilities(torch.tensor([[1.0, 1.0, 1.0, MASKED]]))
    assert entropy(flat, torch.tensor(mask[:1])).item() == pytest.approx(np.log(3))


def test_prefill_and_half_of_exploration_follow_the_heuristic():
    env = ToyVectorEnv(64, "match", nodes=6)
    agent = make("dqn", env=env, prefill=640, batch_size=2000, initial_epsilon=1.0, update_every=64)
    agent.iterate()
    rewards = agent.replay.arrays()["reward"]
    assert len(rewards) == 704
    best = rewards[:640].mean()
    agent.config = configs.DQNConfig(use_heuristic=True, batch_size=10_000, update_every=6400)
    agent.iterate()
    mixed = agent.replay.arrays()["reward"][704:].mean()
    agent.config = configs.DQNConfig(use_heuristic=False, batch_size=10_000, update_every=6400)
    agent.iterate()
    chance = agent.replay.arrays()["reward"][7104:].mean()
    assert mixed == pytest.approx((best + chance) / 2, abs=0.03)
    assert chance < best - 0.2


def test_target_follows_the_network_by_steps():
    agent = make("dqn", prefill=0, target_update_every=3)
    while agent.updates < 2:
        agent.iterate()
    assert not same(agent.network.state_dict(), agent.target_network.state_dict())
    while agent.updates < 3:
        agent.iterate()
    assert same(agent.network.state_dict(), agent.target_network.state_dict())
    assert agent.epsilon == pytest.approx(0.995**3)


def test_several_gradient_steps_replace_single_ones():
    one, four = make("dqn", prefill=0), make("dqn", prefill=0, gradient_steps=4)
    while one.updates < 3:
        one.iterate()
        four.iterate()
    assert (four.steps, four.updates) == (one.steps, 4 * one.updates)


def test_a_soft_update_moves_the_target_by_tau():
    agent = make("dqn", prefill=0, target_update_every=1, tau=0.25)
    before = {name: value.clone() for name, value in agent.target_network.state_dict().items()}
    while agent.updates < 1:
        agent.iterate()
    for name, value in agent.target_network.state_dict().items():
        expected = 0.75 * before[name] + 0.25 * agent.network.state_dict()[name]
        torch.testing.assert_close(value, expected)


def test_learning_starts_and_linear_exploration_count_decisions():
    agent = make(
        "dqn",
        prefill=0,
        batch_size=4,
        learning_starts=100,
        exploration="linear",
        exploration_decisions=200,
        minimum_epsilon=0.1,
    )
    while agent.steps < 100:
        assert agent.updates == 0
        assert agent.epsilon == pytest.approx(1.0 - 0.9 * max(agent.steps - 8, 0) / 200)
        agent.iterate()
    while agent.steps < 300:
        agent.iterate()
    assert agent.updates > 0
    assert agent.epsilon == 0.1


def test_cumulative_reward_continues_after_a_resume():
    agent = make("dqn", prefill=0)
    metrics = iterate(agent, 3)
    rewards = [each["reward"] * each["actions"].size / agent.env.num_envs for each in metrics]
    assert metrics[-1]["cumulative_reward"] == pytest.approx(sum(rewards))
    again = make("dqn", prefill=0)
    again.load_state_dict(agent.state_dict())
    assert again.iterate()["cumulative_reward"] == pytest.approx(agent.iterate()["cumulative_reward"])


def test_agent_learns_from_a_recording_without_the_environment(tmp_path):
    env = ToyVectorEnv(8, "reserve", limit=4)
    file = tmp_path / "teacher.npz"
    save(record(env, teacher_of(env), 400, seed=2), file)
    recording = Recording.load(file)
    assert len(recording) == 400
    assert recording.truncated.any()
    assert (recording.after["mask"][~recording.terminated].sum(1) > 0).all()
    network = build("mlp", sizes_of(env.single_observation_space), (32,))
    config = configs.ImitationConfig(learning_rate=1e-2, batch_size=100)
    agent = imitation.Imitation(env, network, config, 0, recording=recording)
    metrics = [agent.iterate() for _ in range(120)]
    assert metrics[0]["agreement"] < 0.7 < 0.9 < metrics[-1]["agreement"]
    assert "reward" not in metrics[-1]
    learner = dqn.DQN(env, network, configs.DQNConfig(candidates=3), 0, recording=recording)
    assert len(learner.replay) == 400
    assert learner.replay.arrays()["reward"].sum() == pytest.approx(recording.rewards.sum())


def test_invalid_recordings_are_reported(tmp_path):
    with raises(InputError):
        Recording.load(tmp_path / "nothing.npz")
    bad = tmp_path / "bad.npz"
    bad.write_text("pod,node\n")
    with raises(InputError):
        Recording.load(bad)
    env = ToyVectorEnv(2, "match")
    good = record(env, teacher_of(env), 2, seed=2)
    save(good, bad)
    with np.load(bad) as archive:
        arrays = dict(archive)
    np.savez(bad, **{name: array for name, array in arrays.items() if name != "before.mask"})
    with raises(InputError, "before.mask"):
        Recording.load(bad)
    np.savez(bad, **arrays | {"before.mask": np.zeros_like(arrays["before.mask"])})
    with raises(InputError):
        Recording.load(bad)


def test_metrics_are_means_over_environments():
    tally = RolloutStats(2)
    ended = np.array([False, True])
    infos = {
        "allocation": np.array([0.2, 0.4]),
        "delay": np.array([0.0, 3.0]),
        "_delay": ended,
        "final_obs": np.array([None, {}], dtype=object),
        "final_info": {"allocation": np.array([0.0, 0.9]), "_allocation": ended},
    }
    tally.add(np.array([3, 1]), np.array([1.0, 2.0]), np.zeros(2, np.bool_), {})
    tally.add(np.array([2, 2]), np.array([1.0, 5.0]), ended, infos)
    metrics = tally.take()
    assert metrics.pop("actions").tolist() == [3, 1, 2, 2]
    assert metrics.pop("cumulative_reward") == 4.5
    assert metrics == pytest.approx(
        {"reward": 2.25, "return": 7.0, "length": 2.0, "allocation": 0.3, "delay": 3.0, "final_allocation": 0.9}
    )
    assert tally.take() == {}
    tally.add(np.array([0, 0]), np.array([1.0, 1.0]), np.ones(2, np.bool_), {})
    assert tally.take()["return"] == pytest.approx((3.0 + 1.0) / 2)


@pytest.mark.parametrize(
    ("make_config", "told"),
    [
        (lambda: configs.DQNConfig(gamma=1.5), "--gamma 1.5 does not work; expected a number from 0 to 1"),
        (lambda: configs.PPOConfig(clip_range=0.0), "--clip-range 0.0"),
        (lambda: configs.ActorCriticConfig(actor_learning_rate=float("nan")), "--actor-learning-rate nan"),
        (
            lambda: configs.ImitationConfig(batch_size=0),
            "--batch-size 0 does not work; expected a whole",
        ),
        (lambda: configs.DQNConfig(candidates=-1), "--candidates -1"),
        (lambda: configs.DQNConfig(tau=0.0), "--tau 0.0 does not work; expected a number above 0 and at most 1"),
        (lambda: configs.DQNConfig(learning_rate_decay=0.0), "--learning-rate-decay 0.0 does not work"),
        (lambda: configs.DQNConfig(replay_size=100), "--batch-size 200 does not work with --replay-size 100"),
        (
            lambda: configs.ImitationConfig(batch_size=20_000),
            "--batch-size 20000 does not work with --replay-size",
        ),
    ],
)
def test_invalid_options_are_reported(make_config, told):
    with pytest.raises(UsageError, match=told):
        make_config()


def test_incomplete_agent_is_reported():
    env = ToyVectorEnv(2)
    network = build("linear", sizes_of(env.single_observation_space))
    with raises(UsageError):
        dqn.DQN(env, network, configs.DQNConfig(prefill=5), 0)
    with raises(UsageError):
        imitation.Imitation(env, network, configs.ImitationConfig(), 0)
    assert teacher_of(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])) is None


def test_algorithms_are_found_by_name(monkeypatch):
    specs = [find_algorithm(name) for name in GRADIENT_ALGORITHMS]
    assert {(spec.load(), spec.config) for spec in specs} == {(kind, type(config)) for kind, config in AGENTS.values()}
    assert all(spec.load().algorithm == spec.name for spec in specs)
    with raises(UsageError):
        find_algorithm("sarsa")

    def missing(module):
        raise ModuleNotFoundError(f"{module} imports torch", name="torch")

    monkeypatch.setattr(importlib, "import_module", missing)
    with raises(MissingExtraError, "'train'"):
        find_algorithm("ppo").load()
