"""The simulated cluster in real time: the model of `steersman/Latency-v0`, with nodes and pods that come and go."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from steersman.cluster.model import NO_LIMITS, LatencyLimits, Node, Pod, PodClass, Requests
from steersman.envs.latency import LiveModel, Truth, kind_of
from steersman.workloads.generators.latency_settings import (
    CACHE,
    SYSTEM_CPU,
    WEB,
    WORKER,
    LatencySettings,
)

SYSTEM_CONNECTIONS, MAX_CONNECTIONS = 20.0, 1000.0
LIMITS = LatencyLimits(35.0, 100.0)
CALM = LatencySettings(swing=0.0, load_noise=0.0, noise=0.0, missed=0.0)


def node(name: str, cpu: int = 8000, **labels: str) -> Node:
    return Node(name, cpu, 32 << 30, 110, labels=labels)


def pod(cpu: int = 250, memory: int = 256 << 20, latency: LatencyLimits = LIMITS) -> Pod:
    return Pod("p", PodClass(Requests(cpu, memory)), latency=latency)


def model(nodes: int = 4, chosen: LatencySettings = CALM, seed: int = 0) -> LiveModel:
    made = LiveModel(chosen, seed)
    for i in range(nodes):
        made.put_node(node(f"n{i}"), 0.0)
    return made


def scraped(made: LiveModel, name: str, time: float):
    """Lost scrapes of the probe are tried again at once."""
    for _ in range(20):
        sample = made.scrape(name, time)
        if sample is not None and not math.isnan(sample.latency):
            return sample
    raise AssertionError("every scrape is lost")


def test_a_cluster_without_nodes_is_no_error():
    made = LiveModel(CALM)
    assert made.truth(1.0) == Truth(*[0.0] * len(Truth._fields))
    assert made.scrape("n0", 2.0) is None
    made.unbind("p", 3.0)
    made.remove_node("n0", 4.0)
    made.bind("p", pod(), "d", "n0", 5.0)
    assert made.truth(6.0).placed == 0


def test_cpu_seconds_match_modelled_use():
    made = model(1)
    before = scraped(made, "n0", 10.0)
    for i in range(10):
        made.bind(f"p{i}", pod(), "d", "n0", 20.0)
    middle, after = scraped(made, "n0", 20.0), scraped(made, "n0", 30.0)
    low, high = (amount / 8000 for amount in SYSTEM_CPU)
    share = (middle.used_seconds - before.used_seconds) / 10
    assert low <= share <= high
    busy = (after.used_seconds - middle.used_seconds) / 10
    assert share < busy <= share + 10 * 250 * 2.0 / 8000
    for sample, time in ((before, 10.0), (middle, 20.0), (after, 30.0)):
        assert sample.idle_seconds + sample.used_seconds == pytest.approx(time)
    assert after.connections > middle.connections - 1 >= SYSTEM_CONNECTIONS - 1
    assert middle.network_received == before.network_received == 0
    assert after.network_received > 0
    assert after.memory_available < before.memory_available <= before.memory_total == 32 << 30
    assert after.filesystem_available < before.filesystem_available < before.filesystem_size
    assert after.latency > before.latency


def test_cpu_use_never_exceeds_capacity():
    made = model(1)
    for i in range(200):
        made.bind(f"p{i}", pod(4000, latency=NO_LIMITS), f"d{i}", "n0", 1.0)
    one, two = scraped(made, "n0", 2.0), scraped(made, "n0", 12.0)
    assert two.used_seconds - one.used_seconds == pytest.approx(10.0)
    assert two.idle_seconds == one.idle_seconds


def test_pod_use_depends_on_its_deployment_not_its_node():
    def used(where: str, order: list[str], seed: int = 0) -> float:
        made = model(2, seed=seed)
        for owner in order:
            made.bind(f"{owner}-a", pod(), owner, where, 1.0)
            made.bind(f"{owner}-b", pod(), owner, where, 1.0)
        return made.truth(2.0).connections_maximum

    assert used("n0", ["x", "y"]) == used("n1", ["y", "x"])
    assert used("n0", ["x", "y"]) != used("n0", ["x", "z"])
    assert used("n0", ["x", "y"]) != used("n0", ["x", "y"], seed=1)
    assert used("n0", ["x"]) - SYSTEM_CONNECTIONS <= 2 * MAX_CONNECTIONS


def test_workload_kinds_are_inferred_from_limits_and_memory():
    assert kind_of(pod()) == WEB
    assert kind_of(pod(memory=4 << 30)) == CACHE
    assert kind_of(pod(memory=4 << 30, latency=NO_LIMITS)) == WORKER


def test_nodes_are_added_and_removed_with_their_pods():
    made = model(3)
    for i in range(6):
        made.bind(f"p{i}", pod(), "d", f"n{i % 3}", 1.0)
    made.bind("early", pod(), "d", "n3", 1.0)
    assert made.truth(2.0).limited_pods == 6
    last = scraped(made, "n2", 9.0)
    made.remove_node("n1", 10.0)
    assert made.node_names == ["n0", "n2"]
    truth = made.truth(11.0)
    assert (truth.limited_pods, truth.used_nodes, truth.empty_nodes) == (4, 2, 0)
    after = scraped(made, "n2", 12.0)
    assert after.idle_seconds + after.used_seconds == pytest.approx(12.0)
    assert after.connections == last.connections
    made.unbind("p1", 13.0)
    made.put_node(node("n3"), 14.0)
    made.put_node(node("n1"), 15.0)
    assert made.truth(16.0).limited_pods == 4 + 1 + 1
    fresh = scraped(made, "n1", 20.0)
    assert fresh.idle_seconds + fresh.used_seconds == pytest.approx(5.0)
    made.put_node(node("n0", cpu=16000), 21.0)
    assert made.truth(22.0).limited_pods == 4 + 1 + 1


@given(moves=st.lists(st.tuples(st.sampled_from("bund"), st.integers(0, 5), st.integers(0, 40)), max_size=60))
@settings(max_examples=examples(25), deadline=None)
def test_pods_run_where_there_is_a_node_of_that_name(moves):
    made, bound, there = LiveModel(CALM), {}, set()
    for time, (move, n, p) in enumerate(moves):
        if move == "n":
            made.put_node(node(f"n{n}"), time)
            there.add(f"n{n}")
        elif move == "d":
            made.remove_node(f"n{n}", time)
            there.discard(f"n{n}")
        elif move == "b":
            made.bind(f"p{p}", pod(), f"d{p // 3}", f"n{n}", time)
            bound.setdefault(f"p{p}", f"n{n}")
        else:
            made.unbind(f"p{p}", time)
            bound.pop(f"p{p}", None)
    assert set(made.node_names) == there
    truth = made.truth(len(moves))
    assert truth.limited_pods == sum(name in there for name in bound.values())
    assert truth.used_nodes == len(set(bound.values()) & there)
    assert truth.used_nodes + truth.empty_nodes == len(there)
    for counted in truth:
        assert counted >= 0


def test_model_grows_beyond_its_initial_capacity():
    made = model(2)
    for i in range(700):
        made.bind(f"p{i}", pod(1, 1), f"d{i // 10}", f"n{i % 2}", 1.0)
    assert made.truth(2.0).limited_pods == 700
    for i in range(700):
        made.unbind(f"p{i}", 3.0)
    assert made.truth(4.0).limited_pods == 0


def test_limits_are_judged_when_a_pod_is_bound():
    made = model(4)
    far, near = LatencyLimits(0.1, 0.2), LatencyLimits(5000.0, 10_000.0)
    made.bind("far", pod(latency=far), "d", "n0", 1.0)
    made.bind("near", pod(latency=near), "d", "n0", 1.0)
    made.bind("free", pod(latency=NO_LIMITS), "d", "n0", 1.0)
    truth = made.truth(2.0)
    assert (truth.placed, truth.placed_limited, truth.placed_within_soft) == (3, 2, 1)
    assert (truth.placed_beyond_hard, truth.placed_beyond_hard_avoidably) == (1, 0)
    assert (truth.limited_pods, truth.soft_limits_kept, truth.hard_limits_broken) == (2, 1, 1)


def test_nodes_of_a_zone_have_equal_latency():
    made = LiveModel(CALM, seed=5)
    for i, zone in enumerate(("a", "b", "a", "c")):
        made.put_node(node(f"n{i}", **{"topology.kubernetes.io/zone": zone}), 0.0)
    latency = [scraped(made, f"n{i}", 5.0).latency for i in range(4)]
    assert latency[0] == pytest.approx(latency[2], abs=0.2)
    assert len({round(each) for each in latency}) == 3


def test_some_scrapes_are_lost_and_samples_have_errors():
    made = model(1, CALM._replace(missed=0.3, noise=0.1))
    samples = [made.scrape("n0", float(time)) for time in range(1, 200)]
    assert 0.1 < sum(sample is None for sample in samples) / len(samples) < 0.95
    assert len({sample.connections for sample in samples if sample is not None}) > 3
    assert np.all(np.diff([sample.used_seconds for sample in samples if sample is not None]) >= 0)
