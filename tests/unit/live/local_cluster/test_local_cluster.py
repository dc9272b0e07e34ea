"""Local clusters: what a node's shape means, that nodes survive the API, and what is left when something fails."""

import asyncio
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import error_of, raises
from tests.support.objects import node_from_object
from tests.support.servers.bindings import hang_up
from tests.support.servers.fake_api_server import failure
from tests.support.servers.live_cluster import PODS, LiveDouble, pod, with_double

from steersman.cli.main import main
from steersman.cli.output.display import Progress
from steersman.cluster.model import GPU_MILLI, PLUGIN_GPUS, SHARED_GPUS, Node, Taint
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.kubernetes.client import ApiError, Client
from steersman.live.local_cluster import cleaning, nodes, record
from steersman.live.local_cluster.cleaning import StallTimeout
from steersman.live.local_cluster.cluster import ControlPlane, bring_up, check_new, take_down
from steersman.live.local_cluster.control_plane import build, servers
from steersman.live.local_cluster.nodes import (
    NodeShape,
    equal_nodes,
    next_number,
    node_object,
    parse_groups,
    parse_shape,
    prepared,
    reference_node,
)
from steersman.live.local_cluster.record import ClusterBackend, ClusterRecord
from steersman.workloads.formats.openb import embedded
from steersman.workloads.topology import RACK, ZONE, Hierarchy

Capture = pytest.CaptureFixture[str]
GIB = 1 << 30
SHAPE = parse_shape("64cpu,256Gi,110pods")
KUBECONFIG = """
apiVersion: v1
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: c}}]
current-context: here
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and cache folders that no other test sees."""
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def nothing(*_: object) -> None:
    pass


def known(folder: Path, name: str, backend: ClusterBackend, kubeconfig: str = KUBECONFIG) -> None:
    """Write down a cluster that is up."""
    (folder / "here").write_text(kubeconfig)
    record.write(ClusterRecord(name, backend, str(folder / "here"), "here", ready=True))


# Shapes


def test_node_shape_parts_may_come_in_any_order() -> None:
    assert NodeShape(64_000, 256 * GIB, 110) == SHAPE
    assert parse_shape("8gpu:A100-80GB, 1.5Ti,250pods,96cpu") == NodeShape(96_000, 1536 * GIB, 250, 8, "A100-80GB")
    assert parse_shape("500mcpu,1Gi,2gpu") == NodeShape(500, GIB, 110, 2)


def test_a_shape_names_the_resource_of_its_gpus() -> None:
    shared = parse_shape("64cpu,256Gi,8gpu:A100").node("n")
    assert (shared.gpu_count, shared.gpu_model, shared.gpu_resources) == (8, "A100", (SHARED_GPUS,))
    for name in PLUGIN_GPUS:
        node = parse_shape(f"64cpu,256Gi,8{name}:A100").node("n")
        assert (node.gpu_count, node.gpu_model, node.gpu_resources) == (8, "A100", (name,))
        (written,) = prepared([node])
        assert node_object(written, "test")["status"]["allocatable"][name] == "8"
        assert SHARED_GPUS not in node_object(written, "test")["status"]["allocatable"]
    sliced = parse_shape("64cpu,256Gi,80nvidia.com/gpu:A100").node("n")
    assert (sliced.gpu_count, sliced.counted_gpus) == (0, {"nvidia.com/gpu": 80})
    assert sliced.gpu_model_for("nvidia.com/gpu") == "A100"
    (written,) = prepared([sliced])
    assert node_from_object(node_object(written, "test")) == written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("64cpu", "memory is missing"),
        ("256Gi", "cpu is missing"),
        ("64cpu,256", "is the unit missing"),
        ("64cpu,256Gi,4cpu", "cpu is there twice"),
        ("64cpu,256Gi,1Gi", "memory is there twice"),
        ("64cpu,256Gi,many", "'many' is no part of a shape"),
        ("64cpu,256Gi,0pods", "'0' is not a number from 1"),
        ("64cpu,256Gi,63gpu", "from 1 to 62"),
        ("64cpu,256Gi,8gpu,8nvidia.com/gpu", "gpu is there twice"),
        ("64cpu,256Gi,10001nvidia.com/gpu", "from 1 to 10000"),
        ("64cpu,256Gi,8example.com/gpu", "8example.com/gpu"),
        ("64cpu,256Gi,8gpu:", "no GPU model"),
        ("64cpu,256Gi,8gpu:A 100", "no GPU model"),
        ("64cpu:A100,256Gi", "is no part of a shape"),
        ("64000000cpu,256Gi", "more than any real machine"),
        ("0cpu,256Gi", "is nothing"),
        ("", "is no part of a shape"),
    ],
)
def test_invalid_shape_error_names_the_part(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_shape(text)


def test_shapes_have_names_and_counts() -> None:
    groups = parse_groups(["64cpu,256Gi", "small=8cpu,32Gi:20", "gpu-1=96cpu,768Gi,8gpu:A100", "t4=1cpu,1Gi,8gpu:T4:3"])
    assert [(group.name, group.count, group.shape.gpu_model) for group in groups] == [
        ("node", None, ""),
        ("small", 20, ""),
        ("gpu-1", None, "A100"),
        ("t4", 3, "T4"),
    ]
    names = [node.name for node in equal_nodes(2, groups[1].shape, "small", first=9)]
    assert names == ["small-0009", "small-0010"]
    there = [*names, "smaller-0099", "small-x", "other-1"]
    assert (next_number(there, "small"), next_number(there, "other"), next_number(there, "new")) == (11, 2, 0)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["a=1cpu,1Gi", "a=2cpu,1Gi"], "there is a shape 'a' already"),
        (["1cpu,1Gi", "2cpu,1Gi"], "there is a shape 'node' already"),
        (["A=1cpu,1Gi"], "'A' is not a name of nodes"),
        (["=1cpu,1Gi"], "'' is not a name of nodes"),
        (["a=1cpu:5"], "memory is missing"),
        (["a=b=1cpu,1Gi"], "'b=1cpu' is no part of a shape"),
    ],
)
def test_invalid_groups_error_names_the_part(texts: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_groups(texts)


# Nodes

labels = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
nodes_of_any_size = st.builds(
    lambda name, cpu, memory, pods, gpus, model, racks, tainted: Node(
        name,
        cpu,
        memory,
        **({} if pods is None else {"pods": pods}),
        gpu_count=gpus,
        gpu_model=model if gpus else "",
        labels=racks,
        taints=(Taint("dedicated", "gpu"),) if tainted else (),
    ),
    labels,
    st.integers(1, 10**6),
    st.integers(1 << 20, 1 << 44),
    st.none() | st.integers(1, 10**6),
    st.integers(0, 62),
    labels,
    st.dictionaries(st.sampled_from([RACK, ZONE, "pool"]), labels),
    st.booleans(),
)


@given(nodes_of_any_size, st.booleans())
def test_a_node_reads_back_from_its_object(node: Node, tainted: bool) -> None:
    (wanted,) = prepared([node], kwok_taint=tainted)
    written = node_object(wanted, "test")
    assert node_from_object(written) == wanted
    assert {key: wanted.labels[key] for key in node.labels} == node.labels
    assert len(wanted.taints) == len(node.taints) + tainted
    # kube-scheduler takes a missing number of pods for zero.
    assert int(written["status"]["allocatable"]["pods"]) == min(node.pods, 1_000_000)
    assert written["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"


def test_a_production_cluster_reads_back() -> None:
    wanted = prepared(embedded("default").nodes, Hierarchy(4, 10))
    assert [node_from_object(node_object(node, "test")) for node in wanted] == wanted
    assert sum(node.gpu_count for node in wanted) == 6212
    assert wanted[4].labels[RACK] == "rack-1"
    assert wanted[40].labels[ZONE] == "zone-1"


def test_the_reference_node_takes_no_ordinary_pods() -> None:
    node = reference_node(SHAPE)
    assert [(taint.key, taint.effect) for taint in node.taints] == [
        ("node-role.kubernetes.io/control-plane", "NoSchedule")
    ]


def test_equal_nodes_are_numbered_so_that_their_names_sort() -> None:
    names = [node.name for node in equal_nodes(10_001, parse_shape("1cpu,1Gi,8gpu:T4"))]
    assert names[:2] == ["node-00000", "node-00001"]
    assert names == sorted(names)
    assert equal_nodes(1, parse_shape("1cpu,1Gi,8gpu:T4"))[0].gpu_count * GPU_MILLI == 8000
    with raises(UsageError, "--count", "0"):
        equal_nodes(0, SHAPE)


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (Node("Node_1", 1000, GIB), "make the name of a node"),
        (Node("n" * 64, 1000, GIB), "make the name of a node"),
        (Node("n", 1000, GIB, gpu_count=1, gpu_model="A 100"), "value of a label"),
    ],
)
def test_invalid_nodes_are_rejected_before_creation(node: Node, problem: str) -> None:
    with pytest.raises(SteersmanError, match=problem):
        prepared([node])


# Records


def a_record(**more: object) -> ClusterRecord:
    return ClusterRecord("one", ClusterBackend.BINARIES, "/nowhere/kubeconfig", "kwok-one", **more)


def test_a_record_reads_back_and_goes_with_its_folder() -> None:
    assert record.find("one") is None
    written = a_record(ready=True, kubernetes="v1.35.4")
    record.write(written)
    (record.folder_of("one") / "kwok").mkdir()
    assert record.find("one") == record.require("one") == written
    assert (written.minor, a_record().minor) == ("1.35", None)
    assert record.names() == ["one"]
    record.forget("one")
    record.forget("one")
    assert not record.folder_of("one").exists()


@pytest.mark.parametrize(("name", "told"), [("one", "down --name one'"), (record.DEFAULT_NAME, "down'")])
def test_failed_cluster_start_is_distinguished_from_a_missing_cluster(name: str, told: str) -> None:
    record.write(ClusterRecord(name, ClusterBackend.BINARIES, "/nowhere/kubeconfig", "kwok"))
    for refuse in (record.require, check_new):
        with raises(SteersmanError, told):
            refuse(name)
    with raises(SteersmanError, "'two'"):
        record.require("two")


@pytest.mark.parametrize("content", ["", "{}", '{"name": 1}', "[", '{"name": "one", "way": "magic"}'])
def test_damaged_record_is_reported_and_can_be_removed(content: str) -> None:
    record.write(a_record())
    (record.folder_of("one") / record.RECORD).write_text(content)
    with raises(InputError, "cluster.json"):
        record.find("one")
    assert take_down("one", pytest.fail)
    assert record.find("one") is None
    assert not take_down("one", pytest.fail)


def test_only_one_command_starts_or_stops_a_cluster() -> None:
    with record.exclusively("one"), record.exclusively("two"), raises(SteersmanError), record.exclusively("one"):
        pytest.fail("two hold the lock")
    with record.exclusively("one"):
        pass


def test_deleted_foreign_cluster_can_be_forgotten(tmp_path: Path) -> None:
    known(tmp_path, "theirs", ClusterBackend.KUBECONFIG)
    said: list[str] = []
    assert take_down("theirs", said.append)
    assert "may be left" in said[0]
    assert record.find("theirs") is None


# What the API is asked


SYSTEM_PODS = PODS.replace("default", "kube-system")
Answer = Callable[[web.Request], web.Response]


def put_pods(double: LiveDouble, count: int = 2) -> None:
    """Put pods of a controller into two namespaces."""
    owned = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web"}]}
    for collection, number in ((PODS, count), (SYSTEM_PODS, 3)):
        for i in range(number):
            double.put(collection, {**pod(""), "metadata": {"name": f"pod-{i}", **owned}})


def hinder(double: LiveDouble, times: float, answer: Answer, path: str = PODS) -> None:
    """Have the first deletions of a collection be answered so and delete nothing, or nothing that is not made anew."""

    async def fault(request: web.Request) -> web.Response | None:
        is_deletion = (request.method, request.path) == ("DELETE", path)
        return answer(request) if is_deletion and double.requests.count(("DELETE", path)) <= times else None

    double.fault = fault


def done(_: web.Request) -> web.Response:
    return web.json_response({})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cleaning, nodes):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(cleaning, "AGAIN_SECONDS", 0.02)


@pytest.mark.usefixtures("impatient")
@with_double
async def test_clean_repeats_until_empty_and_keeps_system_pods(double: LiveDouble, client: Client) -> None:
    put_pods(double)
    hinder(double, 3, done)
    assert await cleaning.clean(client, nothing) == 2
    assert (len(double.named(PODS)), len(double.named(SYSTEM_PODS))) == (0, 3)
    assert ("DELETE", SYSTEM_PODS) not in double.requests


@pytest.mark.usefixtures("impatient")
@with_double
async def test_clean_names_controllers_that_recreate_pods(double: LiveDouble, client: Client) -> None:
    put_pods(double)
    hinder(double, math.inf, done)
    with raises(SteersmanError, "2", "default/pod-0", "ReplicaSet"):
        await cleaning.clean(client, nothing)


@pytest.mark.usefixtures("impatient")
@with_double
async def test_cleaning_reports_while_the_server_still_deletes_a_collection(double: LiveDouble, client: Client) -> None:
    put_pods(double, 5)
    told: list[tuple[int, int]] = []

    async def slow(request: web.Request) -> web.Response | None:
        """Deleting takes until all pods are gone; each look but the first two finds one pod less."""
        left = list(double.named(PODS))
        if request.path == PODS and request.method == "GET" and left and double.requests.count(("GET", PODS)) > 2:
            double.remove(PODS, left[0])
        while request.path == PODS and request.method == "DELETE" and double.named(PODS):
            await asyncio.sleep(0.01)
        return done(request) if request.method == "DELETE" else None

    double.fault = slow
    assert await cleaning.clean(client, lambda *progress: told.append(progress)) == 5
    assert [gone for gone, _ in told][:6] == list(range(6))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", [PODS, "/apis/batch/v1/namespaces/default/jobs"])
@pytest.mark.parametrize("answer", [lambda _: failure(504, "Timeout"), hang_up], ids=["504", "no answer"])
@with_double
async def test_clean_continues_after_a_slow_collection(
    double: LiveDouble, client: Client, path: str, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "PATIENCE_SECONDS", 30.0)  # it is not to end, however busy the machine is
    put_pods(double)
    hinder(double, 3, answer, path)
    assert await cleaning.clean(client, nothing) == 2
    assert not double.named(PODS)


@pytest.mark.usefixtures("impatient")
@with_double
async def test_clean_ends_at_once_if_forbidden(double: LiveDouble, client: Client) -> None:
    put_pods(double)
    hinder(double, math.inf, lambda _: failure(403, "Forbidden"))
    with raises(ApiError):
        await cleaning.clean(client, nothing)
    assert double.requests.count(("DELETE", PODS)) == 1


def test_timeout_is_extended_by_progress() -> None:
    patience = StallTimeout(0.1)
    for left in range(8, 0, -1):
        assert not patience.ends(left)
        time.sleep(0.03)
    time.sleep(0.1)
    assert patience.ends(1)


@pytest.mark.usefixtures("impatient")
@with_double
async def test_nodes_without_kwok_are_reported(client: Client) -> None:
    with raises(SteersmanError, "2", "KWOK"):
        await nodes.create_nodes(client, prepared(equal_nodes(2, SHAPE)), "test", nothing)


# Processes

STUBBORN = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
OBEDIENT = "import sys, time; print(flush=True); time.sleep(60)"


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    threading.Thread(target=process.wait, daemon=True).start()  # or they would stay as zombies until we end
    return process


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[str]]]:
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()
        process.stdout.close()


def test_only_own_servers_are_stopped(strangers: list[subprocess.Popen[str]]) -> None:
    folder = record.folder_of("one")
    pids = folder / "kwok" / "clusters" / "one" / "pids"
    pids.mkdir(parents=True)
    ours = str(pids.parent / "etcd")
    strangers += [
        started(OBEDIENT, ours),
        started(STUBBORN, ours),
        started(OBEDIENT, f"{folder}-other/etcd"),  # whose id was ours before the machine was started anew
        started(OBEDIENT, f"{folder}/kubeconfig"),
    ]
    (folder / "kwokctl.pid").write_text(str(strangers[3].pid))
    for name, process in zip(("etcd", "kube-apiserver", "kwok-controller"), strangers[:3], strict=True):
        (pids / f"{name}.pid").write_text(str(process.pid))
    (pids / "broken.pid").write_text("no number")
    ours_by_name = {"kwokctl": strangers[3].pid, "etcd": strangers[0].pid, "kube-apiserver": strangers[1].pid}
    assert servers.running(folder) == ours_by_name
    servers.stop(folder)
    assert servers.running(folder) == {}
    assert strangers[2].poll() is None


def test_port_in_use_is_reported() -> None:
    held, free = servers.free_ports([0, 0])
    assert held != free
    with socket.socket() as server:
        server.bind((servers.LOCALHOST, held))
        server.listen()
        with raises(SteersmanError, "--port", held):
            servers.free_ports([held])


KWOKCTL = """#!/bin/sh
env | grep ^KWOK_ > {folder}/environment
echo "$@" > {folder}/arguments
mkdir -p "$KWOK_WORKDIR/clusters/one/logs"
echo "no space left" > "$KWOK_WORKDIR/clusters/one/logs/etcd.log"
echo "what went wrong"
exit {status}
"""


@pytest.mark.parametrize(
    ("status", "problem"), [(1, "kwokctl failed: what went wrong"), (0, "etcd did not start: no space left")]
)
def test_failed_control_plane_reports_why_and_keeps_its_log(
    status: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_RUNTIME", "docker")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "kwokctl").write_text(KWOKCTL.format(folder=tmp_path, status=status))
    (programs / "kwokctl").chmod(0o755)
    with pytest.raises(SteersmanError, match=problem) as raised:
        bring_up("one", ControlPlane(programs=programs), [], nothing, pytest.fail)
    (log,) = record.clusters_root().glob("*.log")
    assert str(raised.value).endswith(f"(log: {log})")
    assert not record.folder_of("one").exists()
    assert (tmp_path / "environment").read_text() == f"KWOK_WORKDIR={record.folder_of('one')}/kwok\n"
    assert str(record.folder_of("one") / "kubeconfig") in (tmp_path / "arguments").read_text()


def test_servers_listen_on_loopback_and_leave_pods_with_their_own_status_alone(tmp_path: Path) -> None:
    configuration = servers.kwok_configuration(tmp_path, None)
    options = configuration["options"]
    assert isinstance(options, dict)
    assert options["bindAddress"] == "127.0.0.1"
    assert len({options[port] for port in servers.PORTS}) == len(servers.PORTS)
    flag = {"key": "disregard-status-with-annotation-selector", "value": "kwok.x-k8s.io/status=custom"}
    assert configuration["componentsPatches"] == [{"name": "kwok-controller", "extraArgs": [flag]}]


# The build, with a Go that only says that it builds

GO = """#!/bin/sh
echo "$@" >> {calls}
case "$1" in
list) echo go: downloading k8s.io/api v1; echo one; echo two; echo three;;
build)
  while [ "$1" != -o ]; do shift; done
  {act}
  for program in kubernetes etcd kwok kwokctl; do echo built > "$2$program"; done
  echo one; echo two;;
esac
"""


def a_go(folder: Path, monkeypatch: pytest.MonkeyPatch, act: str = ":") -> Path:
    """Put a `go` that does `act` when it builds into the path; the file of its calls."""
    calls = folder / "calls"
    (folder / "bin").mkdir()
    (folder / "bin" / "go").write_text(GO.format(calls=calls, act=act))
    (folder / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return calls


def test_build_reports_its_duration(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    now = 0.0
    monkeypatch.setattr("steersman.cli.output.display.time.monotonic", lambda: now)
    with Progress("building packages", estimate=False) as progress:
        for done, now in ((1, 5.0), (40, 61.0)):  # noqa: B007
            progress.update(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "building packages: 1 of 100, 5 s so far",
        "building packages: 40 of 100, 61 s so far",
    ]


def test_up_and_status_agree_about_a_partly_dead_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    known(tmp_path, "mine", ClusterBackend.BINARIES)
    running = dict.fromkeys(servers.SERVERS, 1)
    monkeypatch.setattr(servers, "running", lambda _: running)
    error_of(capsys, 1, ["cluster", "up", "--name", "mine"], "is up already")
    del running["etcd"]
    for command in ("up", "status"):
        said = error_of(
            capsys,
            1,
            ["cluster", command, "--name", "mine"],
            "etcd stopped running",
            "'steersman cluster down --name mine'",
        )
        assert "is up" not in said
    assert said.startswith("error: cluster 'mine' does not respond (etcd stopped running): http://127.0.0.1:1 ")
    assert "'steersman cluster down --name mine' and then 'up' restart it" in said


@pytest.mark.parametrize("answers_readyz", [True, False])
def test_status_of_a_cluster_with_a_dead_etcd_returns_within_seconds(
    answers_readyz: bool, tmp_path: Path, capsys: Capture
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(target=answer_readyz, args=(server,), daemon=True)
        if answers_readyz:
            thread.start()
        port = server.getsockname()[1]
        known(tmp_path, "mine", ClusterBackend.CONTAINERS, KUBECONFIG.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
        began = time.monotonic()
        problem = "etcd failed" if answers_readyz else "did not respond within 3 s"
        error_of(capsys, 1, ["cluster", "status", "--name", "mine"], problem)
        assert time.monotonic() - began < 60


def answer_readyz(server: socket.socket) -> None:
    """Say to one client that etcd is dead, as an API server does."""
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)
        body = b"[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"
        connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_built_programs_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = a_go(tmp_path, monkeypatch)
    said, reported = list[str](), list[tuple[int, int]]()
    first = build.programs(lambda *progress: reported.append(progress), said.append)
    assert all((first / program).read_text() == "built\n" for program in (*build.KUBERNETES, "etcd", "kwok", "kwokctl"))
    assert said[1:] == ["downloading Go modules: 1 begun"]
    assert reported == [(1, 3), (2, 3)], "a download is no package"
    before = calls.read_text()
    assert "-X k8s.io/component-base/version.gitVersion=v1." in before
    assert build.programs(nothing, nothing) == first
    assert calls.read_text() == before
    assert {path.name for path in first.parent.iterdir()} == {first.name, "lock"}


WRONG = ("# a/wrong", "wrong.go:5:3: unknown field X", "wrong.go:6:3: y")
PRINTED = ("a/before", *WRONG, "wrong.go:7:3: z", "a/after")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        pytest.param('echo "no space left" >&2', "build.log", id="no space"),
        pytest.param("; ".join(f"echo '{line}'" for line in PRINTED), f"{' | '.join(WRONG)} (log: ", id="wrong"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_its_log_alone(
    act: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_go(tmp_path, monkeypatch, act=f"{act}; exit 1")
    with raises(SteersmanError, said):
        build.programs(nothing, nothing)
    folder = tmp_path / "cache" / "controlplane" / build.find_minor(None)
    assert {path.name for path in folder.iterdir()} == {"build.log", "lock"}


def test_killed_build_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_go(tmp_path, monkeypatch)
    left = tmp_path / "cache" / "controlplane" / build.find_minor(None) / "tmpx.part"
    left.mkdir(parents=True)
    (left / "etcd").touch()
    build.programs(nothing, nothing)
    assert not left.exists()


def test_concurrent_builds_share_one_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = a_go(tmp_path, monkeypatch, act="sleep 0.5")
    said: list[str] = []
    found: list[Path] = []
    others = [threading.Thread(target=lambda: found.append(build.programs(nothing, said.append))) for _ in range(2)]
    for thread in others:
        thread.start()
        time.sleep(0.1)
    for thread in others:
        thread.join()
    assert found[0] == found[1]
    assert calls.read_text().count("build -v") == 1
    assert any("waiting for another steersman" in line for line in said)


def test_missing_go_error_lists_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error_of(capsys, 1, ["cluster", "up"], "Go 1.26", "kwokctl", "Docker", "--kubeconfig")
    assert record.names() == []


# The command


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["status"], 1, "no cluster 'steersman': 'steersman cluster up' starts one"),
        (["nodes", "remove", "--count", "1", "--name", "other"], 1, "no cluster 'other'"),
        (["clean"], 1, "no cluster 'steersman'"),
        (["up", "--name", "Mine"], 2, "--name Mine"),
        (["down", "--name", "../x"], 2, "--name ../x"),
        (["up", "--node-shape", "64cpu"], 2, "--node-shape 64cpu: memory is missing"),
        (["up", "--count", "100001"], 2, "--count 100001"),
        (["up", "--count", "3", "--nodes-from", "nodes.csv"], 2, "exclude each other"),
        (["up", "--nodes-from", "absent.csv"], 1, "absent.csv: no such file"),
        (["up", "--racks-per-zone", "2"], 2, "--servers-per-rack"),
        (["up", "--kubeconfig", "absent"], 1, "absent"),
        (["up", "--kubeconfig", "here"], 1, "cannot be reached"),
        (["up", "--kubeconfig", "here", "--context", "there"], 1, "no context 'there'; there are here"),
        (["up", "--kubeconfig", "here", "--port", "1"], 2, "--port and --kubeconfig exclude each other"),
        (["up", "--kubeconfig", "here", "--count", "2"], 2, "would create 2 nodes"),
        (["up", "--kubeconfig", "garbage"], 1, "garbage"),
    ],
)
def test_invalid_commands_fail_in_one_line_and_leave_nothing(
    arguments: list[str], status: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").write_text(KUBECONFIG)
    (tmp_path / "garbage").write_text("- [no\n")
    error_of(capsys, status, ["cluster", *arguments], problem)
    assert record.names() == []


def test_down_without_a_cluster_succeeds(capsys: Capture) -> None:
    assert main(["cluster", "down"]) == 0
    assert "no cluster 'steersman'" in capsys.readouterr().err


def test_clean_confirms_before_emptying_a_foreign_cluster(tmp_path: Path, capsys: Capture) -> None:
    known(tmp_path, "theirs", ClusterBackend.KUBECONFIG)
    error_of(capsys, 2, ["cluster", "clean", "--name", "theirs"], "--yes")
    error_of(capsys, 1, ["cluster", "clean", "--name", "theirs", "--yes"], "does not respond")
