"""The workload of AAML's scheduler: what is generated, its CSV, and exact replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.cluster.model import Pod, Requests
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.manifests import pod_to_object
from steersman.core.errors import InputError, UsageError
from steersman.core.quantities import bytes_, cpu_milli
from steersman.workloads.generators.deployments import (
    DeploymentSettings,
    Row,
    cluster,
    generate,
    read_rows,
    replay,
    rows_of,
    write_rows,
)

HEADER = "name,pod_count,cpu_request,cpu_limit,mem_request,mem_limit,action\n"
REFERENCE = HEADER + "glad-desert,14,1000m,1000m,2.0Gi,2Gi,add\nfull-image,5,500m,1000m,1.5Gi,2Gi,add\n"


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_cluster_matches_aaml() -> None:
    control, *workers = cluster(3)
    assert [node.name for node in workers] == ["node-0000", "node-0001", "node-0002"]
    assert all((n.cpu_milli, n.memory_bytes, n.pods) == (64_000, 256 << 30, 110) for n in (control, *workers))
    assert (control.name, control.taints[0].effect) == ("control-plane", "NoSchedule")
    assert not any(node.taints for node in workers)


@settings(max_examples=examples(40))
@given(st.floats(0.05, 1.2), st.floats(0.05, 1.2), st.floats(0.05, 1.2), st.integers(1, 3), st.integers(0, 1000))
def test_every_epoch_fills_the_cluster(cpu: float, memory: float, pods: float, resets: int, seed: int) -> None:
    nodes = cluster(4)
    wanted = DeploymentSettings(cpu_load=cpu, memory_load=memory, pod_load=pods, resets=resets)
    rows = generate(wanted, nodes, rng(seed))
    capacity = np.array([4 * 64_000, 4 * 256 << 30, 4 * 110], dtype=float)
    targets = np.array([cpu, memory, pods])
    used, epochs = np.zeros(3), 0
    for row in rows:
        if row.action == "add":
            assert np.all(used / capacity < targets)
            used += row.pod_count * np.array([cpu_milli(row.cpu_request), bytes_(row.mem_request), 1])
        elif used.any():
            assert np.any(used / capacity >= targets)
            used, epochs = np.zeros(3), epochs + 1
    assert epochs == resets
    assert not used.any()
    added = [row for row in rows if row.action == "add"]
    assert len({row.name for row in added}) == len(added)
    assert all(5 <= row.pod_count <= 15 for row in added)
    assert all(cpu_milli(row.cpu_limit) >= cpu_milli(row.cpu_request) for row in added)
    assert all(bytes_(row.mem_limit) >= bytes_(row.mem_request) for row in added)


def test_the_same_seed_gives_the_same_rows() -> None:
    nodes = cluster(5)
    assert generate(DeploymentSettings(), nodes, rng(7)) == generate(DeploymentSettings(), nodes, rng(7))
    assert generate(DeploymentSettings(), nodes, rng(7)) != generate(DeploymentSettings(), nodes, rng(8))


def test_names_stay_unique_when_pairs_run_out() -> None:
    wanted = DeploymentSettings(pod_load=1.0, cpu_load=9, memory_load=9)
    names = [row.name for row in generate(wanted, cluster(2000), rng())]
    assert len(set(names)) * 2 == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz-") for name in names)


def test_replay_gives_times() -> None:
    def row(name: str, action: str = "add") -> Row:
        return Row(name, 2, "1", "1", "1Gi", "1Gi", action)

    rows = [row("a"), row("b"), row("a", "delete"), row("b", "delete"), row("c"), row("a")]
    pods = replay(rows, interval_seconds=10, wait_seconds=60, scheduler_name="steersman", namespace="ns")
    life = {pod.name: (pod.creation_time, pod.deletion_time) for pod in pods}
    assert life == {
        **{f"a-000{i}": (0.0, 70.0) for i in (1, 2)},
        **{f"b-000{i}": (10.0, 70.0) for i in (1, 2)},
        **{f"c-000{i}": (130.0, None) for i in (1, 2)},
        **{f"a-2-000{i}": (140.0, None) for i in (1, 2)},
    }
    assert {(p.scheduler_name, p.namespace, p.requests.cpu_milli) for p in pods} == {("steersman", "ns", 1000)}
    assert (pods[0].owner, pods[0].labels) == ("Deployment/a", {"app": "a"})


def test_reference_csv_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(REFERENCE)
    rows = read_rows(file)
    assert rows[0] == Row("glad-desert", 14, "1000m", "1000m", "2.0Gi", "2Gi", "add")
    assert len(replay(rows)) == 19
    assert replay(rows)[0].requests.memory_bytes == 2 << 30
    write_rows(rows, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == REFERENCE


def test_create_is_a_synonym_of_add(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(HEADER + "x,1,1,1,1Gi,1Gi,create\nx,1,1,1,1Gi,1Gi,Delete\n")
    assert [row.action for row in read_rows(file)] == ["add", "delete"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv, line 1, name: column is missing"),
        (HEADER, "a.csv: has no Deployments, only a header"),
        (HEADER.replace(",action", ""), "a.csv, line 1, action: column is missing"),
        (HEADER + "x,0,1,1,1Gi,1Gi,add", "a.csv, line 2, pod_count: '0' is not a number of pods"),
        (HEADER + "x,2.5,1,1,1Gi,1Gi,add", "line 2, pod_count: '2.5'"),
        (HEADER + ",1,1,1,1Gi,1Gi,add", "line 2, name: is empty"),
        (HEADER + "x,1,lots,1,1Gi,1Gi,add", "line 2, cpu_request: 'lots' is not a Kubernetes quantity"),
        (HEADER + "x,1,1,1,2Gi,1Gi,add", "line 2, mem_limit: 1Gi is below the request 2Gi"),
        (HEADER + "x,1,1,1,1Gi,-1Gi,add", "line 2, mem_limit: '-1Gi' is negative"),
        (HEADER + "x,1,1,1,1Gi,1Gi,scale", "line 2, action: 'scale' is unknown"),
        (HEADER + "x,1,9e15,9e15,1Gi,1Gi,add", "line 2, cpu_request: '9e15' is more than any real machine has"),
        (HEADER + "x,1,1,1,1Gi,8E,add", "line 2, mem_limit: '8E' is more than any real machine has"),
        (HEADER + "x\x00,1,1,1,1Gi,1Gi,add", "line 2, name: 'x\\x00' has a character that cannot be printed"),
        (HEADER + "y" * 200_000 + ",1,1,1,1Gi,1Gi,add", "line 2: has a cell of more than 131072 characters"),
        (HEADER + "x,1,1,1,1Gi,add", "line 2: has 6 cells where the header has 7"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        read_rows(file)
    assert message in str(caught.value)


def test_impossible_sequences_are_named() -> None:
    row = Row("x", 1, "1", "1", "1Gi", "1Gi")
    gone = Row("x", 1, "1", "1", "1Gi", "1Gi", "delete")
    with raises(InputError, "f.csv", "3"):
        replay([row, row], file="f.csv")
    with raises(InputError, "2"):
        replay([gone])
    with raises(InputError):
        replay([row, gone, row, Row("x-2", 1, "1", "1", "1Gi", "1Gi")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu_load": 0}, "--cpu-load 0 is out of range"),
        ({"memory_load": float("nan")}, "--memory-load nan is out of range"),
        ({"resets": 0}, "--cluster-resets must be at least 1, not 0"),
        ({"min_replicas": 9, "max_replicas": 5}, "--replicas 9-5"),
        ({"interval_seconds": -1}, "--interval -1"),
        ({"cpu_requests": ("64",)}, "--cpu-requests 64 is above every limit"),
        ({"memory_requests": ("some",)}, "--memory-requests: 'some' is not a Kubernetes quantity"),
        ({"cpu_requests": ("0",)}, "--cpu-requests 0: must be above 0"),
        ({"cpu_requests": ("9e15",)}, "--cpu-requests: '9e15' is more than any real machine has"),
        ({"cpu_limits": ()}, "need one value or more"),
    ],
)
def test_bad_settings_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DeploymentSettings(**change)  # type: ignore[arg-type]


def test_a_cluster_must_take_pods() -> None:
    with raises(UsageError):
        generate(DeploymentSettings(), cluster(1)[:1], rng())
    with raises(UsageError, "--node-count", "0"):
        cluster(0)
    with raises(UsageError, "--node-count", "1000001"):
        cluster(1_000_001)
    with raises(UsageError, "--node-cpu", "'-4'"):
        cluster(1, cpu="-4")
    with raises(UsageError, "--node-memory", "0"):
        cluster(1, memory="0")
    with raises(UsageError, "--node-memory", "'8E'"):
        cluster(1, memory="8E")


def test_requests_must_fit_on_some_node() -> None:
    with raises(UsageError, "--cpu-requests"):
        generate(DeploymentSettings(), cluster(2, cpu="1"), rng())
    with raises(UsageError, "--memory-requests"):
        generate(DeploymentSettings(), cluster(2, memory="16Gi"), rng())


def test_endless_workloads_are_rejected_at_once() -> None:
    with raises(UsageError, "10000000"):
        generate(DeploymentSettings(resets=10**9), cluster(5), rng())
    rows = [Row(name, count, "1", "1", "1Gi", "1Gi") for name, count in (("a", 1), ("b", 10_000_000))]
    with raises(InputError, "3", "pod_count", "10000000"):
        replay(rows)


def test_limits_and_zero_requests_round_trip() -> None:
    rows = (Row("a", 2, "100m", "1000m", "1Gi", "2Gi"), Row("b", 1, "0m", "1000m", "0", "1Gi"))
    pods = replay(rows)
    assert [(p.cpu_limit_milli, p.memory_limit_bytes) for p in pods] == [(1000, 2 << 30)] * 2 + [(1000, 1 << 30)]
    assert pods[-1].requests == Requests(0, 0, cpu_nonzero_milli=0, memory_nonzero_bytes=0)
    assert [pod_from_object(pod_to_object(pod)) for pod in pods] == list(pods)
    assert replay(rows_of(pods)[0]) == pods


@settings(max_examples=examples(30))
@given(st.integers(1, 3), st.integers(0, 1000))
def test_rows_of_pods_make_the_same_pods(resets: int, seed: int) -> None:
    pods = replay(generate(DeploymentSettings(resets=resets, pod_load=0.2), cluster(3), rng(seed)))
    shuffled = [pods[i] for i in rng(seed).permutation(len(pods))]

    def by_name(found: tuple[Pod, ...] | list[Pod]) -> list[Pod]:
        return sorted(found, key=lambda pod: pod.name)

    rows, originals = rows_of(shuffled)
    assert by_name(replay(rows)) == by_name(pods)
    assert by_name(originals) == by_name(pods)
