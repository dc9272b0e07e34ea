"""`steersman top`: what it knows of a cluster, how it shows it, and its keys."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.support.servers.fake_api_server import KubeDouble, failure, listed
from textual.widgets import Static
from typer.testing import CliRunner

from steersman.apps.top.app import NodeListView, TopApp
from steersman.apps.top.model import ClusterUse
from steersman.apps.top.render import ViewOptions, heading, layout_for
from steersman.apps.top.watch import NodeHandler, PodHandler
from steersman.cli.commands.top import top
from steersman.cluster.objects.api.devices import DeviceClass, ResourceSlice
from steersman.cluster.objects.device_offers import device_offers
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/leases"


def node(name: str, cpu: str = "8", gpus: int = 0, *, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    return {
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": allocatable, "conditions": conditions, "images": [{"names": ["x"]}]},
    }


def pod(
    name: str, on: str = "", cpu: str = "1", phase: str = "Pending", scheduler: str = "steersman"
) -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if on:
        spec["nodeName"] = on
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": phase}}


def raw(obj: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


def view_of(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> ClusterUse:
    view = ClusterUse()
    listed(NodeHandler(view), map(raw, nodes))
    listed(PodHandler(view), map(raw, pods))
    return view


SOME = st.sampled_from(["a", "b", "c", "d"])
CHANGE = st.tuples(
    st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
    SOME,
    st.sampled_from(["", "n1", "n2"]),
    st.sampled_from(["1", "250m"]),
    st.sampled_from(["Pending", "Running", "Succeeded"]),
)


@given(st.lists(CHANGE, max_size=30), st.lists(st.tuples(SOME, st.sampled_from(["", "n2"])), max_size=4))
def test_sums_count_existing_pods(changes: list[tuple[Any, ...]], later: list[tuple[str, str]]) -> None:
    view = view_of([node("n1")], [])
    handler, there = PodHandler(view), {}
    for kind, name, on, cpu, phase in changes:
        handler.change(kind, raw(pod(name, on, cpu, phase)))
        there[name] = on, cpu
        if kind == "DELETED" or phase == "Succeeded":
            del there[name]
    check(view, there)
    NodeHandler(view).change("ADDED", raw(node("n2")))  # pods may be known before their node
    check(view, there)
    relisted = dict(later)
    listed(handler, [raw(pod(name, on)) for name, on in relisted.items()])
    check(view, {name: (on, "1") for name, on in relisted.items()})


def check(view: ClusterUse, there: dict[str, tuple[str, str]]) -> None:
    milli = {"1": 1000, "250m": 250}
    for row in view.rows():
        mine = [milli[cpu] for on, cpu in there.values() if on == row.node.name]
        assert (row.use.cpu_milli, row.use.pods) == (sum(mine), len(mine))
    assert view.waiting() == dict(Counter("steersman" for on, _ in there.values() if not on))
    assert view.counts()[1] == len(there)


def test_binds_count_pods_seen_pending() -> None:
    view = view_of([node("n1")], [pod("a"), pod("b"), pod("old", "n1")])
    assert view.rate(100.0) == 0
    handler = PodHandler(view)
    for name in ("a", "b"):
        handler.change("MODIFIED", raw(pod(name, "n1")))
        handler.change("MODIFIED", raw(pod(name, "n1", phase="Running")))
    handler.change("ADDED", raw(pod("static", "n1")))
    assert view.bound == 2
    assert view.rate(102.0) == 1.0
    assert view.rate(104.0) == 0.5
    assert view.rate(110.0) == 0


def test_shared_gpus_count_fractionally_and_invalid_objects_are_reported() -> None:
    shared = pod("a", "n1")
    shared["metadata"]["annotations"] = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "250"}
    wrong = pod("b", "n1")
    wrong["metadata"]["annotations"] = {"alibabacloud.com/gpu-milli": "lots"}
    view = view_of([node("n1", gpus=2)], [shared, wrong])
    (row,) = view.rows()
    assert row.amounts("gpu") == (0.25, 2)
    assert row.use.pods == 2
    assert view.unreadable.keys() == {"default/b"}


def test_resized_pod_counts_with_its_held_resources() -> None:
    shrinking, refused = pod("a", "n1", cpu="2"), pod("b", "n1", cpu="90")
    held = {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "4"}}}
    shrinking["status"]["containerStatuses"] = [held]
    small = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
    refused["status"]["containerStatuses"] = [small]
    refused["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    (row,) = view_of([node("n1")], [shrinking, refused]).rows()
    assert row.amounts("cpu") == (5.0, 8.0)


def test_invalid_nodes_are_reported_with_the_reason() -> None:
    view = view_of([node("fine"), *(node(f"odd-{i}", cpu="lots") for i in range(5))], [])
    lines = heading(view, "here", None, (), 6)
    named = [line for line in lines if line.startswith("Node ")]
    assert [line.partition(" gets no pods: ")[0] for line in named] == ["Node odd-0", "Node odd-1", "Node odd-2"]
    assert all("cpu" in line and "lots" in line for line in named)
    assert "... and 2 more nodes" in lines


def test_nodes_are_chosen_and_sorted() -> None:
    view = view_of(
        [node("b", cpu="4"), node("a", cpu="16"), node("c", ready=False), node("d", cordoned=True)],
        [pod("x", "b"), pod("y", "a", cpu="2"), pod("z", "d", cpu="6")],
    )

    def names(choice: ViewOptions) -> str:
        return "".join(row.node.name for row in choice.of(view.rows()))

    assert names(ViewOptions()) == "abcd"
    assert names(ViewOptions(reverse=True)) == "dcba"
    assert names(ViewOptions("cpu")) == "dbac"  # fractions: 6/8, 1/4, 2/16, 0
    assert names(ViewOptions("cpu", reverse=True)) == "cabd"
    assert names(ViewOptions(pattern="CORD")) == "d"
    assert names(ViewOptions("pods", pattern="not ready")) == "c"
    assert names(ViewOptions(pattern="nothing")) == ""


@given(st.integers(30, 250), st.lists(st.sampled_from([("64", 0), ("1", 8), ("1024", 0)]), max_size=4))
def test_columns_are_aligned_at_every_width(width: int, shapes: list[tuple[str, int]]) -> None:
    nodes = [node(f"node-with-quite-a-name-{i}", cpu, gpus, ready=i % 2 == 0) for i, (cpu, gpus) in enumerate(shapes)]
    rows = view_of(nodes, [pod("x", "node-with-quite-a-name-0", cpu="333m")]).rows()
    layout = layout_for(rows, width)
    lines = [layout.titles(ViewOptions()), *map(layout.line, rows)]
    assert {line.cell_len for line in lines} == {layout.width}
    assert layout.width <= max(width, 75)


# The command ---------------------------------------------------------------------------------------------------------


@contextmanager
def running_double(tmp_path: Path) -> Iterator[tuple[KubeDouble, Path]]:
    """A double in a thread of its own, and a kubeconfig for it."""
    double, started, ended = KubeDouble(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with double:
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(30)
    file = tmp_path / "kubeconfig"
    named = {"clusters": [{"name": "c", "cluster": {"server": double.url}}]}
    context = {"contexts": [{"name": "test", "context": {"cluster": "c"}}], "current-context": "test"}
    file.write_text(msgspec.json.encode({**named, **context}).decode())
    try:
        yield double, file
    finally:
        ended.set()
        thread.join()


def run(*arguments: str) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(top)
    result = CliRunner().invoke(app, arguments, standalone_mode=False)
    return result.stdout, result.exception


def test_once_prints_plain_text(tmp_path: Path) -> None:
    with running_double(tmp_path) as (double, kubeconfig):
        for obj in (node("n1", gpus=4), node("n2", ready=False), node("m3")):
            double.put(NODES, obj)
        double.put(PODS, pod("a", "n1", cpu="6"))
        double.put(PODS, pod("b", scheduler="other"))
        metadata = {"name": "steersman", "namespace": "kube-system", "annotations": {"steersman.dev/policy": "fgd"}}
        double.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "pod-7"}})
        text, error = run("--kubeconfig", str(kubeconfig), "--once", "--filter", "n", "--sort", "cpu")
        assert error is None, error
        lines = text.splitlines()
        assert lines[:4] == [
            "test: 3 nodes, 2 shown, 2 pods",
            "Pending 1 (other 1)",
            "No new pods go to 1 node: n2 is not ready",
            "Scheduler kube-system/steersman: policy fgd, led by pod-7",
        ]
        shown = [line.split() for line in lines if line.lstrip().startswith("n")]
        assert shown[0] == ["n1", "████████░░", "6/8", "░░░░░░░░░░", "0/16", "█░░░░░░░░░", "1/10", "░░░░░░░░░░", "0/4"]
        assert shown[1][:3] == ["n2", "(not", "ready)"]
        assert "\x1b" not in text


def test_invalid_input_fails_in_one_line(tmp_path: Path) -> None:
    with running_double(tmp_path) as (double, kubeconfig):
        _, error = run("--kubeconfig", str(kubeconfig))
        assert isinstance(error, SteersmanError)
        assert "--once" in str(error)

        async def forbid(_: object) -> Any:
            return failure(403, "Forbidden")

        double.fault = forbid
        _, error = run("--kubeconfig", str(kubeconfig), "--once")
        assert str(error) == "GET /api/v1/nodes: forbidden (HTTP 403)"
    _, error = run("--kubeconfig", str(kubeconfig), "--once")
    assert isinstance(error, SteersmanError)
    assert "cannot be reached" in str(error)


# The screen ----------------------------------------------------------------------------------------------------------


def lines(app: TopApp) -> list[str]:
    found = app.query_one(NodeListView)
    return [text for y in range(found.size.height) if (text := found.render_line(y).text.strip())]


def head(app: TopApp) -> str:
    return str(app.query_one("#heading", Static).content)


async def until(what: Any) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.05)


def test_the_screen_follows_the_cluster_and_obeys_keys() -> None:
    async def story() -> None:
        async with KubeDouble() as server, Client(server.config()) as client:
            for i in range(200):
                server.put(NODES, node(f"node-{i:03}"))
            app = TopApp(client, "test", ViewOptions())
            async with app.run_test(size=(100, 20)) as pilot:
                await until(lambda: "200 nodes" in head(app))
                assert lines(app)[0].startswith("node-000")
                server.put(PODS, pod("a", "node-150", cpu="4"))
                server.put(PODS, pod("b"))
                await until(lambda: "Pending 1 (steersman 1)" in head(app))
                await pilot.press("c")
                assert lines(app)[0].startswith("node-150")
                assert "4/8" in lines(app)[0]
                await pilot.press("c")
                assert lines(app)[0].startswith("node-000")
                await pilot.press("n", "end")
                await until(lambda: lines(app)[-1].startswith("node-199"))
                await pilot.press("slash", "0", "7", "enter")
                assert "12 shown" in head(app)
                assert all("07" in line.split()[0] for line in lines(app))
                await pilot.press("q")  # back at the list: a key, not a letter of the filter
                await until(lambda: not app.is_running)
            assert app.return_value is None

    asyncio.run(story())


def test_only_visible_lines_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    render_line = NodeListView.render_line
    monkeypatch.setattr(NodeListView, "render_line", lambda self, y: drawn.append(y) or render_line(self, y))

    async def story() -> None:
        async with KubeDouble() as server, Client(server.config()) as client:
            for i in range(5000):
                server.put(NODES, node(f"node-{i:04}"))
            app = TopApp(client, "test", ViewOptions("cpu"))
            async with app.run_test(size=(100, 30)) as pilot:
                await until(lambda: "5000 nodes" in head(app))
                drawn.clear()
                await pilot.press("n")
                await pilot.pause(0.1)
                assert drawn
                assert len(drawn) < 300

    asyncio.run(story())


def test_missing_permission_ends_top_with_one_line() -> None:
    async def story() -> str | None:
        async with KubeDouble() as server, Client(server.config()) as client:

            async def forbid(request: Any) -> Any:
                return failure(403, "Forbidden") if request.path == PODS else None

            server.fault = forbid
            app = TopApp(client, "test", ViewOptions())
            async with app.run_test():
                await until(lambda: not app.is_running)
            return app.return_value

    assert asyncio.run(story()) == "GET /api/v1/pods: forbidden (HTTP 403)"


def test_lost_server_is_reported_and_the_view_stays() -> None:
    async def story() -> None:
        async with KubeDouble() as server, Client(server.config()) as client:
            server.put(NODES, node("n1"))
            app = TopApp(client, "test", ViewOptions())
            async with app.run_test(size=(100, 20)) as pilot:
                await until(lambda: "1 nodes" in head(app))

                async def fail(_: object) -> Any:
                    return failure(500, "InternalError")

                server.fault = fail
                server.end_watches()
                await until(lambda: "HTTP 500" in head(app))
                assert lines(app)[0].startswith("n1")
                server.fault = None
                server.put(NODES, node("n2"))
                await until(lambda: "2 nodes" in head(app))
                await pilot.press("ctrl+c")
                await until(lambda: not app.is_running)

    asyncio.run(story())


def test_devices_of_resource_slices_count_as_gpus() -> None:
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    asking = pod("p", on="n")
    asking["spec"]["containers"][0]["resources"] = {"limits": {implicit: "1"}}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    device_class = msgspec.convert(
        {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}, DeviceClass
    )
    slices = msgspec.convert({"metadata": {"name": "n"}, "spec": spec}, ResourceSlice)
    view = ClusterUse(device_offers([device_class], [slices], []))
    NodeHandler(view).change("ADDED", raw(node("n")))
    PodHandler(view).change("ADDED", raw(asking))
    (row,) = view.rows()
    assert row.amounts("gpu") == (1.0, 2.0)
