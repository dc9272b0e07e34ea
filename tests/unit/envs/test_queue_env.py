"""`steersman/Queue-v0`: the simulator's queue, with an agent that chooses who goes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import steersman  # noqa: F401  # registers the environment
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.envs.queue import QueueEnv
from steersman.orders.registry import OrderCard, find_order, write_order
from steersman.orders.scores import LINEAR
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule, window
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Workload


def busy_pool(pods: int = 300, seed: int = 1) -> Workload:
    """Return jobs of 1 to 8 CPUs for one node of 8, which come a little faster than they leave."""
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(60, pods))
    made = []
    for i in range(pods):
        cpus, runs = int(random.integers(1, 9)), float(random.lognormal(4.3, 1.0))
        requests = Requests(1000 * cpus, 0)
        made.append(Pod(f"p{i}", PodClass(requests), creation_time=float(at[i]), deletion_time=float(at[i]) + runs))
    return Workload("pool", (Node("pool", 8000, 1 << 40),), tuple(made))


def environment(**options: Any) -> QueueEnv:
    """Return the environment on the pool."""
    given = {"workload": busy_pool(), "jobs": 120, "load": None, "estimates": "oracle"} | options
    return QueueEnv(**given)


def test_gymnasium_accepts_it() -> None:
    """The environment is registered and keeps Gymnasium's rules, with and without options."""
    for options in ({}, {"workload": busy_pool(), "jobs": 60, "load": None}):
        check_env(gymnasium.make("steersman/Queue-v0", **options).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    ("order", "overtaking"),
    [
        *((order, "none") for order in ("age", "shortest", "smallest", "wfp3", "f1")),
        # With `easy` whoever overtakes does so by the order, of which an agent says nothing but who is next.
        ("age", "easy"),
    ],
)
def test_an_agent_that_follows_an_order_gets_its_slowdown(order: str, overtaking: str) -> None:
    """Choosing as an order does gives the simulation of that order, to the last bit of the mean."""
    env, first, seed = environment(overtaking=overtaking, max_jobs=120), 40, 7
    env.reset(options={"first": first, "seed": seed})
    total, over, asked = 0.0, False, 0
    while not over:
        _, reward, over, _, info = env.step(np.int64(env.order_action(order)))
        total, asked = total + reward, asked + 1
    simulator = Simulator(busy_pool())
    plan = window(schedule(simulator.workload, "timed", seed=seed, ratio=1.0, load=None), first, 120)
    policy = with_order(resolve("best-fit"), find_order(f"{order}:{overtaking}@oracle"))
    execution = Execution(simulator, plan, policy, seed, record=False)
    execution.finish(None)
    assert asked > 20
    assert total == pytest.approx(-info["bounded-slowdown"])
    assert info["bounded-slowdown"] == pytest.approx(execution.coming_waits.bounded_slowdown.mean())


def test_observations_say_what_waits() -> None:
    """Rows are the oldest waiting pods, and what is masked is no pod."""
    env = environment(max_jobs=5)
    observation, _ = env.reset(seed=3)
    count = int(observation["mask"].sum())
    assert 2 <= count <= 5
    assert (observation["jobs"][count:] == 0).all()
    # Waits descend: the oldest first.
    assert (np.diff(observation["jobs"][:count, 2]) <= 0).all()
    assert env.action_masks().sum() == count


def test_learned_orders_choose_by_their_weights(tmp_path: Path) -> None:
    """An order file that scores by size alone chooses as `smallest` does."""
    file = tmp_path / "order.safetensors"
    weights = tuple(float(name == "size") for name in LINEAR)
    write_order(file, OrderCard(name="size", overtaking="any", estimates="oracle"), weights)
    env = environment(max_jobs=120)
    env.reset(seed=5)
    for _ in range(40):
        action = env.order_action(str(file))
        assert action == env.order_action("smallest")
        env.step(np.int64(action))
    with pytest.raises(UsageError, match="what namespaces have running"):
        env.order_action("fair")


def test_pods_of_the_highest_priority_come_first() -> None:
    """A queue longer than the observation hides no pod that may be chosen."""
    node, durations = Node("n", 4000, 1 << 40), [50.0, 10, 20, 30, 40, 60]
    pods = tuple(
        Pod(
            f"p{i}",
            PodClass(Requests(4000, 0)),
            priority=9 * (i > 3),
            creation_time=float(i),
            deletion_time=float(i) + seconds,
        )
        for i, seconds in enumerate(durations)
    )
    env = QueueEnv(workload=Workload("w", (node,), pods), jobs=6, load=None, estimates="oracle", max_jobs=2)
    observation, _ = env.reset(seed=0)
    assert observation["mask"].tolist() == [1, 0]
    assert observation["jobs"][:, -1].tolist() == [0.0, -9.0]


@pytest.mark.parametrize("action", [0.5, True, None, "x", np.array([0])])
def test_actions_are_rows(action: Any) -> None:
    """Anything but a whole number is refused in one line."""
    env = environment()
    env.reset(seed=1)
    with pytest.raises(UsageError, match="is not a row"):
        env.step(action)


@pytest.mark.parametrize("first", [-1, 10**9])
def test_the_first_arrival_is_one_of_the_workload(first: int) -> None:
    """An option of `reset` out of range is refused."""
    with pytest.raises(UsageError, match="reset option 'first'"):
        environment().reset(options={"first": first})


def test_an_illegal_action_changes_nothing() -> None:
    """A row without a pod costs the penalty, and the same pods wait."""
    env = environment(penalty=2.5)
    before, _ = env.reset(seed=1)
    after, reward, over, _, info = env.step(np.int64(127))
    assert (reward, over, info["illegal"]) == (-2.5, False, True)
    np.testing.assert_array_equal(before["jobs"], after["jobs"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"overtaking": "any"}, "expected none or easy"),
        ({"estimates": "guess"}, "unknown"),
        ({"max_jobs": 0}, "max_jobs must be at least 1"),
        ({"objective": "profit"}, "objective"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    """What is out of range is refused in one line."""
    with pytest.raises(UsageError, match=says):
        environment(**options)


def test_a_step_without_an_episode_is_refused() -> None:
    """After the end, and before the beginning, there is nobody to choose."""
    env = environment()
    with pytest.raises(UsageError, match="call reset"):
        env.step(np.int64(0))


def test_maskable_ppo_trains_on_it_unchanged() -> None:
    """SB3's MaskablePPO needs nothing but the registered environment."""
    sb3_contrib = pytest.importorskip("sb3_contrib")
    env = gymnasium.make("steersman/Queue-v0", workload=busy_pool(), jobs=60, max_jobs=16)
    model = sb3_contrib.MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    model.learn(128)
    assert model.num_timesteps == 128
