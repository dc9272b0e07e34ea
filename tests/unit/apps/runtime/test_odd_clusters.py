"""Live clusters with objects that are none of the model: what goes on working, and what is said about them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.servers.fake_api_server import failure
from tests.support.servers.live_cluster import LiveDouble, node, on_double, pod, with_double

from steersman.apps.load.commands import RunTarget
from steersman.apps.load.driver import (
    read_capacity,
)
from steersman.apps.load.live_cluster import ClusterTarget
from steersman.apps.load.run_state import RunState, new_id
from steersman.apps.local_cluster import cleaning, record
from steersman.apps.local_cluster.cluster import check_new
from steersman.apps.local_cluster.control_plane import servers
from steersman.apps.runtime.cluster_use import ClusterUse
from steersman.apps.runtime.listing import (
    read_nodes,
)
from steersman.cli.commands.schedule import ScheduleOptions, follow
from steersman.cli.main import main
from steersman.cli.output.logs import say_warnings
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import PodObject
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser

GPU_COUNT, GPU_MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"
KUBECONFIG = """{"current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}]
, "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "me", "user": {}}]}"""


def odd_pod(name: str, on: str = "", milli: str = "1001") -> dict[str, dict[str, object]]:
    found = pod(name, cpu="2", on=on)
    found["metadata"]["annotations"] = {GPU_COUNT: "1", GPU_MILLI: milli}
    return found


def odd_node(name: str) -> dict[str, dict[str, object]]:
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {"allocatable": {"cpu": "many"}}}


def put_odd_and_even(double: LiveDouble) -> None:
    for each in (node("even"), odd_node("odd")):
        double.put("/api/v1/nodes", each)
    for each in (pod("even", cpu="16", on="even"), odd_pod("odd", on="even")):
        double.put("/api/v1/namespaces/default/pods", each)


def test_load_counts_valid_objects_and_reports_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def test(double: LiveDouble, client: Client) -> None:
        put_odd_and_even(double)
        assert [each.name for each in await read_nodes(client)] == ["even"]
        room = await read_capacity(client)
        assert room.used == (16 / 64, 1 / 256, 2 / 110)

    say_warnings()
    on_double(test)
    shown = capsys.readouterr()
    assert not shown.out
    lines = shown.err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == ["warning: nodes ignored"] * 2 + [
        "warning: requests of pods ignored"
    ]
    assert "Pod default/odd" in lines[-1]


@with_double
async def test_cluster_without_valid_nodes_reports_why(double: LiveDouble, client: Client) -> None:
    double.put("/api/v1/nodes", odd_node("odd"))
    with raises(SteersmanError):
        await read_nodes(client)


@with_double
async def test_run_in_a_missing_namespace_is_reported(double: LiveDouble, client: Client) -> None:
    async def refuse(_: object) -> web.Response:
        return failure(404, "NotFound")

    double.fault = refuse
    with raises(SteersmanError, "'elsewhere'", "--namespace"):
        await RunTarget(client, "elsewhere").store.begin(RunState("run", new_id(), "", {}, 1))


@pytest.mark.parametrize(
    ("kind", "group"), [("deployment", "/apis/apps/v1"), ("statefulset", "/apis/apps/v1"), ("job", "/apis/batch/v1")]
)
@with_double
async def test_clean_reports_controllers_or_deletes_them(
    double: LiveDouble, client: Client, kind: str, group: str
) -> None:
    collection = f"{group}/namespaces/default/{kind}s"
    double.put("/api/v1/namespaces/default/pods", pod("web-0"))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {}}
    double.put(collection, {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": template}})
    with raises(SteersmanError, kind, "default/web", "--owners"):
        await cleaning.clean(client, lambda *_: None)
    assert not any(method == "DELETE" for method, _ in double.requests)
    assert await cleaning.clean(client, lambda *_: None, owners=True)
    assert not double.named("/api/v1/namespaces/default/pods")
    assert not double.named(collection)


@pytest.mark.parametrize(
    "ours",
    [
        {"metadata": {"name": "web", "labels": {"app.kubernetes.io/managed-by": "steersman"}}, "spec": {}},
        {"metadata": {"name": "web", "ownerReferences": [{"kind": "CronJob", "name": "c"}]}, "spec": {}},
        {"metadata": {"name": "web"}, "spec": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
    ],
)
@with_double
async def test_clean_ignores_idle_and_own_controllers(double: LiveDouble, client: Client, ours: dict[str, Any]) -> None:
    double.put("/apis/batch/v1/namespaces/default/jobs", ours)
    double.put("/api/v1/namespaces/default/pods", pod("web-0"))
    assert await cleaning.clean(client, lambda *_: None) == 1


@with_double
async def test_clean_names_the_finalizer_of_a_stuck_pod(
    double: LiveDouble, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "PATIENCE_SECONDS", 0.1)
    kept = pod("kept")
    kept["metadata"] |= {"finalizers": ["example.com/stay"], "deletionTimestamp": "2024-05-01T12:00:00Z"}
    double.put("/api/v1/namespaces/default/pods", kept)

    async def keep(request: web.Request) -> web.Response | None:
        return web.json_response({}) if request.method == "DELETE" else None

    double.fault = keep
    with raises(SteersmanError, "1", "default/kept", "example.com"):
        await cleaning.clean(client, lambda *_: None)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"event": "watch failed", "path": "/api", "error": "two\nlines"},
            "warning: watch failed (path /api): two lines",
        ),
        ({"event": "leadership lost"}, "warning: leadership lost"),
    ],
)
def test_commands_without_a_log_print_warnings_only(
    event: dict[str, str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say_warnings()
    log = structlog.get_logger("any")
    log.info("scheduling")
    log.warning(**event)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"{line}\n")


@pytest.mark.parametrize(("name", "told"), [("mine", "down --name mine'"), (record.DEFAULT_NAME, "down'")])
def test_suggested_commands_name_the_same_cluster(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path))
    record.write(record.ClusterRecord(name, record.ClusterBackend.BINARIES, "/nowhere/kubeconfig", "kwok"))
    for refuse in (record.require, check_new):
        with raises(SteersmanError, told):
            refuse(name)


def test_unresponsive_cluster_error_names_dead_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    record.write(record.ClusterRecord("mine", record.ClusterBackend.BINARIES, str(kubeconfig), "here", ready=True))
    running = dict.fromkeys(servers.SERVERS, 1)
    del running["etcd"]
    monkeypatch.setattr(servers, "running", lambda _: running)
    assert main(["cluster", "status", "--name", "mine"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: cluster 'mine' does not respond (etcd stopped running): http://127.0.0.1:9 ")
    assert "'steersman cluster down --name mine' and then 'up' restart it" in said
    assert said.count("\n") == 1


def test_shadow_does_not_overwrite_another_report(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("of last week")
    target = ClusterTarget(
        KubeConfig(Path(), "", KubeCluster("http://127.0.0.1:9"), KubeUser(), "default"), is_local=True
    )
    with raises(InputError):
        follow(target, "fgd", ScheduleOptions(shadow=True, output=tmp_path))
    assert (tmp_path / "decisions.csv").read_text() == "of last week"


def as_pod(content: object) -> PodObject:
    return msgspec.json.decode(msgspec.json.encode(content), type=PodObject)


def as_node(content: object) -> NodeObject:
    return msgspec.json.decode(msgspec.json.encode(content), type=NodeObject)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(("odd", "even", "gone")), st.booleans())))
def test_view_counts_currently_invalid_objects(history: list[tuple[str, str, bool]]) -> None:
    view, now = ClusterUse(), dict[str, str]()
    for name, kind, is_node in history:
        key = f"node-{name}" if is_node else f"default/{name}"
        now[key] = kind
        if is_node:
            view.drop_node(key) if kind == "gone" else view.put_node(
                as_node(node(key) if kind == "even" else odd_node(key))
            )
        elif kind == "gone":
            view.drop_pod(key)
        else:
            content = odd_pod(name, milli="100" if kind == "even" else "-5")
            content["metadata"]["namespace"] = "default"
            view.put_pod(as_pod(content))
    assert view.unreadable.keys() == {key for key, kind in now.items() if kind == "odd"}
