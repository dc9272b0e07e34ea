"""A policy behind HTTP decides as the same policy here, as far as the nodes alone say what it reads."""

import re
import threading
from pathlib import Path

import pytest
from tests.support.servers.score_servers import steersman_server

from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.live.http_policy.policy import blocking_client
from steersman.live.http_policy.scheme import register_http_policies
from steersman.live.service.scoring.explanation import explain_pod
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.policy_file import prepare_policy, write_policy
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

DOCUMENT = Path(__file__).parents[4] / "docs" / "how-to" / "score-server.md"
register_http_policies()


@pytest.fixture(scope="module")
def simulator():
    """Twelve nodes with all kinds of GPUs, and more pods than fit."""
    whole = embedded("default")
    return Simulator(Workload("twelve", whole.nodes[::104], whole.pods[::75]))


@pytest.fixture
def run(simulator):
    urls = []

    def play(policy, **options):
        if policy.startswith("http"):
            urls.append(policy)
        result = simulator.run(policy, record=True, **options)
        placed = result.placements
        return list(zip(placed.pod, placed.node, placed.devices, placed.outcome, strict=True))

    yield play
    for url in urls:
        blocking_client(url).close()
    blocking_client.cache_clear()


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
@pytest.mark.parametrize("policy", [*(name for name in HEURISTIC_IDS if name != "fgd"), "kube-default"])
def test_rule_behind_http_decides_like_the_rule(run, policy, protocol):
    with steersman_server(policy) as url:
        assert run(url, protocol=protocol, seed=7) == run(policy, protocol=protocol, seed=7)


def test_prepared_file_behind_http_decides_like_the_file(run, simulator, tmp_path):
    file = tmp_path / "prepared.safetensors"
    with policy_path("greedy-forecast") as source:
        write_policy(file, *prepare_policy(source, simulator.workload))
    with steersman_server(str(file)) as url:
        assert run(url, seed=7) == run(str(file), seed=7)


def test_explanations_ask_the_server_too(simulator):
    with steersman_server("best-fit") as url:
        explanation = explain_pod(resolve(url), simulator.workload, 3)
        assert explanation.node == explain_pod(resolve("best-fit"), simulator.workload, 3).node
        assert (explanation.policy, explanation.points) == (url, 100.0)
        blocking_client(url).close()


def test_worker_processes_share_only_answers(simulator):
    with steersman_server("best-fit") as url:
        experiment = Experiment((simulator.workload,), (url, "best-fit"), (1, 2, 3), "arrivals")
        runs = run_experiment(experiment, jobs=2)
    assert [run.policy for run in runs] == [url] * 3 + ["best-fit"] * 3
    for there, here in zip(runs[:3], runs[3:], strict=True):
        assert there.metrics == here.metrics


def test_the_documented_server_places_every_pod(simulator):
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    module = {"__name__": "best_fit"}
    exec(code[1], module)
    module["Handler"].log_message = lambda *_: None
    with module["ThreadingHTTPServer"](("127.0.0.1", 0), module["Handler"]) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/score"
        result = simulator.run(url, protocol="arrivals", seed=3)
        blocking_client(url).close()
        server.shutdown()
    metrics = {metric.name: metric.value for metric in result.metrics}
    assert metrics["gpu_allocation_percent"] > 80
