"""The document and explanations of simulated runs, the dashboard's server, and who may ask it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from functools import cache

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.support.errors import raises
from yarl import URL

import steersman
from steersman.apps.dashboard.columns import node_columns
from steersman.apps.dashboard.server import application
from steersman.apps.dashboard.simulation.document import OUTCOMES, Replay, replay_of
from steersman.apps.dashboard.simulation.screen import RunExplainer, SimulationScreen, pods_before
from steersman.apps.dashboard.simulation.sources import SimulatedRun
from steersman.cli.main import main
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.simulation.result import RunResult
from steersman.workloads.workload import Workload

POLICIES = ("best-fit", "fgd")
TOKEN = "a-token"
HOSTILE = '<script>alert("pod")</script>'


def workload(name: str = "p0") -> Workload:
    nodes = (
        Node("a", 16_000, 64 << 30, gpu_count=2, gpu_model="T4", labels={"topology.kubernetes.io/zone": "z1"}),
        Node("b", 16_000, 64 << 30, gpu_count=4, gpu_model="V100"),
        Node("c", 8_000, 32 << 30),
    )
    kinds = [
        PodClass(Requests(1_000 * (i % 3 + 1), 1 << 30, gpu_count=i % 3, gpu_milli=(0, 500, 1000)[i % 3]))
        for i in range(9)
    ]
    pods = tuple(
        Pod(name if i == 0 else f"p{i}", kind, creation_time=10.0 * i, deletion_time=10.0 * i + 45)
        for i, kind in enumerate(kinds)
    )
    return Workload("small", nodes, pods)


@cache
def results(protocol: str, name: str = "p0") -> tuple[Workload, tuple[RunResult, ...]]:
    loaded = workload(name)
    runs = tuple(steersman.simulate(loaded, policy, protocol=protocol, record=True) for policy in POLICIES)  # type: ignore[arg-type]
    return loaded, runs


def document(protocol: str) -> tuple[Workload, Replay]:
    loaded, runs = results(protocol)
    return loaded, replay_of(loaded, runs)


def test_nodes_have_gpu_devices_and_counted_gpus_of_a_model() -> None:
    labels = {"nvidia.com/gpu.product": "A100", "amd.com/gpu.product-name": "MI300X"}
    counted, both = (("nvidia.com/gpu", 80),), (("amd.com/gpu", 4),)
    columns = node_columns(
        [
            Node("devices", 1, 1, gpu_count=2, gpu_model="T4"),
            Node("counted", 1, 1, extended=counted, labels=labels),
            Node("both", 1, 1, gpu_count=2, gpu_model="T4", extended=both, labels=labels),
            Node("none", 1, 1),
        ]
    )
    assert columns.gpus == [2, 0, 2, 0]
    assert columns.counted == [0, 80, 4, 0]
    assert columns.model == ["T4", "A100", "T4", ""]


@pytest.mark.parametrize("protocol", ["inflation", "arrivals", "timed"])
def test_the_document_has_every_event_of_every_run(protocol: str) -> None:
    _, runs = results(protocol)
    _, replay = document(protocol)
    assert [run.policy for run in replay.runs] == list(POLICIES)
    assert replay.nodes.groups == {"zone": ["z1", "", ""]}
    for columns, result in zip(replay.runs, runs, strict=True):
        placements = result.placements
        assert placements is not None
        assert [replay.pods.name[i] for i in columns.pod] == placements.pod
        assert [replay.nodes.name[i] if i >= 0 else "" for i in columns.node] == placements.node
        assert columns.devices == placements.devices
        assert [OUTCOMES[i] for i in columns.outcome] == placements.outcome
        assert [columns.reasons[i] for i in columns.reason] == placements.reason
    assert abs(sum(kind.share for kind in replay.profile) - 1.0) < 1e-9


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
def test_the_cluster_before_an_event_is_that_of_the_simulation(protocol: str) -> None:
    loaded, replay = document(protocol)
    gpus = sum(node.gpu_count for node in loaded.nodes)
    for columns in replay.runs:
        for event in range(1, len(columns.time)):
            pods = pods_before(loaded, columns, event)
            used = sum(pod.requests.gpu_total_milli for pod in pods)
            assert 100 * used / 1000 / gpus == pytest.approx(columns.gpu[event - 1], abs=0.006)
            assert len({pod.name for pod in pods}) == len(pods)


def test_an_explanation_is_of_the_cluster_before_the_event() -> None:
    loaded, replay = document("timed")
    for run, name in enumerate(POLICIES):
        columns = replay.runs[run]
        explainer = RunExplainer(steersman.load_policy(name), loaded, columns)
        for event, outcome in enumerate(columns.outcome):
            if OUTCOMES[outcome] == "finished":
                with raises(UsageError, event):
                    explainer.explain(event)
                continue
            explained = explainer.explain(event)
            assert explained.policy == name
            if OUTCOMES[outcome] == "bound" and not explained.equal:
                assert explained.node == replay.nodes.name[columns.node[event]]
            assert (explained.node == "") == (columns.node[event] < 0)


def test_portfolio_member_is_named() -> None:
    loaded, replay = document("arrivals")
    explained = RunExplainer(steersman.load_policy("steersman"), loaded, replay.runs[0]).explain(3)
    assert explained.policy == "steersman"
    assert explained.member


Ask = Callable[..., Awaitable[tuple[int, str, dict[str, str]]]]


def served(story: Callable[[Ask], Awaitable[None]], name: str = "p0") -> None:
    """Run a story with a function that asks the server: path, then headers; returns status, text and headers."""

    async def run() -> None:
        loaded, runs = results("arrivals", name)
        policies = [steersman.load_policy(each) for each in POLICIES]
        screen = SimulationScreen([SimulatedRun(loaded, *each) for each in zip(policies, runs, strict=True)])
        async with TestClient(TestServer(application([screen], TOKEN, "127.0.0.1"))) as client:

            async def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
                given = {key.replace("_", "-"): value for key, value in headers.items()}
                client.session.cookie_jar.clear()
                url = URL(path, encoded=True)
                async with client.request(method, url, headers=given, allow_redirects=False) as response:
                    return response.status, await response.text(), dict(response.headers)

            await story(ask)

    asyncio.run(run())


GOOD = {"Authorization": f"Bearer {TOKEN}"}


def test_reading_needs_the_token() -> None:
    async def story(ask: Ask) -> None:
        for path in (
            "/",
            "/simulation/",
            "/static/simulation/main.js",
            "/api/screens",
            "/api/simulation/replay",
            "/api/simulation/explanation?run=0&event=0",
            "/nothing",
        ):
            for given in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": f"Basic {TOKEN}"},
            ):
                status, text, headers = await ask(path, **given)
                assert (status, len(text.splitlines())) == (401, 1), (path, given)
                assert "default-src 'none'" in headers["Content-Security-Policy"]
        status, _, _ = await ask("/?token=wrong")
        assert status == 401
        status, _, headers = await ask(f"/?token={TOKEN}")
        assert (status, headers["Location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in headers["Set-Cookie"].split(";")}
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert (await ask("/", Cookie=cookie.partition("=")[0] + "=wrong"))[0] == 401
        status, _, headers = await ask("/", Cookie=cookie)
        assert (status, headers["Location"]) == (303, "/simulation/")
        status, text, _ = await ask("/simulation/", Cookie=cookie)
        assert (status, "<title>" in text) == (200, True)
        assert json.loads((await ask("/api/screens", **GOOD))[1]) == [{"name": "simulation", "title": "Simulation"}]
        assert (await ask("/api/simulation/replay", **GOOD))[0] == 200

    served(story)


def test_dashboards_on_other_ports_have_cookies_of_their_own() -> None:
    def client() -> TestClient[web.Request, web.Application]:
        return TestClient(TestServer(application([], TOKEN, "127.0.0.1")))

    async def run() -> None:
        async with client() as one, client() as other:
            answers = [await each.get(f"/?token={TOKEN}", allow_redirects=False) for each in (one, other)]
            assert len({name for answer in answers for name in answer.cookies}) == 2

    asyncio.run(run())


def test_other_origins_and_host_names_are_rejected() -> None:
    async def story(ask: Ask) -> None:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example:80"},
            {"Host": "[abc"},
            {"Host": "[::1"},
            {"Host": "a]b"},
            {"Origin": "http://["},
        ):
            status, text, answered = await ask("/api/simulation/replay", **GOOD, **headers)
            assert (status, len(text.splitlines())) == (403, 1), headers
            assert "Access-Control-Allow-Origin" not in answered
        assert (await ask("/api/simulation/replay", "POST", **GOOD))[0] == 405

    served(story)


def test_wrong_questions_fail_in_one_line() -> None:
    async def story(ask: Ask) -> None:
        for query, status in (
            ("", 400),
            ("run=0", 400),
            ("run=0&event=-1", 400),
            ("run=0&event=1e3", 400),
            ("run=0&event=" + "9" * 500, 400),
            ("run=x&event=0", 400),
            ("run=2&event=0", 404),
            ("run=0&event=9999", 404),
        ):
            found, text, _ = await ask(f"/api/simulation/explanation?{query}", **GOOD)
            assert (found, len(text.splitlines())) == (status, 1), query
        for path in (
            "/static/shared/no.js",
            "/static/no/main.js",
            "/static/shared/..%2fsimulation%2fmain.js",
            "/static/..%2f__init__.py",
            "/static/%2e%2e/server.py",
            "/api",
            "/static/",
            "/static/shared/",
            "/training/",
        ):
            found, text, _ = await ask(path, **GOOD)
            assert (found, len(text.splitlines())) == (404, 1), path

    served(story)


def test_explanations_and_hostile_names_are_escaped() -> None:
    async def story(ask: Ask) -> None:
        status, text, headers = await ask("/api/simulation/replay", **GOOD)
        assert headers["Content-Type"].startswith("application/json")
        replay = json.loads(text)
        assert (status, replay["pods"]["name"][0]) == (200, HOSTILE)
        status, text, headers = await ask("/api/simulation/explanation?run=1&event=2", **GOOD)
        assert (status, json.loads(text)["policy"]) == (200, "fgd")
        assert headers["Content-Type"].startswith("application/json")

    served(story, HOSTILE)


def test_explained_state_fits_the_nodes() -> None:
    loaded, replay = document("inflation")
    for pod in pods_before(loaded, replay.runs[0], len(replay.runs[0].time)):
        assert pod.constraints.node_name in ClusterState(loaded.nodes).slots


@pytest.mark.parametrize("policies", [("fgd", "fgd"), ("fgd", "best-fit", "random")])
def test_one_policy_or_two_different_ones(policies: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--workload", "default-small", "--policy", *policies]) == 2
    assert "give one policy, or two different ones" in capsys.readouterr().err


def test_a_port_in_use_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        given = ("--workload", "default-small", "--policy", "best-fit", "--no-open", "--port", str(port))
        assert main(["dashboard", *given]) == 1
    said = capsys.readouterr().err.splitlines()
    assert f"--port {port}" in said[-1]
    assert said[-1].startswith("error: ")
