"""Run times that a live cluster teaches: who counts for whom, what is forgotten, and the file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import InputError
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import (
    EVERY_POD,
    RunTimeGroup,
    RunTimeHistory,
    levels_of,
    read_run_times,
    write_run_times,
)
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

SMALL, LARGE = Requests(cpu_milli=100), Requests(cpu_milli=4000, gpu_count=2, gpu_milli=1000, extended=(("x/y", 3),))
PRIOR = 2 ** ((8 + 40) / 4)
"""Median of the bins that are equally likely at first, 68 minutes."""


def group_count(history: RunTimeHistory) -> int:
    return len({row.group for row in history.copy().rows()} - {EVERY_POD})


def pod(owner: str = "", requests: Requests = SMALL, namespace: str = "default") -> Pod:
    return Pod("p", PodClass(requests), namespace=namespace, owner=owner)


def test_estimate_without_history_is_the_prior() -> None:
    """An hour or so, of which nobody knows better."""
    assert RunTimeHistory().estimate(pod()) == pytest.approx(PRIOR)


def test_estimates_approach_what_ended() -> None:
    """After many equal pods their run time is the estimate, within the bin, of which there are two per octave."""
    history = RunTimeHistory()
    before = abs(history.estimate(pod("Job/a")) - 100)
    for count in range(30):
        assert history.note(pod("Job/a"), 100.0) == (count == 0)
        after = abs(history.estimate(pod("Job/a")) - 100)
        assert after <= before
        before = after
    assert 2**6.5 <= history.estimate(pod("Job/a")) <= 2**7
    assert history.ended == 30


def test_levels_are_those_of_the_simulator() -> None:
    """The same pods give the same estimate as in a simulation, where every owner has several pods."""
    history, kinds = RunTimeHistory(), [("a", SMALL), ("b", SMALL), ("b", LARGE)]
    times = [(0.0, 10.0 * (i // 4 + 1)) for i in range(12)] + [(1000.0, 1001.0)]
    pods = [
        replace(pod(*kinds[min(i // 4, 2)]), name=f"{i}", creation_time=came, deletion_time=went)
        for i, (came, went) in enumerate(times)
    ]
    for each, (_, seconds) in zip(pods[:-1], times, strict=False):
        history.note(each, seconds)
    order = with_order(resolve("fgd"), find_order("shortest@history"))
    nodes = tuple(Node(f"n{i}", 64_000, 1 << 40, gpu_count=8, extended=(("x/y", 99),)) for i in range(4))
    plan = schedule(workload := Workload("w", nodes, tuple(pods)), "timed", seed=1, ratio=1.0, load=None)
    estimated = Simulator(workload).play(order, plan, 1).standing.estimated
    assert estimated[-1] == history.estimate(pods[-1])


@pytest.mark.parametrize("run", ["29384721", "1764320000", "20261128"])
def test_runs_of_a_cron_job_teach_each_other(run: str) -> None:
    """Each is a Job of its own, which its CronJob numbers; a short number is another Job."""
    history = RunTimeHistory()
    for i in range(20):
        assert history.note(pod(f"Job/backup-{29384700 + i}"), 10.0) == (i == 0)
        history.note(pod(f"Job/train-{i}"), 10_000.0)
    assert history.knows("default", f"Job/backup-{run}")
    assert history.estimate(pod(f"Job/backup-{run}")) < 20 < history.estimate(pod("Job/report-7"))
    assert not history.knows("default", "Job/train-20")


def test_new_owner_is_estimated_by_its_namespace() -> None:
    """A Job of one pod tells what the next Job of the namespace takes, and nothing of another namespace's."""
    history = RunTimeHistory()
    for i in range(20):
        history.note(pod(f"Job/{i}", namespace="fast"), 10.0)
        history.note(pod(f"Job/{i}", namespace="slow"), 10_000.0)
    assert history.estimate(pod("Job/new", namespace="fast")) < 60
    assert history.estimate(pod("Job/new", namespace="slow")) > 5_000


def test_owner_counts_once_for_its_namespace() -> None:
    """A thousand pods of one owner are no more than one pod for others of the namespace."""
    one, many = RunTimeHistory(), RunTimeHistory()
    for history, count in ((one, 1), (many, 200)):
        for i in range(10):
            history.note(pod(f"Job/{i}", LARGE), 10.0)
        for _ in range(count):
            history.note(pod("Deployment/x", SMALL, "other"), 10.0)
    of_namespace = RunTimeGroup(None, "other", "")
    for is_owner_known in (False, True):
        assert levels_of(pod("Job/new", LARGE, "other"), is_owner_known=is_owner_known)[2] == of_namespace
    assert one.counts(of_namespace).sum() == many.counts(of_namespace).sum() == 1


def test_least_recently_used_groups_are_forgotten() -> None:
    """The number of groups is bounded, and what is still asked about stays."""
    history = RunTimeHistory(max_groups=20)
    for i in range(50):
        history.note(pod(f"Job/{i}"), 10.0)
        history.estimate(pod("Job/0"))
        assert group_count(history) <= 20
    assert history.knows("default", "Job/0")
    assert history.knows("default", "Job/49")
    assert not history.knows("default", "Job/10")
    assert history.ended == 50


def test_pods_that_never_run_again_drive_out_nobody_who_does() -> None:
    """A CronJob keeps its estimate, whatever number of Jobs of one pod end."""
    history = RunTimeHistory(max_groups=200)
    nightly = [pod(f"Job/nightly-{29384720 + k}", LARGE) for k in range(30)]
    for each in nightly:
        history.note(each, 8 * 3600.0)
    before = history.estimate(nightly[0])
    for k in range(1000):
        history.note(pod(f"Job/once-{k}x"), 30.0)
    assert group_count(history) <= 200
    assert history.estimate(nightly[0]) == pytest.approx(before, rel=0.01)


OWNERS = st.sampled_from(["", "Job/a", "Job/b", "ReplicaSet/c"])
ENDS = st.lists(
    st.tuples(OWNERS, st.sampled_from([SMALL, LARGE]), st.sampled_from(["x", "y"]), st.floats(0, 1e9)), max_size=40
)


@settings(max_examples=50, deadline=None)
@given(ENDS, st.integers(5, 40))
def test_file_keeps_all_estimates(tmp_path_factory: pytest.TempPathFactory, ends: list, limit: int) -> None:  # type: ignore[type-arg]
    """After a restart every estimate is what it was, and so is what would be forgotten next."""
    file = tmp_path_factory.mktemp("run-times") / "run-times.json"
    history = RunTimeHistory(limit)
    for owner, requests, namespace, seconds in ends:
        history.note(pod(owner, requests, namespace), seconds)
    write_run_times(file, history.copy())
    again = read_run_times(file)
    for row, same in zip(again.copy().rows(), history.copy().rows(), strict=True):
        assert row[:3] == same[:3]
        assert (row.pods.tolist(), row.recent.tolist()) == (same.pods.tolist(), same.recent.tolist())
    assert again.copy().weights.tolist() == history.copy().weights.tolist()
    for owner in ("", "Job/a", "Job/b", "ReplicaSet/c", "Job/new"):
        for requests in (SMALL, LARGE):
            for namespace in "xyz":
                asked = pod(owner, requests, namespace)
                assert again.estimate(asked) == history.estimate(asked)
    assert again.ended == history.ended


def test_file_keeps_how_far_stated_run_times_were_off(tmp_path: Path) -> None:
    """By owner, whichever run of it, by namespace and of all pods; pods that stated nothing say nothing of it."""
    file, history = tmp_path / "run-times.json", RunTimeHistory()
    for k in range(139):
        history.note(replace(pod(f"Job/late-{29384720 + k}"), estimated_seconds=60.0), 600.0)
    history.note(replace(pod("Job/right", namespace="other"), estimated_seconds=60.0), 60.0)
    history.note(pod("Job/silent"), 60.0)
    write_run_times(file, history.copy())
    again = read_run_times(file)
    late, right = (RunTimeGroup(None, *whose) for whose in (("default", "Job/late"), ("other", "Job/right")))
    assert [again.ratio_counts(each).sum() for each in (late, right, EVERY_POD)] == [139, 1, 140]
    assert again.ratio_counts(late).argmax() - again.ratio_counts(right).argmax() == 6  # two bins an octave
    assert RunTimeGroup(None, "default", "Job/silent") not in again.ratios
    for group, counts in history.ratios.items():
        assert again.ratio_counts(group).tolist() == counts.tolist()
    assert list(again.ratios) == list(history.ratios)


def test_errors_of_owners_that_were_not_used_for_longest_are_forgotten() -> None:
    history = RunTimeHistory(max_groups=10)
    for k in range(50):
        history.note(replace(pod(f"Job/{k}x"), estimated_seconds=60.0), 600.0)
    assert len(history.ratios) == 10
    assert history.ratio_counts(EVERY_POD).sum() == 50
    assert history.ratio_counts(RunTimeGroup(None, "default", "Job/49x")).sum() == 1


def test_file_of_another_cluster_teaches_nothing_wrong_of_this_one(tmp_path: Path) -> None:
    """It is read: namespaces and owners that are not here are not asked about, and what ended here soon counts more."""
    file, other = tmp_path / "run-times.json", RunTimeHistory()
    for _ in range(100):
        other.note(pod("Job/x", namespace="theirs"), 10.0)
    write_run_times(file, other.copy())
    history = read_run_times(file)
    for i in range(30):
        history.note(pod(f"Job/{i}", LARGE, "ours"), 5000.0)
    assert 4000 < history.estimate(pod("Job/new", LARGE, "ours")) < 6000


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "run times"),
        ("{}", "run times"),
        ('{"run_times": 2, "groups": [', "run times"),
        ('{"run_times": 9, "groups": []}', "version"),
        ('{"run_times": 2, "groups": [{"pods": {"48": 1}}]}', "group 0"),
        ('{"run_times": 2, "groups": [{"pods": {"3": -1}}]}', "group 0"),
        ('{"run_times": 2, "groups": [{"pods": {}, "nodes": 3}]}', "nodes"),
        ('{"run_times": 2, "groups": [{"pods": {}}, {"pods": {}, "namespace": "x"}]}', "group 1"),
        ('{"run_times": 2, "groups": [], "stated_ratios": [{"pods": {"-1": 2}}]}', "stated_ratios 0"),
        ('{"run_times": 2, "groups": [{"pods": {}, "recent": {"48": 1}}]}', "group 0, recent"),
        ('{"run_times": 2, "groups": [{"pods": {}, "last": 48}]}', "group 0, last"),
        ('{"run_times": 2, "groups": [], "weights": [[1], [2]]}', "weights"),
        ('{"run_times": 1, "groups": []}', "run_times"),
        ("\xff\xfe", "run times"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, content: str, named: str) -> None:
    """One line names the file and what is wrong."""
    file = tmp_path / "run-times.json"
    file.write_bytes(content.encode("latin-1"))
    with raises(InputError, file, named):
        read_run_times(file)


def test_pipe_and_folder_are_refused_at_once(tmp_path: Path) -> None:
    """Nobody may write to the pipe: reading it would take for ever."""
    os.mkfifo(pipe := tmp_path / "pipe")
    for each in (pipe, tmp_path):
        with raises(InputError, each, "is not a regular file"):
            read_run_times(each)
