"""A live cluster's screen: what browsers are sent of what watches say, and what it answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.errors import error_of
from tests.support.kubeconfig import unreachable
from tests.support.servers.fake_api_server import Fault, failing, failure
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod
from tests.support.servers.tasks import serving, until

from steersman.kubernetes.client import ApiError, UnreachableError
from steersman.live.dashboard.live import history
from steersman.live.dashboard.live import screen as screen_module
from steersman.live.dashboard.live.explanations import EXPLAINED
from steersman.live.dashboard.live.screen import LiveScreen
from steersman.live.dashboard.server import application

TOKEN = "a-token"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
HOSTILE = '<script>alert("pod")</script>'
SECONDS = 60.0


class Events:
    """Events of a stream, by name, as they come."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Any]] = []

    def last(self, name: str) -> Any:
        return next((content for kind, content in reversed(self.all) if kind == name), None)

    def pods(self) -> dict[str, int]:
        """Pods by node, by the snapshot and what came after it."""
        names: list[str] = []
        result: dict[str, int] = {}
        for kind, content in self.all:
            if kind == "snapshot":
                names, result = content["nodes"]["name"], {}
            if kind in ("snapshot", "use"):
                use = content["use"] if kind == "snapshot" else content
                result |= {names[at]: pods for at, pods in zip(use["at"], use["pods"], strict=True)}
        return result


class Browser:
    """A client of the screen's server."""

    def __init__(self, client: TestClient[Any, Any]) -> None:
        self.client = client

    async def ask(self, path: str) -> Any:
        async with self.client.get(path, headers=GOOD) as answer:
            return await answer.json() if answer.status == 200 else (answer.status, await answer.text())

    @asynccontextmanager
    async def events(self) -> AsyncIterator[Events]:
        """Follow the stream in the block."""
        events = Events()

        async def follow() -> None:
            async with self.client.get("/api/live/stream", headers=GOOD) as answer:
                assert answer.headers["Content-Type"].startswith("text/event-stream")
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                name = ""
                async for line in answer.content:
                    if line.startswith(b"event: "):
                        name = line[7:-1].decode()
                    elif line.startswith(b"data: "):
                        events.all.append((name, json.loads(line[6:])))

        task = asyncio.create_task(follow())
        yield events
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def waiting(name: str, why: str) -> dict[str, Any]:
    """A pod that no scheduler could place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    return {**pod(name, cpu="1000"), "status": {"conditions": [condition]}}


async def bind(double: LiveDouble, screen: LiveScreen, name: str, there: str) -> None:
    """A pod comes, is seen waiting, and is bound."""
    bound = screen.cluster.bound
    new = pod("x")
    new["metadata"]["name"] = name
    double.put(PODS, new)
    await until(lambda: f"default/{name}" in screen.cluster.waiting.pods)
    double.bind(name, there)
    await until(lambda: screen.cluster.bound == bound + 1)


def with_gpus(name: str, on: str, count: int) -> dict[str, Any]:
    made = pod(name, on=on)
    made["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": str(count)}
    return made


@asynccontextmanager
async def watched(
    nodes: int = 2, pods: int = 0, fault: Fault | None = None
) -> AsyncIterator[tuple[LiveDouble, LiveScreen, Browser]]:
    """A cluster of so many nodes, its screen, and a browser; without a fault all is listed first."""
    async with LiveDouble() as double:
        double.bind_after = None
        for i in range(nodes):
            double.put(NODES, node(f"node-{i}"))
        for i in range(pods):
            double.put(PODS, pod(f"old-{i}", on=f"node-{i % nodes}"))
        double.fault = fault
        screen = LiveScreen(double.config(), "double")
        cluster = screen.cluster
        async with (
            serving(screen.run(), lambda: cluster.began and (fault is not None or cluster.synced)),
            TestClient(TestServer(application([screen], TOKEN, "127.0.0.1"))) as client,
        ):
            yield double, screen, Browser(client)


async def test_a_browser_gets_a_snapshot_and_then_what_changed() -> None:
    async with watched(pods=3) as (double, _, browser):
        async with browser.events() as events:
            await until(lambda: events.last("summary"))
            assert events.all[0][0] == "snapshot"
            assert events.pods() == {"node-0": 2, "node-1": 1}
            for i in range(50):
                double.put(PODS, pod(f"new-{i}"))
            await until(lambda: events.last("summary")["waiting"] == 50)
            before = len(events.all)
            for i in range(50):
                double.bind(f"new-{i}", "node-1")
            await until(lambda: events.pods()["node-1"] == 51)
            # 50 bindings are a few messages, each with the node once.
            uses = [content["at"] for name, content in events.all[before:] if name == "use"]
            assert all(at == [1] for at in uses)
            assert len(uses) < 10
            await until(lambda: events.last("summary")["bound"] == 50)
            assert [kind for kind, _ in events.all].count("snapshot") == 1
            double.put(NODES, node("node-2"))
            await until(lambda: events.pods() == {"node-0": 2, "node-1": 51, "node-2": 0})
            assert [kind for kind, _ in events.all].count("snapshot") == 2
        async with browser.events() as late:
            await until(lambda: late.pods() == {"node-0": 2, "node-1": 51, "node-2": 0})


async def test_waiting_pods_have_a_history_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FINE", (0.1, 720))
    async with watched() as (double, _, browser):

        async def ends_with(cpu: int, memory: int) -> bool:
            document = await browser.ask("/api/live/history?seconds=600&ago=0&by=model&node=")
            last = {line["label"]: line["values"][-1] for line in document["waiting"]}
            return last == {"Insufficient cpu": cpu, "Insufficient memory": memory}

        for i, why in enumerate(("Insufficient cpu", "Insufficient cpu", "Insufficient memory")):
            double.put(PODS, waiting(f"waits-{i}", f"0/2 nodes are available: {i % 2 + 1} {why}."))
        await until(lambda: ends_with(2, 1))
        double.remove(PODS, "waits-2")
        await until(lambda: ends_with(2, 0))


async def test_waiting_pods_have_a_reason_and_bound_ones_a_latency_and_rules() -> None:
    async with watched() as (double, _, browser):
        double.put(PODS, waiting("waits", "0/2 nodes: cpu"))
        double.put(PODS, pod("comes"))
        async with browser.events() as events:
            await until(lambda: (events.last("summary") or {"waiting": 0})["waiting"] == 2)
            await asyncio.sleep(0.2)
            double.bind("comes", "node-0")
            await until(lambda: events.last("summary")["bound"] == 1)
            summary = events.last("summary")
        (group,) = summary["groups"]
        assert (group["reason"], group["pods"], group["pod"]) == ("0/2 nodes: cpu", 1, "default/waits")
        assert {each["rule"]: each["of"] for each in summary["rules"]}["fgd"] == 1
        assert (await browser.ask("/api/live/pod?name=default/waits"))["reason"] == "0/2 nodes: cpu"
        bound = await browser.ask("/api/live/pod?name=default/comes")
        assert 0.2 <= bound["waited"] < SECONDS
        assert bound["rules"]["most-even"] is True
        card = await browser.ask("/api/live/node?name=node-0")
        assert [each["name"] for each in card["pods"]] == ["default/comes"]
        charts = await browser.ask("/api/live/history?seconds=600&ago=0&by=model&node=")
        assert [row["node"] for row in charts["latencies"]] == ["node-0"]
        before = await browser.ask("/api/live/history?seconds=600&ago=3600&by=model&node=")
        assert before["latencies"] == []
        assert [each["name"] for each in await browser.ask("/api/live/waiting")] == ["default/waits"]


async def test_rule_choosing_another_node_disagrees() -> None:
    async with watched() as (double, screen, _):
        for name in ("first", "second"):
            await bind(double, screen, name, "node-0")
        recent = {rule: list(there) for rule, there in screen.cluster.rules.recent.items()}
        # Both nodes are empty first; then the other one has more room.
        assert recent["kube-default"] == recent["most-even"] == [True, False]


async def test_slow_comparisons_stop_and_are_reported() -> None:
    async with watched() as (double, screen, _):
        screen.cluster.rules._budget._left = screen.cluster.rules._budget._share = 0.0
        await bind(double, screen, "new", "node-1")
        assert screen.cluster.rules.skipped == 1
        assert not screen.cluster.rules.recent["fgd"]


async def test_binding_to_an_unknown_node_is_not_compared() -> None:
    async with watched() as (double, screen, browser):
        await bind(double, screen, "new", "unknown")
        async with browser.events() as events:
            await until(lambda: (events.last("summary") or {"bound": 0})["bound"] == 1)
            assert events.last("summary")["skipped"] == 1
            assert not screen.cluster.rules.recent["fgd"]


async def test_stalled_client_costs_no_memory_and_delays_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "SLOW_SECONDS", 1.0)
    monkeypatch.setattr(screen_module, "TICK_SECONDS", 0.05)
    async with watched(nodes=1000) as (double, screen, browser):
        sent = 0
        encode = screen_module.Stream._encode

        def counted(self: screen_module.Stream, seen: screen_module.Seen, now: screen_module.Seen) -> bytes:
            nonlocal sent
            body = encode(self, seen, now)
            sent += len(body)
            return body

        monkeypatch.setattr(screen_module.Stream, "_encode", counted)
        assert browser.client.server.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.client.server.port, limit=1024)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(
            f"GET /api/live/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        await until(lambda: screen.stream.clients == 1)
        async with browser.events() as events:
            await until(lambda: screen.stream.clients == 2)
            began = time.monotonic()
            while screen.stream.clients == 2:
                screen.cluster.layout += 1  # all nodes are sent again and again
                await asyncio.sleep(0.05)
                assert time.monotonic() - began < SECONDS
            await bind(double, screen, "last", "node-7")
            await until(lambda: events.pods().get("node-7") == 1)
        assert sent > 1 << 20
        writer.close()


async def test_surplus_page_is_rejected_until_one_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "MOST_CLIENTS", 1)
    async with watched() as (_, screen, browser):
        async with browser.events() as first:
            await until(lambda: first.pods())
            async with browser.events() as second:
                await until(lambda: second.all)
                assert second.all == [("refused", "1 pages are open already; close one")]
                assert screen.stream.clients == 1
        await until(lambda: not screen.stream.clients)
        async with browser.events() as third:
            await until(lambda: third.pods())


async def test_cluster_names_are_escaped() -> None:
    async with watched() as (double, screen, browser):
        await bind(double, screen, HOSTILE, "node-0")
        (found,) = await browser.ask("/api/live/search?text=<script")
        assert found == {"kind": "pod", "name": f"default/{HOSTILE}"}
        async with browser.client.get("/api/live/node?name=node-0", headers=GOOD) as answer:
            assert answer.headers["Content-Type"].startswith("application/json")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert (await answer.json())["pods"][0]["name"] == f"default/{HOSTILE}"


async def test_a_node_card_has_the_requests_of_all_pods_and_lists_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "PODS_LISTED", 2)
    async with watched(nodes=1, pods=5) as (_, _, browser):
        card = await browser.ask("/api/live/node?name=node-0")
        assert (len(card["pods"]), card["leftOut"]) == (2, 3)
        assert (card["usedCpu"], card["usedMemory"]) == (5000, 5 * 1024)


async def test_gpus_that_are_counted_are_those_of_the_card_and_the_map() -> None:
    """Of a node with more GPUs than a device mask has bits for, as with time-slicing."""
    async with watched() as (double, _, browser):
        shared = node("ts-80", **{"nvidia.com/gpu.product": "A100"})
        shared["status"]["allocatable"]["nvidia.com/gpu"] = "80"
        double.put(NODES, shared)
        double.put(PODS, with_gpus("half", "ts-80", 40))
        async with browser.events() as events:
            await until(lambda: events.pods().get("ts-80") == 1)
            snapshot = events.last("snapshot")
        at = snapshot["nodes"]["name"].index("ts-80")
        assert [snapshot["nodes"][key][at] for key in ("model", "gpus", "counted")] == ["A100", 0, 80]
        async with browser.events() as events:
            await until(lambda: events.last("snapshot"))
            use = events.last("snapshot")["use"]
        assert use["counted"][use["at"].index(at)] == 40
        card = await browser.ask("/api/live/node?name=ts-80")
        assert (card["model"], card["gpus"], card["usedGpu"]) == ("A100", 80, 40_000)
        assert [(row["gpus"], row["devices"]) for row in card["pods"]] == [(40, [])]


async def test_shares_are_of_the_nodes_that_are_counted_and_the_page_names_the_others() -> None:
    async with watched() as (double, screen, browser):
        closed, other = node("a7"), node("a8")
        closed["spec"] = {**closed.get("spec", {}), "unschedulable": True}
        for each, where in (("one", "a8"), ("two", "a7")):
            double.put(PODS, with_gpus(each, where, 1))
        for made in (closed, other):
            made["status"]["allocatable"]["nvidia.com/gpu"] = "4"
            double.put(NODES, made)
        await until(lambda: len(screen.cluster.account.nodes) == 4)
        async with browser.events() as events:
            await until(lambda: events.pods().get("a7") == 1 and events.pods().get("a8") == 1)
            snapshot = events.last("snapshot")
        account = screen.cluster.account
        assert snapshot["warnings"][0] == account.sentence
        assert account.sentence.startswith("3 of 4 nodes counted with ")
        assert account.sentence.endswith(": a7 is cordoned")
        gpus = sum(node.gpu_total for node in account.counted)
        assert screen.cluster.summary(0.0).gpu == round(100 / gpus, 2)


async def test_invalid_node_is_on_the_map_and_has_a_card() -> None:
    async with watched() as (double, _, browser):
        odd = node("odd")
        odd["status"]["allocatable"] |= {"nvidia.com/gpu": "2", "alibabacloud.com/gpu-count": "4"}
        double.put(NODES, odd)
        async with browser.events() as events:
            await until(lambda: events.pods() == {"node-0": 0, "node-1": 0, "odd": 0})
            double.put(PODS, pod("lost", on="odd"))
            await until(lambda: events.pods() == {"node-0": 0, "node-1": 0, "odd": 1})
            await until(lambda: (events.last("summary") or {"odd": 0})["odd"] == 1)
            snapshot = events.last("snapshot")
            assert events.last("summary")["nodes"] == 3
            assert snapshot["use"]["state"] == ["not ready", "not ready", "not understood"]
            assert await browser.ask("/api/live/search?text=dd") == [{"kind": "node", "name": "odd"}]
            card = await browser.ask("/api/live/node?name=odd")
            assert card["state"] == "not understood"
            assert "contradicts" in card["problem"]
            assert [row["name"] for row in card["pods"]] == ["default/lost"]
            assert (await browser.ask("/api/live/pod?name=default/lost"))["node"] == "odd"
            explained = await browser.ask("/api/live/explanation?pod=default/lost&policy=best-fit")
            assert explained["node"] in ("node-0", "node-1")
            double.put(NODES, node("odd"))
            await until(lambda: events.last("summary")["odd"] == 0)
            await until(lambda: events.pods() == {"node-0": 0, "node-1": 0, "odd": 1})
            assert "understood" not in (await browser.ask("/api/live/node?name=odd"))["state"]
            double.remove(NODES, "odd")
            double.put(NODES, odd)
            await until(lambda: events.last("summary")["odd"] == 1)
            double.remove(NODES, "odd")
            await until(lambda: events.pods() == {"node-0": 0, "node-1": 0})
            await until(lambda: events.last("summary")["nodes"] == 2)
            assert (await browser.ask("/api/live/node?name=odd"))[0] == 404


async def test_reasons_name_missing_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "SINGLE_LINES", 0)
    monkeypatch.setattr(history, "FINE", (0.1, 720))
    async with watched() as (double, _, browser):
        double.put(NODES, node("node-2", **{"topology.kubernetes.io/zone": "here"}))

        async def lines(by: str) -> list[str]:
            document = await browser.ask(f"/api/live/history?seconds=600&ago=0&by={by}&node=")
            return [line["label"] for line in document["pods"]]

        async def has_zones() -> bool:
            return await lines("zone") == ["here", "no zone"]

        await until(has_zones)
        assert await lines("model") == await lines("") == ["no GPU model"]


async def test_live_explanation_equals_the_command() -> None:
    async with watched(pods=1) as (double, screen, browser):
        double.put(PODS, pod("waits", cpu="65"))
        double.put(PODS, pod("fits"))
        await until(lambda: len(screen.cluster.waiting.pods) == 2)
        explained = await browser.ask("/api/live/explanation?pod=default/waits&policy=best-fit")
        assert (explained["node"], sum(explained["refused"].values())) == ("", 2)
        explained = await browser.ask("/api/live/explanation?pod=default/fits&policy=best-fit")
        assert explained["node"] == "node-0"  # the one with a pod is fuller
        for query in ("pod=default/no&policy=fgd", "pod=default/fits&policy=x:Y", "", "pod=default/fits"):
            status, text = await browser.ask(f"/api/live/explanation?{query}")
            assert (status, len(text.splitlines())) == (400, 1), query


async def test_the_queue_is_predicted_in_its_order() -> None:
    async with watched(pods=1) as (double, screen, browser):
        double.put(PODS, pod("large", cpu="65"))
        double.put(PODS, pod("fits"))
        await until(lambda: len(screen.cluster.waiting.pods) == 2)
        found = await browser.ask("/api/live/queue?policy=best-fit&order=smallest")
        assert [each["pod"] for each in found["pods"]] == ["default/fits", "default/large"]
        fits, large = found["pods"]
        assert (fits["p90"], fits["impossible"]) == (0.0, "")
        assert (large["p50"], large["impossible"].split(":")[0]) == (None, "0/2 nodes are available")
        assert (found["policy"], found["order"]) == ("best-fit+smallest", "smallest")
        for query in ("policy=best-fit&order=area@oracle", "policy=x:Y&order=age", "", "policy=fgd"):
            status, text = await browser.ask(f"/api/live/queue?{query}")
            assert (status, len(text.splitlines())) == (400, 1), query


async def test_without_a_node_nothing_is_explained() -> None:
    async with watched(nodes=0) as (double, screen, browser):
        double.put(PODS, pod("waits"))
        await until(lambda: screen.cluster.waiting.pods)
        for policy in EXPLAINED:
            explained = await browser.ask(f"/api/live/explanation?pod=default/waits&policy={policy}")
            assert explained == (400, "the cluster has no node\n"), policy


async def test_wrong_questions_are_one_line_and_all_need_the_token() -> None:
    async with watched() as (_, _, browser):
        for path, status in (
            ("/api/live/history", 400),
            ("/api/live/history?seconds=x&ago=0", 400),
            ("/api/live/history?seconds=1&ago=-1", 400),
            ("/api/live/node?name=no", 404),
            ("/api/live/pod?name=no", 404),
        ):
            found, text = await browser.ask(path)
            assert (found, len(text.splitlines())) == (status, 1), path
        for path in (
            "stream",
            "history?seconds=1&ago=0",
            "node?name=node-0",
            "pod",
            "waiting",
            "search",
            "explanation",
            "queue",
        ):
            async with browser.client.get(f"/api/live/{path}") as answer:
                assert answer.status == 401, path


async def test_outage_is_reported_and_the_watch_resumes() -> None:
    async with watched() as (double, _, browser), browser.events() as events:
        await until(lambda: events.last("summary"))
        assert events.last("summary")["age"] == 0
        double.fault = failing(500)
        double.end_watches()
        await until(lambda: events.last("summary")["age"] > 0)
        double.fault = None
        double.put(NODES, node("node-2"))
        await until(lambda: events.last("summary")["age"] == 0)
        await until(lambda: "node-2" in events.pods())


async def test_optional_resources_do_not_block_the_page() -> None:
    """Bindings are compared with rules from when all is known that these read."""

    async with (
        watched(pods=1, fault=failing(500, "/api/v1/services")) as (double, screen, browser),
        browser.events() as events,
    ):
        await until(lambda: events.pods() == {"node-0": 1, "node-1": 0})
        await bind(double, screen, "early", "node-1")
        assert (screen.cluster.rules.skipped, len(screen.cluster.rules.recent["fgd"])) == (1, 0)
        assert [each["name"] for each in (await browser.ask("/api/live/node?name=node-1"))["pods"]] == ["default/early"]
        double.fault = None
        await until(lambda: screen.cluster.synced)
        await bind(double, screen, "late", "node-1")
        assert (screen.cluster.rules.skipped, len(screen.cluster.rules.recent["fgd"])) == (1, 1)


@pytest.mark.parametrize("relists", [True, False])
async def test_wait_of_a_pod_bound_during_an_outage_is_read_from_the_cluster(relists: bool) -> None:
    """Whether pods are listed again after it, or the watch is resumed."""
    came = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=30)

    async def fail(request: Any) -> Any:
        return failure(410, "Expired") if relists and "watch" in request.query else failure(503, "ServiceUnavailable")

    async with watched() as (double, screen, browser):
        cluster, new = screen.cluster, pod("new")
        new["metadata"]["creationTimestamp"] = came.isoformat()
        double.put(PODS, new)
        await until(lambda: "default/new" in cluster.waiting.pods)
        cluster.waiting.pods["default/new"] = replace(cluster.waiting.pods["default/new"], since=came.timestamp())
        double.fault = fail
        double.end_watches()
        await until(lambda: cluster.age > 0)
        bound = (came + timedelta(seconds=3)).isoformat()
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
        double.put(PODS, {**double.objects[PODS, "new"], "status": {"conditions": [condition]}})
        double.bind("new", "node-1")
        double.fault = None
        await until(lambda: cluster.bound == 1)
        assert (await browser.ask("/api/live/pod?name=default/new"))["waited"] == 3


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods"])
async def test_forbidden_watch_fails_in_one_line(path: str) -> None:
    async with LiveDouble() as double:
        double.fault = failing(403, path)
        with pytest.RaisesGroup(pytest.RaisesExc(ApiError, match=path), allow_unwrapped=True):
            await LiveScreen(double.config(), "double").run()


async def test_unresponsive_cluster_ends_the_dashboard() -> None:
    with pytest.raises(UnreachableError):
        await LiveScreen(unreachable().config, "none").run()


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--scheduler", "http://127.0.0.1:1"), 2, "--live"),
        (("--live", "--scheduler", "nothing"), 2, "--scheduler nothing"),
        (("--live", "--kubeconfig", "/no/such/file"), 1, "/no/such/file"),
    ],
)
def test_invalid_options_are_reported_at_once(
    arguments: tuple[str, ...], status: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error_of(capsys, status, ["dashboard", *arguments], named)
