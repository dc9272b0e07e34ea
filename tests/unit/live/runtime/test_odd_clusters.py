"""Live clusters with objects that are none of the model: what goes on working, and what is said about them."""

from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.servers.fake_api_server import failing
from tests.support.servers.live_cluster import LiveDouble, node, pod, with_double

from steersman.cli.output.logs import say_warnings
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import PodObject
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.live.load.commands import RunTarget
from steersman.live.load.driver import read_capacity
from steersman.live.load.run_state import RunState, new_id
from steersman.live.local_cluster import cleaning
from steersman.live.runtime.cluster_use import ClusterUse
from steersman.live.runtime.listing import read_nodes

GPU_COUNT, GPU_MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"


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


@with_double
async def test_load_counts_valid_objects_and_reports_the_rest(
    double: LiveDouble, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    say_warnings()
    put_odd_and_even(double)
    assert [each.name for each in await read_nodes(client)] == ["even"]
    room = await read_capacity(client)
    assert room.used == (16 / 64, 1 / 256, 2 / 110)

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
    double.fault = failing(404)
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
