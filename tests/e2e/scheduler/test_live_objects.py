"""An agent and a driver as objects in two threads, and studies of `steersman tune --live`, which run many of them."""

import csv
import json
import multiprocessing
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.support.kubeconfig import UNREACHABLE

import steersman
from steersman.core.errors import SteersmanError, UsageError
from steersman.live.learner.live_agent import LiveAgent
from steersman.live.load.live_cluster import LiveCluster
from steersman.live.load.load_driver import LoadDriver

pytestmark = pytest.mark.e2e

EXPLORATION = {"initial_epsilon": 0.9, "minimum_epsilon": 0.02, "epsilon_decay": 0.97}
AT_ONCE = {"interval_seconds": 0, "wait_seconds": 0}


@pytest.fixture
def live(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    """The cluster, for objects in this process, which leave neither threads nor processes behind."""
    monkeypatch.setenv("STEERSMAN_STATE_DIR", cluster.environment["STEERSMAN_STATE_DIR"])
    before = set(threading.enumerate())
    yield steersman.connect(name=cluster.name)
    until(lambda: set(threading.enumerate()) <= before, 20)
    assert not multiprocessing.active_children()


@contextmanager
def threads() -> Iterator[Callable[[LiveAgent | LoadDriver], Future[Any]]]:
    """Run objects in threads; a test that fails stops them, in place of waiting for them."""
    started: list[LiveAgent | LoadDriver] = []

    def start(runs: LiveAgent | LoadDriver) -> Future[Any]:
        started.append(runs)
        return pool.submit(runs.run)

    with ThreadPoolExecutor() as pool:
        try:
            yield start
        finally:
            for each in started:
                each.stop()


@pytest.mark.parametrize("algorithm", ["dqn", "actor-critic"])
def test_agent_and_driver_in_two_threads_learn_and_end(
    cluster: LocalCluster, live: LiveCluster, tmp_path: Path, algorithm: str, capfd: pytest.CaptureFixture[str]
) -> None:
    options = EXPLORATION if algorithm == "dqn" else {"rollout": 8}
    agent = steersman.live_agent(tmp_path / "run", cluster=live, algorithm=algorithm, hidden=(16,), **options)
    driver = steersman.load_driver(cluster=live, pods=150, seeds=[3], output=tmp_path / "load.csv", **AT_ONCE)
    assert agent.metrics == {}
    with threads() as start:
        learning = start(agent)
        agent.wait_until_ready()
        filling = start(driver)
        until(lambda: agent.metrics and agent.metrics["steps"][-1] >= 60)
        assert not learning.done(), "it is looked at while it runs"
        stats = filling.result(120)
        assert stats is not None
        assert (stats.pods, driver.done) == (150, driver.total)
        agent.stop()
        learning.result(60)
    metrics = agent.metrics
    assert agent.answers["answered"] >= 0.5 * sum(agent.answers.values())
    assert metrics["steps"][-1] >= 0.8 * agent.answers["answered"]
    assert np.isfinite(metrics["reward"]).all()
    loss = metrics["loss" if algorithm == "dqn" else "policy_loss"]
    assert np.isfinite(loss).sum() > 5, "updates"
    if algorithm == "dqn":
        assert metrics["epsilon"][-1] < metrics["epsilon"][0] <= 0.9
    assert sum(agent.answers.values()) >= 150
    rows = list(csv.DictReader((tmp_path / "load.csv").read_text().splitlines()))
    added = [row for row in rows if row["action"] == "add"]
    assert sum(int(row["pod_count"]) for row in added) == 150
    assert sorted(row["name"] for row in rows if row["action"] == "delete") == sorted(row["name"] for row in added)
    assert not cluster.objects("pods")
    assert (tmp_path / "run" / "policy.safetensors").exists()
    said = capfd.readouterr()
    assert "Task" not in said.err, said.err
    assert "scheduled" not in said.out, "a library does not log each pod"


def test_stopped_objects_return_and_go_on_later(live: LiveCluster, tmp_path: Path) -> None:
    def driver(interval: float = 0) -> LoadDriver:
        return steersman.load_driver(cluster=live, pods=40, interval_seconds=interval, wait_seconds=0)

    def agent() -> LiveAgent:
        return steersman.live_agent(tmp_path / "run", cluster=live, hidden=(16,), **EXPLORATION)

    first, slow = agent(), driver(interval=60)
    with threads() as start:
        learning = start(first)
        first.wait_until_ready()
        filling = start(slow)
        until(lambda: slow.done == 1 and first.metrics)
        slow.stop()
        assert filling.result(60) is None
        first.stop()
        learning.result(60)
    with pytest.raises(SteersmanError, match="is under way or was stopped"):
        driver().run()
    second = agent()
    with threads() as start:
        learning = start(second)
        second.wait_until_ready()
        other = driver()
        assert other.clean() > 0
        stats = other.run()
        assert stats is not None
        assert stats.pods == 40
        second.stop()
        learning.result(60)
    assert "continuing at iteration" in (tmp_path / "run" / "log.txt").read_text()
    stopped = agent()
    stopped.stop()
    stopped.run()  # returns at once


def test_errors_reach_who_waits_for_the_thread(live: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    agent = steersman.live_agent(tmp_path / "other", cluster=live)
    with threads() as start:
        learning = start(agent)
        with pytest.raises(SteersmanError, match=r"has ended before it was ready: .* holds files that are not"):
            agent.wait_until_ready()
        with pytest.raises(SteersmanError, match="holds files that are not of a run"):
            learning.result()
    with pytest.raises(SteersmanError, match="no workload was stopped in namespace 'default'"):
        steersman.load_driver(cluster=live).run(resume=True)
    with pytest.raises(UsageError, match="is the cluster's kube-scheduler"):
        steersman.live_agent(tmp_path / "run", cluster=live, scheduler_name="default-scheduler")
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    foreign = steersman.connect(tmp_path / "kubeconfig")
    with pytest.raises(UsageError, match="would explore on"):
        steersman.live_agent(tmp_path / "run", cluster=foreign)
    with pytest.raises(UsageError, match="which steersman did not start"):
        steersman.load_driver(cluster=foreign)
    with pytest.raises(SteersmanError, match="cannot be reached"):
        steersman.live_agent(tmp_path / "run", cluster=foreign, explore_anyway=True).run()


TUNE = ("tune", "--live", "--algorithm", "dqn", "--hidden", "16", "--iterations", "60", "--output", "study")


def trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="steersman", storage=f"sqlite:///{folder / 'study' / 'study.db'}").trials


def test_study_of_agents_on_a_live_cluster_goes_on_and_names_the_best(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = (*TUNE, "--name", cluster.name, "--learning-rate", "0.002", "--update-every", "5", "--replicas", "20-30")
    running = subprocess.Popen(
        [STEERSMAN, *command, "--trials", "2"], env=cluster.environment, stderr=subprocess.PIPE, text=True
    )
    until(lambda: (tmp_path / "study" / "trial-001" / "metrics.csv").exists(), 400)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "to continue: steersman tune --output study --resume" in said
    assert not cluster.objects("pods"), "an interrupted trial leaves none"
    said = cluster.must("tune", "--output", "study", "--resume")
    assert "mean reward 0." in said
    assert "schedule --learn --options" in " ".join(said.split())
    assert not cluster.objects("pods")
    complete = [trial for trial in trials(tmp_path) if trial.state.name == "COMPLETE"]
    assert len(complete) == 2
    best = json.loads((tmp_path / "study" / "best.json").read_text())
    assert (best["algorithm"], best["hidden"], best["learning_rate"]) == ("dqn", "16", 0.002)
    values = {trial.number: trial.value or 0.0 for trial in complete}
    winner = max(values, key=lambda number: values[number])
    assert best["epsilon_decay"] == trials(tmp_path)[winner].params["epsilon_decay"]
    for number, value in values.items():
        folder = tmp_path / "study" / f"trial-{number:03d}"
        rewards = [float(row["reward"]) for row in csv.DictReader((folder / "metrics.csv").read_text().splitlines())]
        assert min(rewards) <= value <= max(rewards)
        events = EventAccumulator(str(folder), size_guidance={SCALARS: 0}).Reload()
        assert "reward" in events.Tags()["scalars"]
    assert "<script>" in (tmp_path / "study" / "tuning.html").read_text()
    refused = cluster.steersman(*command[:-2], "--iterations", "50")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "load.max_replicas was 30, now 15" in refused.stderr
    plan = cluster.steersman("schedule", "--learn", "run", "--options", "study/best.json", "--name", "no-such")
    assert "no-such" in plan.stderr, "the options are understood"
