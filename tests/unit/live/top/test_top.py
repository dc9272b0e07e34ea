"""`steersman top`: what it knows of a cluster, how it shows it, and its keys."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kubeconfig import write_kubeconfig
from tests.support.servers.fake_api_server import KubeDouble, failing, listed
from tests.support.servers.tasks import until
from tests.unit.kubernetes.cache.test_cluster_cache import raw
from typer.testing import CliRunner

from steersman.cli.commands.observe import top
from steersman.cluster.objects.api.claims import DeviceClass, ResourceSlice
from steersman.cluster.objects.device_offers import device_offers
from steersman.core.errors import SteersmanError
from steersman.live.runtime.cluster_use import ClusterUse, handlers
from steersman.live.top import BLOCKS, Layout, TopApp, ViewOptions, heading, layout_for, pressed_keys

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


def view_of(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> ClusterUse:
    view = ClusterUse()
    listed(handlers(view)[NODES], map(raw, nodes))
    listed(handlers(view)[PODS], map(raw, pods))
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
    handler, there = handlers(view)[PODS], {}
    for kind, name, on, cpu, phase in changes:
        handler.change(kind, raw(pod(name, on, cpu, phase)))
        there[name] = on, cpu
        if kind == "DELETED" or phase == "Succeeded":
            del there[name]
    check(view, there)
    handlers(view)[NODES].change("ADDED", raw(node("n2")))  # pods may be known before their node
    check(view, there)
    relisted = dict(later)
    listed(handler, [raw(pod(name, on)) for name, on in relisted.items()])
    check(view, {name: (on, "1") for name, on in relisted.items()})


def check(view: ClusterUse, there: dict[str, tuple[str, str]]) -> None:
    milli = {"1": 1000, "250m": 250}
    for row in view.rows():
        mine = [milli[cpu] for on, cpu in there.values() if on == row.node.name]
        assert (row.use["cpu"], row.use["pods"]) == (sum(mine), len(mine))
    assert view.waiting() == dict(Counter("steersman" for on, _ in there.values() if not on))
    assert len(view.pods) == len(there)


def test_binds_count_pods_seen_pending() -> None:
    view = view_of([node("n1")], [pod("a"), pod("b"), pod("old", "n1")])
    assert view.rate(100.0) == 0
    handler = handlers(view)[PODS]
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
    assert row.use["pods"] == 2
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
    try:
        yield double, write_kubeconfig(tmp_path, double.url, "test")
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
        double.fault = failing(403)
        _, error = run("--kubeconfig", str(kubeconfig), "--once")
        assert str(error) == "GET /api/v1/nodes: forbidden (HTTP 403)"
    _, error = run("--kubeconfig", str(kubeconfig), "--once")
    assert isinstance(error, SteersmanError)
    assert "cannot be reached" in str(error)


# The screen ----------------------------------------------------------------------------------------------------------

ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
UP, END, PAGE_UP = "\x1b[A", "\x1b[F", "\x1b[5~"


class Terminal:
    """A terminal on which `steersman top` runs."""

    def __init__(self, kubeconfig: Path, columns: int, lines: int) -> None:
        self.leader, follower = pty.openpty()
        self.before = termios.tcgetattr(self.leader)
        self.size(columns, lines)
        command = [sys.executable, "-m", "steersman", "top", "--kubeconfig", str(kubeconfig)]
        kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=kept | {"TERM": "xterm-256color"}
        )
        self.follower, self.written = follower, b""
        os.set_blocking(self.leader, False)

    def size(self, columns: int, lines: int) -> None:
        self.width, self.height = columns, lines
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> str:
        with suppress(BlockingIOError):
            while True:
                self.written += os.read(self.leader, 1 << 16)
        return self.written.decode(errors="ignore")

    @property
    def lines(self) -> list[str]:
        """The newest whole frame; each begins at the top left corner."""
        for frame in reversed(self.read().split("\x1b[H")):
            if len(lines := ESCAPE.sub("", frame).split("\r\n")) == self.height and len(lines[-1]) == self.width:
                return [line.rstrip() for line in lines]
        return [""] * self.height

    @property
    def nodes(self) -> list[str]:
        return [line.strip() for line in self.lines if line.startswith(" node-")]

    async def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self.leader, key.encode())
            await asyncio.sleep(0.1)

    async def resize(self, columns: int, lines: int) -> None:
        self.size(columns, lines)
        await until(lambda: any(self.lines))

    async def ended(self) -> int:
        """Wait for the end, check that the terminal is as it was, and return the exit status."""
        await until(lambda: (self.read(), self.process.poll())[1] is not None)
        assert self.read().rindex("\x1b[?1049l") > self.read().rindex("\x1b[?1049h"), "the former screen is back"
        assert self.read().rindex("\x1b[?25h") > self.read().rindex("\x1b[?25l"), "the cursor is back"
        assert termios.tcgetattr(self.leader) == self.before
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self.leader)
        os.close(self.follower)


@asynccontextmanager
async def on_terminal(
    tmp_path: Path, *, nodes: int = 200, fault: Any = None
) -> AsyncIterator[tuple[KubeDouble, Terminal]]:
    """A server, and `steersman top` on a terminal of 80 columns and 24 lines."""
    async with KubeDouble() as server:
        for i in range(nodes):
            server.put(NODES, node(f"node-{i:03}"))
        server.fault = fault
        terminal = Terminal(write_kubeconfig(tmp_path, server.url, "test"), 80, 24)
        try:
            yield server, terminal
        finally:
            terminal.close()


async def test_screen_follows_the_cluster_and_obeys_keys(tmp_path: Path) -> None:
    async with on_terminal(tmp_path) as (server, terminal):
        await until(lambda: "test: 200 nodes, 0 pods" in terminal.lines[0])
        assert [line[:8] for line in terminal.nodes] == [f"node-{i:03}" for i in range(20)]
        assert terminal.lines[-1].endswith("1-20 of 200")
        server.put(PODS, pod("a", "node-150", cpu="4"))
        server.put(PODS, pod("b"))
        await until(lambda: "Pending 1 (steersman 1)" in terminal.lines[1])
        await terminal.press("c")
        await until(lambda: terminal.nodes[0].startswith("node-150") and "4/8" in terminal.nodes[0])
        assert "CPU ↓" in terminal.lines[2]
        await terminal.press("c")
        await until(lambda: terminal.nodes[0].startswith("node-000"))
        await terminal.press("n", END)
        await until(lambda: terminal.nodes[-1].startswith("node-199"))
        await terminal.press(UP, "k", PAGE_UP)
        await until(lambda: terminal.nodes[0].startswith("node-158"))
        await terminal.press("j", " ", "\x1bOH")
        await until(lambda: terminal.nodes[0].startswith("node-000"))
        await terminal.press("g" + END)  # several keys at once
        await until(lambda: terminal.lines[-1].endswith("181-200 of 200"))
        await terminal.press("q")
        assert await terminal.ended() == 0


async def test_filter_is_typed_kept_and_cleared(tmp_path: Path) -> None:
    async with on_terminal(tmp_path) as (_, terminal):
        await until(lambda: "200 nodes" in terminal.lines[0])
        await terminal.press("/")
        await until(lambda: "part of a name, GPU model or state" in terminal.lines[-2])
        await terminal.press("q", "ü", "\x7f", "\x7f", "0", "7")  # q is a letter here
        await until(lambda: "200 nodes, 12 shown" in terminal.lines[0])
        assert all("07" in line.split()[0] for line in terminal.nodes)
        await terminal.press("\r", "c")
        await until(lambda: "CPU ↓" in terminal.lines[2])
        assert terminal.lines[-2] == " /07"
        await terminal.press("\x1b")
        await until(lambda: "200 nodes, 0 pods" in terminal.lines[0])
        await terminal.press("/", "x", "\x03")
        assert await terminal.ended() == 0


@pytest.mark.parametrize(
    ("parts", "keys"),
    [
        ((b"\x1b[", b"Bq"), ["down", "q"]),
        ((b"\x1b", b"OHj"), ["home", "j"]),
        ((b"\xc3", b"\xbc\xff\r"), ["ü", "enter"]),
        ((b"\x1b[1;5A\x1b[200~x",), ["x"]),  # keys with Ctrl, and what no key sends
        ((b"\x1b",), ["escape"]),
    ],
)
async def test_keys_may_arrive_in_parts(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...], keys: list[str]
) -> None:
    monkeypatch.setattr("steersman.live.top.HELD_SECONDS", 10.0 if len(parts) > 1 else 0.01)
    leader, follower = pty.openpty()
    pressed: list[str] = []
    with open(follower) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with pressed_keys(pressed.append):
            os.write(leader, parts[0])
            for part in parts[1:]:
                threading.Timer(0.3, os.write, (leader, part)).start()
            await until(lambda: len(pressed) >= len(keys))
    os.close(leader)
    assert pressed == keys


async def test_screen_fits_the_terminal_and_a_signal_restores_it(tmp_path: Path) -> None:
    async with on_terminal(tmp_path, nodes=60) as (_, terminal):
        await until(lambda: "60 nodes" in terminal.lines[0])
        narrow = len(terminal.nodes[0])
        await terminal.resize(160, 50)
        await until(lambda: len(terminal.nodes) == 46)
        assert len(terminal.nodes[0]) > narrow
        await terminal.resize(30, 5)
        assert all(len(line) <= 30 for line in terminal.lines)
        await terminal.resize(80, 24)
        await until(lambda: len(terminal.nodes) == 20)
        terminal.process.send_signal(signal.SIGTERM)
        assert await terminal.ended() == 143


def test_only_visible_lines_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    line = Layout.line
    monkeypatch.setattr(
        Layout, "line", lambda self, row, blocks: drawn.append(row.node.name) or line(self, row, blocks)
    )
    view = view_of([node(f"node-{i:04}") for i in range(5000)], [])
    app = TopApp(None, "test", ViewOptions(reverse=True), BLOCKS)
    app.view = view
    app.frame(0.0, 100, 30)
    assert drawn == [f"node-{i:04}" for i in range(4999, 4972, -1)]


async def test_missing_permission_ends_top_with_one_line(tmp_path: Path) -> None:
    async with on_terminal(tmp_path, fault=failing(403, PODS)) as (_, terminal):
        assert await terminal.ended() == 1
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == b"error: GET /api/v1/pods: forbidden (HTTP 403)\n"


async def test_lost_server_is_reported_and_the_view_stays(tmp_path: Path) -> None:
    async with on_terminal(tmp_path, nodes=1) as (server, terminal):
        await until(lambda: "1 nodes" in terminal.lines[0])
        server.fault = failing(500)
        server.end_watches()
        await until(lambda: "HTTP 500" in terminal.lines[2])
        assert terminal.nodes[0].startswith("node-000")
        server.fault = None
        server.put(NODES, node("node-001"))
        await until(lambda: "2 nodes" in terminal.lines[0])


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
    handlers(view)[NODES].change("ADDED", raw(node("n")))
    handlers(view)[PODS].change("ADDED", raw(asking))
    (row,) = view.rows()
    assert row.amounts("gpu") == (1.0, 2.0)
