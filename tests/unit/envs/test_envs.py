"""The environments as Gymnasium and agents use them, and that their dynamics are the simulator's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from tests.support.decision_states import described
from tests.support.errors import raises
from tests.support.weights import fgd_weights

import steersman.envs
from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import CoreDecider
from steersman.envs import deployments, latency, workload
from steersman.envs.deployments import DeploymentsEnv, DeploymentsOptions, DeploymentsVectorEnv
from steersman.envs.latency import LatencyOptions
from steersman.envs.workload import (
    InflationEnv,
    InflationVectorEnv,
    TimedEnv,
    TimedVectorEnv,
    WorkloadOptions,
)
from steersman.objectives import summary as summed
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.features import CLUSTER, GPU
from steersman.policies.heuristics import HeuristicPolicy
from steersman.policies.learned_weights import FGD
from steersman.policies.linear import LinearPolicy
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.generators.deployments import DeploymentSettings, cluster, generate
from steersman.workloads.workload import Workload

IDS = ("steersman/Inflation-v0", "steersman/Timed-v0", "steersman/Deployments-v0")
SINGLE = {"inflation": InflationEnv, "timed": TimedEnv, "deployments": DeploymentsEnv}
VECTOR = {"inflation": InflationVectorEnv, "timed": TimedVectorEnv, "deployments": DeploymentsVectorEnv}
GIB = 1 << 30


KINDS = {kind: (kind, {}) for kind in SINGLE} | {
    f"{kind}-gpu": (kind, {"view": "gpu"}) for kind in ("inflation", "timed")
}


def legal(mask: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """[E] a random legal action each."""
    return (mask * (random.random(mask.shape) + 1)).argmax(axis=-1)


@pytest.mark.parametrize("name", IDS)
def test_environment_passes_gymnasium_checker(name):
    assert steersman.envs
    env = gymnasium.make(name)
    check_env(env.unwrapped)
    check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("name", IDS)
def test_episode_stays_in_the_space_with_nonempty_masks(name):
    env, random = gymnasium.make(name), np.random.default_rng(1)
    for seed in (0, 1, 2):
        seen, _ = env.reset(seed=seed)
        over = False
        for _ in range(300):
            assert seen["mask"].any() != over
            assert all(env.observation_space[key].contains(value) for key, value in seen.items())
            assert np.array_equal(env.unwrapped.action_masks(), seen["mask"] == 1)
            if over:
                break
            seen, reward, terminated, truncated, _ = env.step(legal(seen["mask"], random))
            assert np.isfinite(reward)
            assert not truncated
            over = terminated


@pytest.mark.parametrize(
    ("protocol", "order"),
    [
        ("inflation", "age"),
        *(("timed", order) for order in ("age", "smallest", "fcfs", "wfp3@oracle", "shortest:none@stated")),
    ],
)
def test_fgd_in_the_environment_matches_the_simulator_event_for_event(protocol, order):
    workload, rule = embedded(SMALL), HeuristicPolicy("fgd", (FGD,), (1.0,), fgd_devices=False)
    policy, load = with_order(rule, find_order(order)), 0.9 if order == "age" else 1.1
    plan = schedule(workload, protocol, seed=7, ratio=1.3, load=load)
    execution = Execution(Simulator(workload), plan, policy, 7, record=False)
    execution.finish(None)
    env = SINGLE[protocol](load=load, order=order)
    env.reset(seed=0, options={"seed": 7})
    terminated, steps = False, 0
    while not terminated:
        _, _, terminated, _, info = env.step(env.heuristic("fgd"))
        steps += 1
    run = env.core.run(0)
    assert run.progress == execution.engine.progress
    for one, other in zip(run.events(), execution.engine.events(), strict=True):
        assert np.array_equal(one, other)
    assert steps == int((execution.record().numbers[:, event_arrays.OUTCOME] == event_arrays.BOUND).sum())
    if protocol == "inflation":
        capacity = 1000 * sum(node.gpu_count for node in workload.nodes)
        assert info["allocation"] == pytest.approx(execution.engine.progress.gpu_milli / capacity)


def test_allocation_rewards_sum_to_final_use():
    env, total, terminated = InflationEnv(), 0.0, False
    env.reset(seed=4)
    while not terminated:
        _, reward, terminated, _, info = env.step(env.heuristic("best-fit"))
        total += reward
    gpus = sum(node.gpu_count for node in embedded(SMALL).nodes)
    assert total == pytest.approx(info["allocation"] * gpus)


def test_waiting_rewards_sum_to_total_waiting_time():
    workload, policy = embedded(SMALL), HeuristicPolicy("fgd", (FGD,), (1.0,), fgd_devices=False)
    result = Simulator(workload).run(policy, protocol="timed", seed=3, load=1.2)
    metrics = {metric.name: metric.value for metric in result.metrics}
    env, total, terminated = TimedEnv(objective="waiting-time", load=1.2), 0.0, False
    env.reset(options={"seed": 3})
    while not terminated:
        _, reward, terminated, _, _ = env.step(env.heuristic("fgd"))
        total += reward
    waited = metrics["waiting_time_mean_with_warm_start_seconds"] * metrics["pods_bound"]
    assert waited > 0
    assert -3600 * total == pytest.approx(waited)


@pytest.mark.parametrize("kind", SINGLE)
def test_an_illegal_action_places_nothing_and_costs_the_penalty(kind):
    env = SINGLE[kind](penalty=2.5)
    seen, _ = env.reset(seed=1)
    for _ in range(1000):
        if not seen["mask"].all():
            break
        # A full node comes sooner or later where the fullest is chosen.
        seen, *_ = env.step(env.heuristic("most-allocated"))
    wrong = np.flatnonzero(seen["mask"] == 0)
    assert len(wrong)
    for action in wrong[:3]:
        after, reward, terminated, truncated, info = env.step(np.int64(action))
        assert (reward, terminated, truncated, info["illegal"]) == (-2.5, False, False, True)
        assert all(np.array_equal(after[key], seen[key]) for key in seen)
    _, reward, _, _, info = env.step(np.int64(seen["mask"].argmax()))
    assert reward != -2.5
    assert not info["illegal"]


@pytest.mark.parametrize("kind", SINGLE)
def test_a_step_limit_truncates_and_does_not_terminate(kind):
    env = SINGLE[kind](step_limit=3)
    seen, _ = env.reset(seed=1)
    ends = []
    for _ in range(3):
        seen, _, terminated, truncated, _ = env.step(np.int64(seen["mask"].argmax()))
        ends.append((terminated, truncated))
    assert ends == [(False, False), (False, False), (False, True)]
    assert seen["mask"].any()  # the state goes on, so that an agent can bootstrap from it


@pytest.mark.parametrize("name", KINDS)
def test_one_seed_gives_one_trajectory_single_or_vectorised_across_resets(name):
    kind, more = KINDS[name]
    options = {"step_limit": 25, **more}
    vector = VECTOR[kind](3, **options)
    singles = [SINGLE[kind](**options) for _ in range(3)]
    seen, _ = vector.reset(seed=5)
    apart = [env.reset(seed=5 + e)[0] for e, env in enumerate(singles)]
    random = np.random.default_rng(0)
    for _ in range(60):
        actions = legal(seen["mask"], random)
        seen, rewards, terminated, truncated, infos = vector.step(actions)
        for e, env in enumerate(singles):
            apart[e], reward, *ends, info = env.step(actions[e])
            assert (rewards[e], terminated[e], truncated[e]) == (reward, *ends)
            assert infos["allocation"][e] == info["allocation"]
            if any(ends):
                assert all(np.array_equal(infos["final_obs"][e][key], apart[e][key]) for key in seen)
                assert infos["_final_obs"][e]
                assert infos["final_info"]["node_variance"][e] == info["node_variance"]
                apart[e], _ = env.reset()
            assert all(np.array_equal(seen[key][e], apart[e][key]) for key in seen)


@pytest.mark.parametrize("name", KINDS)
def test_restored_snapshot_continues_the_episode(name):
    kind, more = KINDS[name]

    def course(env, seen, steps: int, seed: int) -> list[np.ndarray]:
        random, found = np.random.default_rng(seed), []
        for _ in range(steps):
            seen, rewards, *_ = env.step(legal(seen["mask"], random))
            found += [rewards, *(seen[key].copy() for key in sorted(seen))]
        return found

    options = {"step_limit": 30, **more}
    env = VECTOR[kind](2, **options)
    seen, _ = env.reset(seed=9)
    course(env, seen, 20, 1)
    snapshot, seen = env.snapshot(), env._observe()
    assert all(isinstance(array, np.ndarray) for array in snapshot.values())
    expected = course(env, seen, 40, 2)  # past the limit, so that resets are in it
    for target in (env, VECTOR[kind](2, **options)):
        again = target.restore(snapshot)
        assert all(np.array_equal(again[key], seen[key]) for key in seen)
        got = course(target, again, 40, 2)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_make_vec_gives_the_vector_form_that_resets_in_the_same_step():
    env = gymnasium.make_vec("steersman/Deployments-v0", num_envs=4, vectorization_mode="vector_entry_point", nodes=3)
    assert isinstance(env.unwrapped, DeploymentsVectorEnv)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    seen, _ = env.reset(seed=1)
    assert seen in env.observation_space
    assert seen["nodes"].shape[:2] == (4, 3)
    env.close()


def test_observations_are_copies_unless_buffers_are_asked_for():
    for copy in (True, False):
        env = DeploymentsVectorEnv(2, copy=copy)
        first, _ = env.reset(seed=1)
        second, *_ = env.step(np.zeros(2, dtype=np.int64))
        assert (first["nodes"] is second["nodes"]) != copy
        assert np.array_equal(first["nodes"], second["nodes"]) != copy


def test_reset_mask_resets_only_selected_environments():
    env = DeploymentsVectorEnv(3)
    env.reset(seed=1)
    for _ in range(5):
        seen, *_ = env.step(np.zeros(3, dtype=np.int64))
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert [np.array_equal(after["context"][e], seen["context"][e]) for e in range(3)] == [True, False, True]


def test_every_reset_draws_a_workload_and_an_option_names_one():
    small = embedded(SMALL)
    other = Workload("other", small.nodes[:5], small.pods)
    env = InflationEnv(workload=[small, other])
    counts = set()
    for seed in range(8):
        seen, _ = env.reset(seed=seed)
        counts.add(int(seen["nodes"].any(axis=1).sum()))
    assert counts == {5, 64}
    seen, _ = env.reset(options={"workload": "other"})
    assert seen["nodes"].any(axis=1).sum() == 5
    while not env.step(env.heuristic("fgd"))[2]:
        pass
    assert set(env.core.names(0)) == {node.name for node in other.nodes}


def test_racks_and_servers_are_numbered():
    env = InflationEnv(servers_per_rack=4)
    seen, _ = env.reset(seed=1)
    names = [node.name for node in embedded(SMALL).nodes]
    order = [names.index(name) for name in env.core.names(0)]
    assert seen["groups"][:, 0].tolist() == [i // 4 for i in order]
    assert seen["groups"][:, 1].tolist() == order
    assert (InflationEnv().reset(seed=1)[0]["groups"] == -1).all()


def test_deployments_are_those_of_the_generator_in_distribution():
    settings, nodes = DeploymentSettings(cpu_load=0.3, memory_load=0.9, pod_load=0.9), cluster(10)
    random = np.random.default_rng(3)
    drawn = [[row for row in generate(settings, nodes, random) if row.action == "add"] for _ in range(150)]
    made = np.array([[len(rows), sum(row.pod_count for row in rows)] for rows in drawn])
    env = DeploymentsVectorEnv(50, settings=settings, copy=False)
    env.reset(seed=1)
    ours: list[list[int]] = []
    deployments = np.ones(50)
    while len(ours) < 400:
        seen, _, terminated, _, infos = env.step(env.heuristic("least-allocated"))
        begins = seen["pod"][:, CLUSTER.pod_column("owner_running")] == 0
        pods = infos["pods_bound"]
        ours += [[int(deployments[e]), int(pods[e])] for e in np.flatnonzero(terminated)]
        deployments = np.where(terminated, 1, deployments + begins)
    for column in (0, 1):
        a, b = made[:, column], np.array(ours)[:, column]
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) < 4 * error
        assert 0.7 < a.std() / b.std() < 1.4


def test_every_request_of_a_deployment_is_equally_likely():
    seen, _ = DeploymentsVectorEnv(4000, copy=False).reset(seed=2)
    for name, count in (("cpu", 9), ("memory", 12)):
        _, found = np.unique(seen["pod"][:, CLUSTER.pod_column(name)], return_counts=True)
        assert len(found) == count
        expected = 4000 / count
        assert ((found - expected) ** 2 / expected).sum() < 40  # chi-square of at most 11 degrees of freedom


def test_every_number_of_replicas_is_equally_likely():
    settings = DeploymentSettings(cpu_load=10.0, memory_load=10.0, pod_load=10.0, min_replicas=2, max_replicas=4)
    env = DeploymentsVectorEnv(8, settings=settings, node_cpu="4000", node_memory="40Ti", node_pods=4000, copy=False)
    env.reset(seed=3)
    sizes, size = np.zeros(5), np.ones(8, dtype=np.int64)
    for _ in range(2000):
        seen, *_ = env.step(env.heuristic("least-allocated"))
        begins = seen["pod"][:, CLUSTER.pod_column("owner_running")] == 0
        sizes += np.bincount(size[begins], minlength=5)
        size = np.where(begins, 1, size + 1)
    assert sizes[:2].sum() == 0
    expected = sizes.sum() / 3
    assert ((sizes[2:] - expected) ** 2 / expected).sum() < 20  # chi-square of 2 degrees of freedom


def test_cluster_is_filled_as_often_as_requested_and_drops_pods():
    settings = DeploymentSettings(
        pod_load=2.0, cpu_load=2.0, memory_load=2.0, resets=2, cpu_requests=("1",), cpu_limits=("1",)
    )
    env = DeploymentsEnv(nodes=2, node_cpu="10", settings=settings)
    env.reset(seed=1)
    loads, terminated = [], False
    while not terminated:
        _, _, terminated, _, info = env.step(env.heuristic("least-allocated"))
        loads.append(info["allocation"])
    # 20 cores hold 20 pods; then they are cleared and filled again.
    assert loads == pytest.approx([i / 20 for i in range(1, 21)] * 2)
    assert info["pods_bound"] == 40
    assert info["pods_dropped"] >= 40


def test_clusters_of_drawn_sizes_share_one_observation_space():
    env = DeploymentsEnv(nodes=(2, 5), max_nodes=8)
    sizes = set()
    for seed in range(20):
        seen, _ = env.reset(seed=seed)
        assert seen["nodes"].shape == (8, len(env.core.view.node))
        sizes.add(int(seen["mask"].sum()))
        assert not seen["nodes"][seen["mask"] == 0].any()
    assert sizes == {2, 3, 4, 5}
    seen, _ = env.reset(options={"nodes": 3})
    assert seen["mask"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", SINGLE)
def test_render_shows_every_node(kind):
    env = SINGLE[kind](render_mode="ansi")
    env.reset(seed=1)
    for _ in range(20):
        env.step(np.int64(env.action_masks().argmax()))
    lines = env.render().splitlines()
    assert [line[2:].split()[0] for line in lines[1:]] == env.core.names(0)
    assert any(re.search(r"[1-9]\d*%", line) for line in lines[1:])
    picture = SINGLE[kind](render_mode="rgb_array")
    picture.reset(seed=1)
    before = picture.render()
    picture.step(np.int64(picture.action_masks().argmax()))
    assert before.dtype == np.uint8
    assert before.shape == picture.render().shape
    assert (before != picture.render()).any()


CPU_ONLY = Workload("cpu", (Node("a", 1000, GIB),), (Pod("p", PodClass(Requests(10))),))
HUGE = Workload(
    "huge",
    (Node("a", 1000, GIB, gpu_count=1, gpu_model="T4"),),
    (Pod("p", PodClass(Requests(2000, gpu_count=1, gpu_milli=500))),),
)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: InflationEnv(workload="nothing"), "unknown workload 'nothing'; known: "),
        (lambda: InflationEnv(objectve="allocation"), "unknown option of the environment 'objectve'; did you mean"),
        (lambda: TimedVectorEnv(2, ratios=1.0), "unknown option of the environment 'ratios'; did you mean 'ratio'?"),
        (lambda: DeploymentsEnv(node=3), "unknown option of the environment 'node'; did you mean 'nodes'?"),
        (lambda: DeploymentsEnv(penalty="high"), "DeploymentsOptions: penalty 'high' is not a number"),
        (lambda: InflationEnv(step_limit=2.5), "WorkloadOptions: step_limit 2.5 is not a whole number"),
        (lambda: InflationEnv().reset(options={"seed": "x"}), "reset option 'seed' must be a whole number, not 'x'"),
        (lambda: TimedEnv().reset(options={"load": "x"}), "reset option 'load' must be a number, not 'x'"),
        (lambda: InflationEnv(workload=[]), "give one or more"),
        (lambda: InflationEnv(workload=CPU_ONLY), "objective 'allocation' is undefined on cpu: its nodes have no GPU"),
        (lambda: InflationEnv(objective="joy"), "unknown objective 'joy'"),
        (lambda: InflationEnv(objective="waiting-time"), "no pod waits; steersman/Timed-v0"),
        (lambda: InflationEnv(order="smallest"), "order 'smallest': no pod waits here; steersman/Timed-v0 has waiting"),
        (lambda: TimedEnv(order="quickest"), "unknown order 'quickest'"),
        (lambda: InflationEnv(max_nodes=10), "default-small has 64 nodes, more than max_nodes 10"),
        (lambda: InflationEnv(view="x"), "unknown view 'x'"),
        (lambda: DeploymentsEnv(view="gpu"), "view 'gpu' is about GPUs, which no node has here"),
        (lambda: InflationEnv(penalty=-1), "penalty must be at least 0, not -1"),
        (lambda: InflationEnv(render_mode="human"), "render_mode 'human' is unknown"),
        (lambda: InflationVectorEnv(0), "num_envs must be at least 1, not 0"),
        (lambda: InflationEnv().heuristic("fgd"), "reset the environment before anything else"),
        (lambda: InflationEnv().reset(options={"sed": 1}), "unknown reset option 'sed'; did you mean 'seed'?"),
        (lambda: InflationEnv().reset(options={"workload": "x"}), "'x' is unknown; there are default-small"),
        (lambda: InflationEnv(workload=HUGE, ratio=5).reset(), "no pod fits on any node"),
        (lambda: DeploymentsEnv(objective="allocation"), "objective 'allocation' is undefined on Deployments"),
        (lambda: DeploymentsEnv(nodes=0), "nodes 0 is out of range"),
        (lambda: DeploymentsEnv(nodes=5, max_nodes=4), "nodes 5 is out of range"),
        (lambda: DeploymentsEnv(node_cpu="2"), "is more than a node has"),
        (lambda: DeploymentsEnv().reset(options={"nodes": 11}), "'nodes' must be from 1 to 10, not 11"),
        (lambda: DeploymentsVectorEnv(2).reset(seed=[1]), "1 seeds were given for 2 environments"),
    ],
)
def test_wrong_options_fail_in_one_line(make, problem):
    with pytest.raises(SteersmanError) as caught:
        make()
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", SINGLE)
def test_illegal_actions_alone_truncate_every_environment(kind):
    env = SINGLE[kind]()
    seen, _ = env.reset(seed=1)
    while seen["mask"].all():
        seen, *_ = env.step(env.heuristic("most-allocated"))
    wrong = int(np.flatnonzero(seen["mask"] == 0)[0])
    for _ in range(5000):
        *_, terminated, truncated, _ = env.step(wrong)
        if truncated:
            break
    assert (terminated, truncated) == (False, True)
    with raises(UsageError, "reset()"):
        env.step(wrong)


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("action", [-1, 64, 1 << 40, 0.5, "first", None])
def test_actions_that_are_not_a_slot_are_rejected(kind, action):
    env, vector = SINGLE[kind](), VECTOR[kind](2)
    env.reset(seed=1)
    vector.reset(seed=1)
    with pytest.raises(UsageError, match=r"expected a slot from 0 to|must be integers"):
        env.step(action)
    with pytest.raises(UsageError, match=r"expected a slot from 0 to|must be integers"):
        vector.step([0, action])


def test_a_step_before_the_first_reset_is_rejected():
    with raises(UsageError, "reset()"):
        DeploymentsEnv().step(0)


@pytest.mark.parametrize("order", ["import steersman, gymnasium", "import gymnasium, steersman"])
def test_gymnasium_makes_environments_once_the_package_is_imported(order):
    program = f"{order}; print(gymnasium.make('steersman/Deployments-v0').unwrapped.action_space)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("Discrete(10)\n", "")


def test_actions_of_another_shape_are_rejected():
    env = DeploymentsVectorEnv(2)
    env.reset(seed=1)
    with raises(UsageError, "3", "2"):
        env.step(np.zeros(3, dtype=np.int64))


def test_maskable_ppo_trains_on_it_unchanged():
    sb3_contrib = pytest.importorskip("sb3_contrib")
    for name in IDS:
        env = gymnasium.make(name)
        model = sb3_contrib.MaskablePPO(
            "MultiInputPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=1, device="cpu"
        )
        model.learn(128)
        assert model.num_timesteps == 128


@pytest.mark.parametrize("name", IDS[:2])
def test_view_gpu_shows_what_the_score_table_sees_wherever_a_pod_fits(name):
    env, random = gymnasium.make(name, view="gpu").unwrapped, np.random.default_rng(3)
    check_env(env, skip_render_check=True)
    seen, _ = env.reset(seed=0, options={"seed": 5})
    simulator = Simulator(embedded(SMALL))
    protocol = env.core.protocol
    for _ in range(150):
        assert all(env.observation_space[key].contains(value) for key, value in seen.items())
        state, plan = env.core.cluster(0), schedule(simulator.workload, protocol, seed=5, ratio=1.3, load=0.9)
        c = int(simulator.classes_of(plan.pods)[0][env.core.run(0).question])
        assert not seen["nodes"][seen["mask"] == 0].any()
        classes = state.class_arrays
        # FGD's weights choose FGD's device; a pod of a whole device or none has no choice.
        rows = CoreDecider(described(LinearPolicy("l", fgd_weights()), state, simulator.profile)).features(c)
        if classes.gpu_count[c] != 1 or classes.gpu_milli[c] == GPU_MILLI:
            np.testing.assert_allclose(seen["nodes"], rows, rtol=1e-5, atol=1e-4)
        else:  # the environment's device is the fullest: what is idle afterwards is the same, on whichever device
            idle = GPU.node_column("idle_after")
            np.testing.assert_allclose(seen["nodes"][:, idle], rows[:, idle], rtol=1e-5, atol=1e-4)
        seen, _, terminated, _, _ = env.step(legal(seen["mask"], random))
        if terminated:
            break


@pytest.mark.parametrize(
    ("name", "options", "resets"),
    [
        ("Inflation", WorkloadOptions, workload.RESET_OPTIONS),
        ("Timed", None, workload.RESET_OPTIONS),
        ("Deployments", DeploymentsOptions, deployments.RESET_OPTIONS),
        ("Latency", LatencyOptions, latency.RESET_OPTIONS),
    ],
)
def test_the_reference_page_names_every_option_and_info(name, options, resets):
    page = (Path(__file__).parents[3] / "docs" / "reference" / "environments.md").read_text()
    section = page.split(f"## steersman/{name}-v0")[1].split("\n## ")[0]

    def listed(start: str) -> set[str]:
        return set(re.findall(r"`([\w-]+)`", section.split(start)[1].split("\n- ")[0]))

    assert set(resets) <= listed("- Options of `reset`: ")
    if options is not None:
        assert set(options.__dataclass_fields__) <= listed("- Options: ")
        env = gymnasium.make(f"steersman/{name}-v0")
        seen, _ = env.reset(seed=1)
        *_, info = env.step(int(seen["mask"].argmax()))
        assert set(info) <= listed("- Info: ")


def test_infos_describe_the_state_after_the_action():
    core = InflationVectorEnv(2).core
    random = np.random.default_rng(5)
    for e in range(2):
        core.start(e, random, {})
    for _ in range(60):
        core.step((core.observation.mask * random.random(core.observation.mask.shape)).argmax(axis=1))
    infos, after = core.infos(), core.states[:, 2]
    assert infos["allocation"].tolist() == (after[:, summed.GPU_TAKEN] / after[:, summed.GPU_TOTAL]).tolist()
    nodes = after[:, summed.CPU_NODES]
    variance = after[:, summed.CPU_SQUARE] / nodes - (after[:, summed.CPU_SHARE] / nodes) ** 2
    assert infos["node_variance"] == pytest.approx(variance, abs=1e-15)
    assert infos["waiting"].dtype == np.int64
    assert infos["illegal"].tolist() == [False, False]
