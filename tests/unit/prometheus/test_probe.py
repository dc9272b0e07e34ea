"""The probe of latencies: what it measures, and how it answers."""

import asyncio
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.errors import raises
from tests.support.servers.fake_prometheus import Prometheus

from steersman.core.errors import UsageError
from steersman.live.runtime.http_server import serve_probe
from steersman.prometheus.probe import Probe, ProbeTarget, parse_target


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("rome=10.0.0.1:443", "10.0.0.1", 443, ""),
        ("rome=[::1]:443", "::1", 443, ""),
        ("rome=http://users.example/a?b", "users.example", 80, "/a?b"),
        ("rome=http://users.example:8080", "users.example", 8080, "/"),
    ],
)
def test_targets(text: str, host: str, port: int, path: str) -> None:
    assert parse_target(text) == ProbeTarget("rome", host, port, path)


@pytest.mark.parametrize(
    "text", ["", "rome", "rome=", "=h:1", "r=h", "r=h:0", "r=h:65536", "r=h:1/p", "r=ftp://h/", "r=a b:1"]
)
def test_invalid_target_is_rejected(text: str) -> None:
    with raises(UsageError, "USER", "HOST", "PORT"):
        parse_target(text)


def test_probe_takes_the_median_and_forgets_unreachable_targets() -> None:
    async def story() -> None:
        async def slow(_: web.Request) -> web.Response:
            await asyncio.sleep(0.03)
            return web.Response()

        app = web.Application()
        app.router.add_get("/", slow)
        users = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await users.setup()
        await web.TCPSite(users, "127.0.0.1", 0).start()
        port = users.addresses[0][1]
        probe = Probe(
            [parse_target(f"rome=http://127.0.0.1:{port}/"), parse_target(f"oslo=127.0.0.1:{port}")], 0.05, 3, 0.2
        )
        following = asyncio.create_task(probe.run())
        while len(probe.latencies) < 2:
            await asyncio.sleep(0.01)
        assert 30 <= probe.latencies["rome"] < 200
        assert probe.latencies["oslo"] < 30
        await users.cleanup()
        while probe.latencies:
            await asyncio.sleep(0.01)
        assert min(probe.failures.values()) >= 1
        registry = CollectorRegistry()
        registry.register(probe)
        assert "steersman_probe_latency_milliseconds{" not in generate_latest(registry).decode()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(story())


def test_probe_command_measures_until_stopped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as users:
        here = free_port()
        targets = ("--target", f"rome=127.0.0.1:{users.getsockname()[1]}", "--interval", "0.1")
        log = ("--log-file", str(tmp_path / "probe.log"))
        command = [sys.executable, "-m", "steersman", "probe", *targets, "--port", str(here), *log]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            text, end = "", time.monotonic() + 60
            while not text and time.monotonic() < end:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{here}/", timeout=5) as answer:
                        text = answer.read().decode()
                except OSError:  # not listening, or not measured
                    time.sleep(0.05)
            process.terminate()
        assert 0 < float(text) < 1000
        assert process.returncode == 143


def test_the_probe_answers_in_milliseconds_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with Prometheus() as users:  # anybody who listens
            port = users.url.split(":")[2].split("/")[0]
            nobody = free_port()
            probe = Probe(
                [parse_target(f"rome=127.0.0.1:{port}"), parse_target(f"oslo=127.0.0.1:{nobody}")], 0.05, 3, 0.2
            )
            serving = asyncio.create_task(serve_probe(probe, "127.0.0.1", here := free_port()))
            async with aiohttp.ClientSession(f"http://127.0.0.1:{here}") as session:

                async def get(path: str) -> tuple[int, str]:
                    async with session.get(path) as answer:
                        return answer.status, await answer.text()

                while not probe.latencies or not probe.failures["oslo"]:
                    await asyncio.sleep(0.01)
                status, text = await get("/rome")
                assert (status, 0 < float(text) < 100) == (200, True)
                assert await get("/oslo") == (503, "not measured\n")
                assert await get("/") == (503, "not measured\n")  # oslo might be the furthest
                assert await get("/paris") == (404, "unknown users; known are rome, oslo\n")
                assert (await get("/healthz"))[0] == 200
                assert 'steersman_probe_failures_total{user="oslo"}' in (await get("/metrics"))[1]
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(story())
    told = capsys.readouterr().out
    assert told.count("users cannot be reached") == 1
