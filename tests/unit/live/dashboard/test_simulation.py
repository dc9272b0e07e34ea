"""The document and explanations of simulated runs, the dashboard's server, and who may ask it."""

from __future__ import annotations

import socket
from functools import cache

import pytest
from tests.support.dashboard import TOKEN, asking
from tests.support.errors import error_of, raises

import steersman
from steersman.cli.main import main
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.live.dashboard.columns import node_columns
from steersman.live.dashboard.simulation.document import OUTCOMES, Replay, replay_of
from steersman.live.dashboard.simulation.screen import RunExplainer, SimulationScreen, pods_before
from steersman.live.dashboard.simulation.sources import SimulatedRun
from steersman.simulation.result import RunResult
from steersman.workloads.workload import Workload

POLICIES = ("best-fit", "fgd")
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


def screen(name: str = "p0") -> SimulationScreen:
    loaded, runs = results("arrivals", name)
    policies = [steersman.load_policy(each) for each in POLICIES]
    return SimulationScreen([SimulatedRun(loaded, *each) for each in zip(policies, runs, strict=True)])


async def test_reading_needs_the_token() -> None:
    async with asking(screen()) as ask:
        for path in (
            "/",
            "/simulation/",
            "/static/simulation/main.js",
            "/api/screens",
            "/api/simulation/replay",
            "/api/simulation/explanation?run=0&event=0",
            "/nothing",
        ):
            for given in ("", "Bearer wrong", f"Basic {TOKEN}"):
                refusal = await ask(path, Authorization=given)
                assert refusal.is_line(401)
                assert "default-src 'none'" in refusal.headers["Content-Security-Policy"]
        assert (await ask("/?token=wrong", Authorization="")).status == 401
        welcome = await ask(f"/?token={TOKEN}", Authorization="")
        assert (welcome.status, welcome.headers["Location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in welcome.headers["Set-Cookie"].split(";")}
        cookie = welcome.headers["Set-Cookie"].partition(";")[0]
        wrong = cookie.partition("=")[0] + "=wrong"
        assert (await ask("/", Authorization="", Cookie=wrong)).status == 401
        first = await ask("/", Authorization="", Cookie=cookie)
        assert (first.status, first.headers["Location"]) == (303, "/simulation/")
        page = await ask("/simulation/", Authorization="", Cookie=cookie)
        assert (page.status, "<title>" in page.text) == (200, True)
        assert (await ask("/api/screens")).content == [{"name": "simulation", "title": "Simulation"}]


async def test_dashboards_on_other_ports_have_cookies_of_their_own() -> None:
    async with asking() as one, asking() as other:
        answers = [await ask(f"/?token={TOKEN}", Authorization="") for ask in (one, other)]
        assert len({answer.headers["Set-Cookie"].partition("=")[0] for answer in answers}) == 2


async def test_other_origins_and_host_names_are_rejected() -> None:
    async with asking(screen()) as ask:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "http://["},
            {"Origin": "", "Host": "evil.example"},
            {"Origin": "", "Host": "127.0.0.1.evil.example:80"},
            {"Origin": "", "Host": "[abc"},
            {"Origin": "", "Host": "[::1"},
            {"Origin": "", "Host": "a]b"},
        ):
            refusal = await ask("/api/simulation/replay", **headers)
            assert refusal.is_line(403), headers
            assert "Access-Control-Allow-Origin" not in refusal.headers
        assert (await ask("/api/simulation/replay", "POST")).status == 405


async def test_wrong_questions_fail_in_one_line() -> None:
    async with asking(screen()) as ask:
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
            assert (await ask(f"/api/simulation/explanation?{query}")).is_line(status), query
        for path in (
            "/static/shared/no.js",
            "/static/no/main.js",
            "/static/shared/..%2fsimulation%2fmain.js",
            "/static/..%2f__init__.py",
            "/static/%2e%2e/server.py",
            "/api",
            "/static/",
            "/static/shared/",
            "/static/shared/" + "a" * 260 + ".js",
            "/training/",
        ):
            assert (await ask(path)).is_line(404), path


async def test_explanations_and_hostile_names_are_escaped() -> None:
    async with asking(screen(HOSTILE)) as ask:
        replay, explanation = [await ask(f"/api/simulation/{path}") for path in ("replay", "explanation?run=1&event=2")]
        assert replay.content["pods"]["name"][0] == HOSTILE
        assert explanation.content["policy"] == "fgd"
        for reply in (replay, explanation):
            assert reply.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("policies", [("fgd", "fgd"), ("fgd", "best-fit", "random")])
def test_one_policy_or_two_different_ones(policies: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["dashboard", "--workload", "default-small", "--policy", *policies]
    error_of(capsys, 2, arguments, "give one policy, or two different ones")


def test_a_port_in_use_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        given = ("--workload", "default-small", "--policy", "best-fit", "--no-open", "--port", str(port))
        assert main(["dashboard", *given]) == 1
    said = capsys.readouterr().err.splitlines()
    assert f"--port {port}" in said[-1]
    assert said[-1].startswith("error: ")
