"""Learning from a scheduler at work: its decisions in windows, the environment they make, and DQN that never plays."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.apps.recorder.test_recording import journal_of, timed_workload

from steersman.agents.configs import DQNConfig
from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import sizes_of
from steersman.apps.learner.environment import PassiveLiveEnv
from steersman.apps.learner.passive_dqn import DECISIONS, PassiveDQN
from steersman.apps.recorder.event_log import NodeEvent
from steersman.apps.recorder.streaming import DecisionStream, compact, decisions
from steersman.apps.recorder.transitions import transitions
from steersman.envs.inflation.episodes import WorkloadCore, WorkloadOptions
from steersman.objectives import registry
from steersman.objectives import summary as summed
from steersman.policies.features import CLUSTER, GPU

SCHEDULER = "default-scheduler"
WITHOUT_MIX = [i for i in range(summed.COLUMNS) if i != summed.FRAGMENTED]
"""Columns of a state that do not depend on which pods are typical."""
BALANCE = registry.resolve("balance")


@pytest.fixture(scope="module")
def journal():
    """A run of 80 pods on six nodes, as a journal says it."""
    workload = timed_workload()
    core = WorkloadCore(1, "timed", WorkloadOptions(workload, "balance", load=None))
    core.start(0, np.random.default_rng(0), {"seed": 3})
    while not core.terminated[0]:
        core.step(core.rule_actions("best-fit"))
    return journal_of(core, workload, 3)


def read_in_parts(journal, cuts, view=CLUSTER, most=10_000):
    stream, seen, start = DecisionStream(SCHEDULER, view, most), [], 0
    for cut in [*sorted(cuts), len(journal)]:
        seen += stream.read(journal[start:cut])
        start = cut
    return seen, stream


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_decisions_are_the_same_however_the_journal_comes_in(journal, data):
    cuts = data.draw(st.sets(st.integers(0, len(journal)), max_size=12))
    seen, stream = read_in_parts(journal, cuts)
    whole = transitions(journal, SCHEDULER, CLUSTER).seen
    assert len(seen) == len(whole) - 1, "the last one is not over yet"
    for here, there in zip(seen, whole, strict=False):
        assert (here.action, here.terminated, here.columns) == (there.action, there.terminated, there.columns)
        assert here.row[WITHOUT_MIX] == pytest.approx(there.row[WITHOUT_MIX])
        assert here.next_row[WITHOUT_MIX] == pytest.approx(there.next_row[WITHOUT_MIX])
        np.testing.assert_array_equal(here.before["mask"], there.before["mask"])
        np.testing.assert_array_equal(here.before["pod"], there.before["pod"])
    assert stream.skipped == 0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_condensed_journal_leads_to_the_same_state(journal, data):
    cut = data.draw(st.integers(0, decisions(journal, SCHEDULER)[-1]))
    short = compact(journal[:cut])
    assert compact(short) == short
    last, there = (
        transitions(each, SCHEDULER, CLUSTER).seen[-1].row[WITHOUT_MIX] for each in ([*short, *journal[cut:]], journal)
    )
    np.testing.assert_allclose(last, there)
    assert len(short) <= cut


def test_what_comes_too_fast_is_skipped_but_counts_in_the_state(journal):
    seen, stream = read_in_parts(journal, [], most=10)
    whole = transitions(journal, SCHEDULER, CLUSTER).seen
    assert len(decisions(journal, SCHEDULER)) == len(whole)
    assert stream.skipped == len(whole) - 10
    assert [each.action for each in seen] == [each.action for each in whole[-10:-1]]
    np.testing.assert_array_equal(seen[0].before["mask"], whole[-10].before["mask"])


def test_the_view_gpu_comes_with_what_follows_from_the_mix(journal):
    seen, _ = read_in_parts(journal, [len(journal) // 2], view=GPU)
    assert seen[-1].before["nodes"].shape[1] == len(GPU.node)
    assert np.isfinite(seen[-1].before["nodes"]).all()


def environment(journal, max_nodes=8):
    def source():
        stream = DecisionStream(SCHEDULER, CLUSTER, 10_000)
        for start in range(0, 10**9, 40):  # the same again and again: every part begins with the nodes
            part = journal[start % len(journal) :][:40]
            yield from stream.read(part)

    return PassiveLiveEnv(source(), CLUSTER, max_nodes, BALANCE)


def test_the_environment_shows_what_the_scheduler_saw_did_and_got(journal):
    env = environment(journal)
    whole = transitions(journal, SCHEDULER, CLUSTER).seen
    observation, _ = env.reset(seed=1)
    for there, after in pairwise(whole[:21]):
        assert env.single_observation_space.contains({name: part[0] for name, part in observation.items()})
        np.testing.assert_array_equal(observation["mask"][0, there.columns], there.before["mask"])
        assert observation["mask"][0].sum() == there.before["mask"].sum()
        assert env.action().tolist() == [there.action]
        observation, reward, terminated, truncated, infos = env.step(np.array([0]))
        cpu = [there.next_row[i] for i in (summed.CPU_SHARE, summed.CPU_SQUARE, summed.CPU_NODES)]
        variance = cpu[1] / cpu[2] - (cpu[0] / cpu[2]) ** 2
        assert infos["node_variance"] == pytest.approx([variance])
        assert not truncated[0]
        assert terminated[0] == there.terminated
        np.testing.assert_array_equal(observation["pod"][0], after.before["pod"])
    assert np.isfinite(reward).all()


def test_decisions_for_nodes_beyond_the_room_are_left_out(journal):
    env = environment(journal, max_nodes=3)
    env.reset()
    for _ in range(10):
        assert env.action()[0] < 3
        observation, *_ = env.step(np.array([0]))
        assert observation["nodes"].shape[1] == 3


def follower(journal, seed=1):
    env = environment(journal)
    network = build("mlp", sizes_of(env.single_observation_space), (8,), seed=seed)
    return PassiveDQN(env, network, DQNConfig(batch_size=32, update_every=5, candidates=4, replay_size=200), seed)


def test_the_follower_learns_from_the_scheduler_and_forgets_nothing_that_did_not_vary(journal):
    agent = follower(journal)
    before = export(agent.network)
    metrics = agent.iterate()
    after = export(agent.network)
    assert agent.steps == DECISIONS
    assert {"reward", "loss", "node_variance", "allocation", "q_value"} <= metrics.keys()
    chosen = [each.action for each in transitions(journal, SCHEDULER, CLUSTER).seen[:DECISIONS]]
    assert metrics["actions"].tolist() == chosen, "what the scheduler did, not what the network would have done"
    assert (before["layers.0.weight"] != after["layers.0.weight"]).any()
    constant = np.flatnonzero((after["layers.0.weight"] == 0).all(axis=0))
    assert constant.size == 0, "weights of features that did not vary here are kept"


def test_the_follower_goes_on_from_a_checkpoint_without_its_transitions(journal):
    agent = follower(journal)
    for _ in range(2):
        agent.iterate()
    state = agent.state_dict()
    assert state["more"]["replay"].keys() == {"count"}
    other = follower(journal, seed=2)
    other.load_state_dict(state)
    for name, array in export(agent.network).items():
        np.testing.assert_array_equal(array, export(other.network)[name])
    assert (other.steps, other.updates, len(other.replay)) == (agent.steps, agent.updates, 0)
    assert other.iterate()["steps"] == 3 * DECISIONS


def test_nodes_that_went_leave_the_state(journal):
    name = next(each.event.name for each in journal if isinstance(each.event, NodeEvent))
    gone = [*journal, type(journal[0])(journal[-1].time, NodeEvent(name, None))]
    assert name not in [each.event.name for each in compact(gone) if isinstance(each.event, NodeEvent)]
