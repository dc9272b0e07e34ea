"""What servers are asked, and what becomes of answers that are late, wrong or missing: one line, and nothing else."""

import asyncio
import json
import pickle
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.objects import node_from_object
from tests.support.servers.score_servers import answering, background, names_of, steersman_server

from steersman.cli.main import main
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.fields import FieldError, converted
from steersman.cluster.objects.free_resources import FREE_KEY, FreeResources, free_of, set_free
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.live.http_policy import policy as client
from steersman.live.http_policy.policy import RequestEncoder, ScoreServerError, blocking_client, server_url
from steersman.live.http_policy.scheme import register_http_policies
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

register_http_policies()

NODES = tuple(Node(name, 4000, 8 << 30, gpu_count=2, gpu_model="T4") for name in ("a", "b", "node.with-odd--name"))
PODS = tuple(
    Pod(f"p{i}", PodClass(Requests(1000, 1 << 30, gpu_count=1, gpu_milli=600)), namespace="team") for i in range(8)
)
WORKLOAD = Workload("small", NODES, PODS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(client, "SIMULATION_SECONDS", 0.5)
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.01)
    yield
    blocking_client.cache_clear()


def simulate(url):
    try:
        return Simulator(WORKLOAD).run(url, protocol="arrivals", record=True)
    finally:
        blocking_client(url).close()


# What is asked --------------------------------------------------------------------------------------------------------


def test_request_has_pod_feasible_nodes_and_free_resources():
    asked, peers = [], set()

    async def answer(request):
        content = await request.json()
        asked.append((dict(request.headers), content))
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response({"scores": {node["metadata"]["name"]: 50 for node in content["nodes"]}})

    with answering(answer) as url:
        placed = simulate(url).placements
    assert placed.node[:6].count("a") == 2, "the first of equal scores wins, as long as the pod fits there"
    headers, first = asked[0]
    assert headers["Content-Type"] == "application/json"
    assert set(first) == {"pod", "nodes"}, "any server of that protocol understands it"
    assert first["pod"]["metadata"]["annotations"]["alibabacloud.com/gpu-milli"] == "600"
    assert first["pod"]["metadata"]["namespace"] == "team"
    assert first["nodes"][0]["status"]["allocatable"]["alibabacloud.com/gpu-count"] == "2"
    assert first["nodes"][0]["metadata"]["labels"]["alibabacloud.com/gpu-card-model"] == "T4"
    asked_names = [[node["metadata"]["name"] for node in content["nodes"]] for _, content in asked]
    assert [len(names) for names in asked_names] == [3, 3, 2, 2, 1, 1], "nodes on which it does not fit are not offered"
    last = json.loads(asked[1][1]["nodes"][asked_names[1].index(placed.node[0])]["metadata"]["annotations"][FREE_KEY])
    assert last["resources"] == {"cpu": "3000m", "memory": "7168Mi"}
    assert sorted(last["gpuMilli"]) == [400, 1000]
    assert (last["podCount"], last["gpuPods"]) == (1, [1])
    assert len(peers) == 1, "the connection stays open"


def test_the_highest_score_wins_among_nodes_that_fit():
    async def answer(_):
        return web.json_response({"scores": {"a": 10, "b": 20.5, "node.with-odd--name": 0, "unknown": 100}})

    with answering(answer) as url:
        placed = simulate(url).placements
    assert placed.node[:2] == ["b", "b"]


@st.composite
def states(draw):
    """A cluster with pods of random requests."""
    nodes = [
        Node(
            f"n{i}",
            draw(st.integers(0, 64_000)),
            draw(st.integers(0, 1 << 38)),
            pods=draw(st.sampled_from([4, 110, 1 << 60])),
            gpu_count=(gpus := draw(st.integers(0, 8))),
            gpu_model="T4" if gpus else "",
            extended=draw(st.sampled_from([(), (("example.com/fpga", 3),)])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    state = ClusterState(nodes)
    for i in range(draw(st.integers(0, 8))):
        count = draw(st.integers(0, 3))
        requests = Requests(
            draw(st.integers(0, 9000)),
            draw(st.integers(0, 1 << 35)),
            gpu_count=count,
            gpu_milli=0 if not count else 1000 if count > 1 else draw(st.integers(1, 1000)),
            extended=draw(st.sampled_from([(), (("example.com/fpga", 1),)])),
        )
        c = state.class_id(PodClass(requests))
        fitting = np.flatnonzero(state.mask(c))
        if len(fitting):
            state.place(f"p{i}", c, int(draw(st.sampled_from(fitting.tolist()))))
    return state


@given(states())
def test_nodes_carry_the_whole_state(state):
    body = json.loads(RequestEncoder(state).encode(PODS[0], range(len(state.nodes))))
    assert pod_from_object(body["pod"]).name == "p0"
    again = ClusterState([node_from_object(node) for node in body["nodes"]])
    for slot, node in enumerate(body["nodes"]):
        set_free(again, slot, free_of(converted(node, NodeObject)))
    for name in ("allocatable", "free", "nonzero", "gpu_free", "gpu_kinds"):
        there, here = getattr(again.arrays, name), getattr(state.arrays, name)
        assert np.array_equal(there, here), name


def test_only_changed_nodes_are_encoded_again():
    state = ClusterState(NODES)
    encoder = RequestEncoder(state)
    before = encoder.encode(PODS[0], (0, 1))
    assert encoder.encode(PODS[0], (0, 1)) == before
    state.place("x", state.class_id(PODS[0].pod_class), 1)
    after = json.loads(encoder.encode(PODS[0], (0, 1)))["nodes"]
    assert after[0] == json.loads(before)["nodes"][0]
    assert after[1] != json.loads(before)["nodes"][1]
    state.update_node(Node("a", 9000, 8 << 30, gpu_count=2, gpu_model="T4", labels={"x": "y"}))
    assert json.loads(encoder.encode(PODS[0], (0,)))["nodes"][0]["metadata"]["labels"]["x"] == "y"
    state.add_node(Node("late", 1000, 1 << 30, gpu_count=9))
    assert json.loads(encoder.encode(PODS[0], (3,)))["nodes"][0]["metadata"]["name"] == "late"


@pytest.mark.parametrize(
    "content",
    [
        {"resources": {"cpu": "5000m"}},
        {"resources": {"cpu": "-1"}},
        {"resources": {"cpu": "much"}},
        {"resources": {"example.com/none": "1"}},
        {"gpuMilli": [1000]},
        {"gpuMilli": [1000, 1001]},
        {"gpuMilli": [1000, -1]},
        {"podCount": -1},
        {"podCount": 1 << 62},
        {"podCount": 1, "gpuPods": [2]},
        {"podCount": 9, "gpuPods": [1, 1, 1, 1, 1]},
        {"scoring": {"memory": "x"}},
    ],
)
def test_request_without_feasible_node_is_rejected(content):
    state = ClusterState(NODES)
    before = state.arrays.free.copy()
    filled = FreeResources(
        resources=content.get("resources", {}),
        gpu_milli=content.get("gpuMilli", [1000, 1000]),
        pod_count=content.get("podCount", 0),
        gpu_pods=content.get("gpuPods", []),
        scoring=content.get("scoring", {}),
    )
    with raises(FieldError, FREE_KEY):
        set_free(state, 0, filled)
    assert np.array_equal(state.arrays.free, before)


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"gpuMilli": "1"}', '{"other": 1}', 7, {"a": 1}, '{"podCount": 1.5}']
)
def test_invalid_annotation_is_rejected(text):
    with raises(FieldError, FREE_KEY):
        free_of(converted({"metadata": {"annotations": {FREE_KEY: text}}}, NodeObject))


# What goes wrong ------------------------------------------------------------------------------------------------------


async def half_of(request):
    names = await names_of(request)
    return web.json_response({"scores": dict.fromkeys(names[: len(names) // 2], 1)})


async def late(_):
    await asyncio.sleep(5)
    return web.json_response({"scores": {}})


async def dripping(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for byte in b'{"scores": {"a": 1, "b": 1, "node.with-odd--name": 1}}':
        await response.write(bytes([byte]))
        await asyncio.sleep(0.1)
    return response


async def cut(request):
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"scores"')
    request.transport.close()
    return response


async def closing(request):
    request.transport.close()
    return web.Response()


def says(text, status=200, **headers):
    async def answer(_):
        return web.Response(text=text, status=status, headers=headers)

    return answer


def scoring(score):
    async def answer(request):
        names = await names_of(request)
        return web.Response(text=json.dumps({"scores": dict.fromkeys(names, score)}))

    return answer


FAILURES = {
    "late": (late, "no answer within 0.5 s"),
    "dripping": (dripping, "no answer within 0.5 s"),
    "cut": (cut, "is not complete"),
    "closing": (closing, "closed the connection"),
    "half of the nodes": (half_of, "scores 1 of 3 nodes; b has none"),
    "no scores": (says("{}"), "scores"),
    "scores are null": (says('{"scores": null}'), "scores"),
    "scores are a list": (says('{"scores": [1, 2, 3]}'), "scores"),
    "no object": (says("[]"), "scores"),
    "no JSON": (says("<html>\nhello"), "scores"),
    "nothing": (says(""), "scores"),
    "no UTF-8": (says('{"scores": {"\udcff": 1}}'.encode("utf-8", "surrogatepass").decode("latin-1")), "scores"),
    "NaN": (scoring(float("nan")), "NaN"),
    "infinite": (scoring(float("inf")), "scores"),
    "1e999": (says('{"scores": {"a": 1e999, "b": 1, "node.with-odd--name": 1}}'), "scores"),
    "text": (scoring("10"), "scores"),
    "true": (scoring(True), "scores"),
    "null": (scoring(None), "scores"),
    "negative": (scoring(-1), "the score of node.with-odd--name is -1"),
    "too high": (scoring(100.5), "the score of node.with-odd--name is 100.5"),
    "status 500": (says("Traceback\n  File\nboom", 500), "HTTP 500: Traceback File boom"),
    "status 503": (says("", 503), "HTTP 503"),
    "status 404": (says("not here", 404), "HTTP 404: not here"),
    "long": (says("x" * 10_000, 500), "HTTP 500: xxx"),
    "redirect": (says("", 302, Location="/elsewhere"), "HTTP 302"),
    "status 204": (says("", 204), "HTTP 204"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_failure_is_one_line_within_the_deadline(failure):
    answer, named = FAILURES[failure]
    with answering(answer) as url:
        began = time.monotonic()
        with raises(ScoreServerError, url, named) as error:
            simulate(url)
        assert time.monotonic() - began < 60
    assert len(str(error.value)) < 400


def test_a_refused_connection_fails_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with raises(ScoreServerError, "cannot be reached", "refused"):
        simulate(f"http://127.0.0.1:{port}/score")


def test_non_http_server_fails_in_one_line():
    async def greet(listening):
        async def say(_, writer):
            writer.write(b"SSH-2.0-OpenSSH\r\n")
            writer.close()

        async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
            listening(server.sockets[0].getsockname()[1])
            await server.serve_forever()

    with background(greet) as url, pytest.raises(ScoreServerError) as error:
        simulate(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("status", client.BUSY)
def test_a_busy_server_is_asked_again(status):
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        if count < 3:
            return web.Response(status=status)
        return web.json_response({"scores": dict.fromkeys(await names_of(request), 1)})

    with answering(answer) as url:
        simulate(url)
    assert count == 8, "six pods, and two that were asked about again"


def test_closed_connection_is_reopened():
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        if count == 3:
            request.transport.close()
        response = web.json_response({"scores": dict.fromkeys(await names_of(request), 1)})
        if count == 4:
            response.force_close()
        return response

    with answering(answer) as url:
        assert simulate(url).placements.outcome.count("bound") == 6


def test_nothing_is_written_when_the_server_fails(tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,4,T4\n")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,1,500,\n")
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    with answering(scoring(101)) as url:
        for command in (["simulate"], ["evaluate", "--seeds", "1-2", "--jobs", "2"], ["evaluate", "--jobs", "1"]):
            output = tmp_path / "out"
            assert main([*command, *files, "--policy", url, "--output", str(output)]) == 1
            last = capsys.readouterr().err.splitlines()[-1]
            assert last.startswith(f"error: {url}: the score of n1 is 101"), last
            assert not output.exists()
        blocking_client(url).close()


def test_the_commands_ask_a_server(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "SIMULATION_SECONDS", 600)  # the server may compile first
    monkeypatch.chdir(tmp_path)
    trace = ("--workload", "default-small", "--ratio", "0.1")
    with steersman_server("best-fit", deadline_milliseconds=600_000.0) as url:
        for policy, output in ((url, "there"), ("best-fit", "here")):
            assert main(["simulate", *trace, "--policy", policy, "--output", output]) == 0
        runs = ("--protocol", "inflation", "--seeds", "1-2", "--jobs", "1")
        assert main(["evaluate", *trace, *runs, "--policy", "best-fit", url, "--output", "both"]) == 0
        blocking_client(url).close()
    there, here = (Path(folder, "placements.csv").read_text() for folder in ("there", "here"))
    assert there.replace(url, "best-fit") == here
    assert here.count(",bound,") > 10
    assert url in Path("both", "summary.csv").read_text()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/score",
        "http://",
        "http:///score",
        "http://host",
        "http://host/",
        "http://user:secret@host/score",
        "http://host:99999/score",
        "http://host:x/score",
        "http://host:0/score",
        "http://[::1/score",
        "http://ho st/score",
        "http://host/sc\nore",
        "http://host/score#seconds=1",
        "http://-/score",
        "://",
        "HTTP://host/score",
    ],
)
def test_invalid_url_is_rejected_before_any_request(url):
    with raises(UsageError, "policy"):
        resolve(url)


@pytest.mark.parametrize("url", ["http://localhost:5000/score", "https://[::1]:5000/score?model=a=b,c", "http://h_1/s"])
def test_url_policy_can_be_pickled(url):
    policy = resolve(url)
    assert (policy.name, server_url(policy)) == (url, url)
    assert pickle.loads(pickle.dumps(policy)) == policy
