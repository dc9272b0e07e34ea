"""The simulated cluster with telemetry, against slow and obvious versions of itself."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.cluster import node_metrics
from steersman.cluster.node_metrics import (
    LATENCY,
)
from steersman.core.compiled import kernel
from steersman.core.errors import UsageError
from steersman.core.random_numbers import normal, uniform
from steersman.envs.latency import state
from steersman.envs.latency.environment import LatencyCore, LatencyOptions
from steersman.envs.latency.state import (
    NOW,
)
from steersman.objectives import latency
from steersman.policies.node_metrics import arrays
from steersman.policies.node_metrics.arrays import (
    HARD,
    NODES,
    POD,
    SOFT,
)
from steersman.workloads.generators.latency_settings import LatencySettings, checked

MASK = (1 << 64) - 1
# One shape of arrays for most tests, so that kernels meet the same types; calm: nothing random about load and samples.
SMALL = LatencySettings(nodes=4, max_nodes=5, pods=60)
CALM = SMALL._replace(swing=0.0, load_noise=0.0, noise=0.0, missed=0.0, load=2.0, warmup=0.0)


@kernel
def fill_uniform(rng, stream, out):
    for i in range(out.shape[0]):
        out[i] = uniform(rng, 0, stream)


@kernel
def fill_normal(rng, stream, out):
    for i in range(out.shape[0]):
        out[i] = normal(rng, 0, stream)


def started(chosen, count=1, seed=0):
    core = LatencyCore(count, LatencyOptions(settings=chosen, keep_hard_limits=False))
    for e in range(count):
        core.start(e, np.random.default_rng(0), {"seed": seed + e})
    return core


def calm(seed):
    """An environment in which nothing changes but by decisions: no pod leaves either."""
    core = started(CALM, seed=seed)
    core.simulator.leave[:] = np.inf
    return core


def random_actions(core, rng):
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in core.observation.mask], dtype=np.int64)


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


@given(seed=st.integers(0, MASK))
def test_uniform_numbers_are_those_of_splitmix64(seed):
    rng, out = np.array([[0, seed]], dtype=np.uint64), np.zeros(5)
    fill_uniform(rng, 1, out)
    state, expected = seed, []
    for _ in range(5):
        state, bits = splitmix64(state)
        expected.append((bits >> 11) * 2.0**-53)
    assert out.tolist() == expected
    assert int(rng[0, 1]) == state
    assert int(rng[0, 0]) == 0


def test_normal_numbers_have_mean_0_and_variance_1():
    out = np.zeros(100_000)
    fill_normal(np.array([[7]], dtype=np.uint64), 0, out)
    assert abs(out.mean()) < 0.02
    assert abs(out.var() - 1.0) < 0.03
    assert abs((np.abs(out) < 1.0).mean() - 0.6827) < 0.01


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), busy=st.booleans(), moves=st.randoms(use_true_random=False))
def test_node_sums_requests_and_use_of_its_pods(seed, busy, moves):
    core = started(SMALL._replace(load=1.5 if busy else 0.4, lifetime=300.0), seed=seed)
    simulator, seen, n_max = core.simulator, core.simulator.scheduler_view, core.max_nodes
    for _ in range(50):
        core.step(np.array([moves.choice(np.flatnonzero(core.observation.mask[0]).tolist())]))
        if core.terminated[0]:
            break
        running = np.flatnonzero(simulator.slot[0] >= 0)
        for n in range(n_max):
            here = running[simulator.slot[0, running] == n]
            taken = seen.nodes.allocatable[n] - seen.nodes.free[n]
            assert (taken == seen.pods.request[here].sum(axis=0)).all()
            assert (seen.nodes.free[n] >= 0).all()
            assert (simulator.node_use[0, n].sum(axis=0) == simulator.pod_use[0, here].sum(axis=0)).all()
            for z in range(SMALL.zones):
                users = here[seen.user[0, here] == z]
                assert (simulator.node_use[0, n, z] == simulator.pod_use[0, users].sum(axis=0)).all()
        # Whoever runs has arrived and has not left yet.
        assert (simulator.arrival[0, running] <= simulator.clock[0, NOW]).all()
        assert (simulator.leave[0, running] > simulator.clock[0, NOW]).all()


def test_arrivals_do_not_depend_on_decisions():
    """Runs of two policies are paired: the same pods, load and errors of measurement, whatever they decide."""
    cores = {rule: started(SMALL, count=3) for rule in ("most-allocated", "least-connections")}
    loads = {rule: [] for rule in cores}
    for rule, core in cores.items():
        time = 0.0
        while not core.terminated.any():
            core.step(core.rule_actions(rule))
            time = core.simulator.clock[0, state.NEXT_LOAD]
            loads[rule].append((time, *core.simulator.load[0]))
    a, b = (core.simulator for core in cores.values())
    for name in ("arrival", "leave", "pod_use", "distance", "system", "offset"):
        assert (getattr(a, name) == getattr(b, name)).all(), name
    assert (a.slot != b.slot).any()
    assert loads["most-allocated"] == loads["least-connections"]
    assert (a.rng == b.rng).all()


def test_seed_determines_the_episode():
    a, b, other = started(SMALL, seed=5), started(SMALL, seed=5), started(SMALL, seed=6)
    assert (a.simulator.arrival == b.simulator.arrival).all()
    assert (a.observation.nodes == b.observation.nodes).all()
    assert (a.simulator.arrival != other.simulator.arrival).any()


def test_load_matches_the_requested_one():
    """Little's law: requested CPU = arrival rate x lifetime x request."""
    core = started(LatencySettings(pods=20_000, nodes=12, load=0.6), seed=3)
    request = core.simulator.scheduler_view.pods.request[:, 0]
    work = (request * (core.simulator.leave[0] - core.simulator.arrival[0])).sum()
    capacity = core.simulator.scheduler_view.nodes.allocatable[:, 0].sum()
    assert work / (core.simulator.arrival[0, -1] * capacity) == pytest.approx(0.6, rel=0.1)
    assert (np.diff(core.simulator.arrival[0]) >= 0).all()
    assert (np.diff(core.simulator.leave[0, core.simulator.order[0]]) >= 0).all()
    assert sorted(core.simulator.order[0]) == list(range(20_000))


def test_copies_are_equal_and_depart_together():
    """The loop of Matranga's thesis: a Deployment every `copy_interval`, all deleted after `copy_pause`, again."""
    core = started(SMALL._replace(copies=3, copy_interval=4.0, copy_pause=20.0, replicas=2, pods=60), seed=4)
    simulator, view = core.simulator, core.simulator.scheduler_view
    arrival, leave = simulator.arrival[0], simulator.leave[0]
    ends = np.unique(leave)
    for i, end in enumerate(ends[:-1]):  # the last ones may be cut off
        pods = np.flatnonzero(leave == end)
        begin = arrival[pods[0]]
        assert np.unique(arrival[pods]).tolist() == [begin, begin + 4.0, begin + 8.0]
        assert end == begin + 8.0 + 20.0
        assert begin == (60.0 if i == 0 else ends[i - 1] + 20.0)
        for alike in (view.pods.request[pods], view.limit[0, pods], view.user[0, pods][:, None]):
            assert (alike == alike[0]).all()
        assert len(pods) == 3 * view.replica[0, pods[0], 1]
    used = simulator.pod_use[0, : len(np.flatnonzero(leave == ends[0])), 1]
    assert len(set(used.tolist())) > 1
    assert len({tuple(view.pods.request[np.flatnonzero(leave == end)[0]]) for end in ends}) > 1


class Diary:
    """What is true over time where nothing changes but by decisions: [time, node, share of CPU...], kept by hand."""

    def __init__(self, core):
        self.core, self.bound = core, [[] for _ in range(core.max_nodes)]

    def decide(self, n):
        self.bound[n].append(
            (self.core.simulator.clock[0, NOW], int(self.core.simulator.scheduler_view.counts[0, POD]))
        )

    def value(self, n, column, time):
        """At a time; a pod that is bound at the very moment does not count yet."""
        return sum(int(self.core.simulator.pod_use[0, pod, column]) for bound, pod in self.bound[n] if bound < time)

    def integral(self, n, column, since, until, most):
        times = sorted({since, until} | {bound for bound, _ in self.bound[n] if since < bound < until})
        total = 0.0
        for a, b in itertools.pairwise(times):
            total += (b - a) * min(self.value(n, column, b), most)
        return total

    def scrapes(self, n, now, window):
        offset, times, k = self.core.simulator.offset[0, n], [], 0
        while offset + 15.0 * k <= now:
            times.append(offset + 15.0 * k)
            k += 1
        return [time for time in times if time >= now - window]


def test_metrics_match_prometheus_queries():
    core = calm(11)
    diary, rng = Diary(core), np.random.default_rng(1)
    simulator, seen = core.simulator, core.simulator.scheduler_view
    compared = 0
    for _ in range(40):
        now = simulator.clock[0, NOW]
        for n in range(seen.counts[0, NODES]):
            measured, capacity = seen.measured[0, n], seen.nodes.allocatable[n, 0]
            last = diary.scrapes(n, now, 60.0)[-2:]
            used = simulator.system[0, n] + diary.integral(n, state.USE_CPU, *last, np.inf) / (last[1] - last[0])
            assert measured[node_metrics.CPU_USED] == pytest.approx(100.0 * min(used / capacity, 1.0), rel=1e-9)
            first = diary.scrapes(n, now, 300.0)[0]
            received = diary.integral(n, state.USE_NETWORK, first, last[1], 125e6) / (last[1] - first)
            assert measured[node_metrics.NETWORK_RECEIVED] == pytest.approx(received, rel=1e-9, abs=1e-6)
            connections = 20.0 + diary.value(n, state.USE_CONNECTIONS, last[1])
            assert measured[node_metrics.CONNECTIONS] == round(connections)
            memory = seen.nodes.allocatable[n, 1] - (1 << 30) - diary.value(n, state.USE_MEMORY, last[1])
            assert measured[node_metrics.MEMORY_AVAILABLE] == pytest.approx(max(memory, 0.0))
            pods = sum(bound < last[1] for bound, _ in diary.bound[n])
            assert measured[node_metrics.RUNNING_PODS] == pods
            assert seen.since[0, n, arrays.PODS_SINCE] == len(diary.bound[n]) - pods
            assert seen.age[0, n, node_metrics.CPU_USED] == pytest.approx(now - last[1])
            compared += pods > 0
        n = int(random_actions(core, rng)[0])
        diary.decide(n)
        core.step(np.array([n]))
    assert compared > 50


def test_requests_since_the_cpu_metric_are_those_not_in_it():
    """Were use equal to requests, the metric and the requests since would add up to what is requested now."""
    core = calm(2)
    core.simulator.pod_use[0, :, state.USE_CPU] = core.simulator.scheduler_view.pods.request[:, 0]
    core.simulator.system[:] = 0.0
    rng, seen, corrected = np.random.default_rng(0), core.simulator.scheduler_view, 0
    for _ in range(40):
        core.step(random_actions(core, rng))
        # The minute before the first pod was measured with the system's own use.
        for n in range(seen.counts[0, NODES]):
            capacity = seen.nodes.allocatable[n, 0]
            requested = capacity - seen.nodes.free[n, 0]
            if core.simulator.clock[0, NOW] > 120.0:
                measured = seen.measured[0, n, node_metrics.CPU_USED] / 100.0 * capacity
                assert measured + seen.since[0, n, arrays.REQUESTED_SINCE] == pytest.approx(requested, abs=1e-6)
                corrected += seen.since[0, n, arrays.REQUESTED_SINCE] > 0
    assert corrected > 10


def test_a_failed_scrape_leaves_no_value_and_a_growing_age():
    core = started(SMALL._replace(missed=0.3), count=4, seed=1)
    seen, rng = core.simulator.scheduler_view, np.random.default_rng(0)
    gone = lost = 0
    for _ in range(50):
        core.step(random_actions(core, rng))
        if core.terminated.any():
            break
        for e in range(4):
            now, down = core.simulator.clock[e, NOW], core.simulator.down[e]
            for n in range(seen.counts[e, NODES]):
                samples = np.sort(core.simulator.ring[e, n, : core.simulator.rings[e, n], 0])
                enough = (samples >= now - 60.0).sum() >= 2
                measured, age = seen.measured[e, n], seen.age[e, n]
                assert np.isnan(measured[node_metrics.CPU_USED]) == (not enough)
                since = now - samples[-1] if len(samples) else node_metrics.AGE_LIMIT
                assert age[node_metrics.CPU_USED] == pytest.approx(min(since, node_metrics.AGE_LIMIT))
                if down[n] > 0:
                    assert np.isnan(measured[node_metrics.MEMORY_AVAILABLE :][[0, 1, 3, 4, 5]]).all()
                    gone += 1
                lost += np.isnan(measured[LATENCY]) and not np.isnan(measured[node_metrics.CONNECTIONS])
                assert ((age >= 0) & (age <= node_metrics.AGE_LIMIT)).all()
    assert gone > 20
    assert lost > 0


def slow_latency(core, e, pod, n):
    """Milliseconds to a pod's users from node n if it ran there, by the formula of `truth.latency`."""
    simulator = core.simulator
    use = simulator.node_use[e, n].astype(float).copy()
    user = simulator.scheduler_view.user[e, pod]
    use[user] += simulator.pod_use[e, pod]
    total = (use * simulator.load[e][:, None]).sum(axis=0)
    capacity = simulator.scheduler_view.nodes.allocatable[e * core.max_nodes + n, 0]
    busy = max((simulator.system[e, n] + total[state.USE_CPU]) / capacity, total[state.USE_NETWORK] / 125e6)
    return simulator.distance[e, simulator.scheduler_view.zone[e, n], user] + core.settings.service / (
        1.0 - min(busy, 0.98)
    )


def test_limits_are_judged_by_the_truth_after_the_placement():
    core = started(SMALL._replace(load=2.0, distance=300.0), count=8, seed=3)
    rng, counts = np.random.default_rng(0), [0, 0, 0, 0]
    for _ in range(55):
        expected = []
        actions = random_actions(core, rng)
        for e, n in enumerate(actions):
            pod = core.simulator.scheduler_view.counts[e, POD]
            if core.simulator.scheduler_view.user[e, pod] < 0:
                expected.append(latency.WITHIN_SOFT)
                continue
            soft, hard = core.simulator.scheduler_view.limit[e, pod]
            there = slow_latency(core, e, pod, n)
            room = np.flatnonzero(core.observation.mask[e])
            possible = any(slow_latency(core, e, pod, other) <= hard for other in room)
            within = latency.WITHIN_SOFT if there <= soft else latency.WITHIN_HARD
            expected.append(within if there <= hard else latency.BEYOND_AVOIDABLE if possible else latency.BEYOND_ANY)
        core.step(actions)
        if core.terminated.any():
            break
        assert core.task.counts[:, 2].tolist() == expected
        for kept in expected:
            counts[kept] += 1
    assert min(counts) > 0, counts


def test_metrics_are_time_averages():
    core = calm(4)
    diary, rng = Diary(core), np.random.default_rng(2)
    while True:
        n = (
            int(random_actions(core, rng)[0])
            if core.simulator.scheduler_view.counts[0, POD] % 3 == 0
            else int(np.flatnonzero(core.observation.mask[0])[0])
        )
        diary.decide(n)
        core.step(np.array([n]))
        if core.terminated[0]:
            break
    count, ticks = (
        core.simulator.scheduler_view.counts[0, NODES],
        np.arange(0.0, core.simulator.clock[0, state.NEXT_LOAD], 15.0),
    )
    empty, deviation, most, peak = 0, 0.0, 0.0, 0.0
    for tick in ticks:
        capacity = core.simulator.scheduler_view.nodes.allocatable[:count, 0]
        wanted = [core.simulator.system[0, n] + diary.value(n, state.USE_CPU, tick) for n in range(count)]
        connections = max(20.0 + diary.value(n, state.USE_CONNECTIONS, tick) for n in range(count))
        empty += sum(not any(bound < tick for bound, _ in diary.bound[n]) for n in range(count))
        deviation += np.minimum(np.array(wanted) / capacity, 1.0).std()
        most, peak = most + connections, max(peak, connections)
    found = {name: values[0] for name, values in core.figures().items()}
    assert found["empty_nodes"] == pytest.approx(empty / len(ticks))
    assert found["used_nodes"] == pytest.approx(count - empty / len(ticks))
    assert found["cpu_use_deviation_percent"] == pytest.approx(100.0 * deviation / len(ticks))
    assert found["connections_maximum_mean"] == pytest.approx(most / len(ticks))
    assert found["connections_peak"] == peak
    assert found["placed_pods"] + found["refused_pods"] == CALM.pods


def test_latency_is_symmetric_and_limits_are_ordered():
    core = started(SMALL, count=3)
    distance = core.simulator.distance
    assert (distance == np.swapaxes(distance, 1, 2)).all()
    assert (np.diagonal(distance, axis1=1, axis2=2) == 2.0).all()
    assert (distance <= 2.0 + SMALL.distance * math.sqrt(2.0)).all()
    limit, user = core.simulator.scheduler_view.limit, core.simulator.scheduler_view.user
    assert (limit[..., SOFT] < limit[..., HARD])[user >= 0].all()
    assert np.isinf(limit[user < 0]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 1}, "setting 'nodes': 1 is out of range; expected a whole number from 2 to 1000"),
        ({"pods": 2.5}, "setting 'pods': 2.5 is out of range; expected a whole number from 1 to 100000"),
        ({"load": math.nan}, "setting 'load': nan is out of range; expected a number from 0.01 to 2"),
        ({"noise": "much"}, "setting 'noise': 'much' is out of range; expected a number from 0 to 0.5"),
        ({"nodes": 20}, "setting 'nodes': 20 are more than 'max_nodes', 16"),
    ],
)
def test_a_wrong_setting_fails_in_one_line(change, message):
    with pytest.raises(UsageError) as error:
        checked(LatencySettings(**change))
    assert str(error.value) == message
