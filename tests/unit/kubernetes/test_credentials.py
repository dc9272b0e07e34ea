"""Credentials that take too long, and certificates that are replaced while a client runs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import ssl
import time
from asyncio import base_subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.core.errors import SteersmanError
from steersman.kubernetes import credentials
from steersman.kubernetes.client import Client, UnreachableError
from steersman.kubernetes.config import ExecConfig, KubeCluster, KubeConfig, KubeUser, load
from steersman.kubernetes.credentials import Credentials

SLOW = 'echo $$ > "$0"; sleep 600 & sleep 600'
"""A script that starts at once on a busy machine, too."""


def _until_ended(group: int) -> None:
    """Wait until a process group has no member any more, and fail if that takes long."""
    until = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
        pytest.fail("it runs on")


def config(server: str, user: KubeUser | None = None, authority: str = "") -> KubeConfig:
    return KubeConfig(
        Path("kubeconfig"), "c", KubeCluster(server, certificate_authority=authority), user or KubeUser(), "x"
    )


def test_unresponsive_plugin_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "EXEC_SECONDS", 3.0, raising=False)
    noted = tmp_path / "pid"
    plugin = ExecConfig("/bin/sh", args=["-c", SLOW, str(noted)], install_hint="reinstall it")

    async def main() -> None:
        found = Credentials(config("https://127.0.0.1:1", KubeUser(exec=plugin)))
        with raises(SteersmanError, "3"):
            async with asyncio.timeout(30):
                await found.headers()

    asyncio.run(main())
    _until_ended(int(noted.read_text()))


PRINTS = (
    'echo once >> "$0"; printenv KUBERNETES_EXEC_INFO > "$1"; '
    """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'"""
)


def test_many_refused_requests_run_the_plugin_once_with_the_authority_of_the_cluster(tmp_path: Path) -> None:
    authority, runs, info = tmp_path / "ca.crt", tmp_path / "runs", tmp_path / "info"
    put(authority, trustme.CA().cert_pem.bytes())
    plugin = ExecConfig("/bin/sh", args=["-c", PRINTS, str(runs), str(info)], provide_cluster_info=True)
    found = Credentials(config("https://127.0.0.1:1", KubeUser(exec=plugin), str(authority)))

    async def main() -> None:
        assert await found.headers() == {"Authorization": "Bearer t"}
        await asyncio.gather(*(found.headers(renew=True) for _ in range(5)))

    asyncio.run(main())
    assert runs.read_text().split() == ["once", "once"]
    cluster = json.loads(info.read_text())["spec"]["cluster"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == authority.read_bytes()


def test_abandoned_plugin_is_killed(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    plugin = ExecConfig("/bin/sh", args=["-c", SLOW, str(noted)])

    async def main() -> None:
        found = Credentials(config("https://127.0.0.1:1", KubeUser(exec=plugin)))
        asked = asyncio.create_task(found.headers())
        while not noted.exists() or not noted.read_text():
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(main())
    _until_ended(int(noted.read_text()))


def test_just_started_plugin_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    plugin = ExecConfig("/bin/sh", args=["-c", SLOW, str(noted)])
    connect = base_subprocess.BaseSubprocessTransport._connect_pipes
    reached = asyncio.Event()

    async def connect_late(self: base_subprocess.BaseSubprocessTransport, waiter: asyncio.Future[None]) -> None:
        reached.set()
        while not noted.exists() or not noted.read_text():
            await asyncio.sleep(0.01)
        await connect(self, waiter)

    monkeypatch.setattr(base_subprocess.BaseSubprocessTransport, "_connect_pipes", connect_late)

    async def main() -> None:
        found = Credentials(config("https://127.0.0.1:1", KubeUser(exec=plugin)))
        asked = asyncio.create_task(found.headers())
        await reached.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(main())
    _until_ended(int(noted.read_text()))


@contextlib.asynccontextmanager
async def api(authority: trustme.CA):
    """The address of a server with a certificate of this authority."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"gitVersion": "v1.37.2"})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    app = web.Application()
    app.router.add_get("/version", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def put(file: Path, content: bytes) -> None:
    new = file.with_name("new")
    new.write_bytes(content)
    os.replace(new, file)


async def test_replaced_certificate_authority_needs_no_restart(tmp_path: Path) -> None:
    former, new, file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    put(file, former.cert_pem.bytes())
    now = [0.0]
    async with (
        asyncio.timeout(60),
        api(former) as first,
        api(new) as second,
        Client(config(first, authority=str(file))) as client,
    ):
        client.credentials = Credentials(client.config, lambda: now[0])
        other = replace(client.config, cluster=KubeCluster(second, certificate_authority=str(file)))
        assert await client.get("/version") == {"gitVersion": "v1.37.2"}
        client._base = other.cluster.server
        with raises(UnreachableError):
            await client.get("/version")
        put(file, b"nonsense")
        now[0] += credentials.FILES_SECONDS
        with raises(UnreachableError):
            await client.get("/version")
        client._base = first
        assert await client.get("/version"), "the former goes on"
        client._base = second
        put(file, new.cert_pem.bytes())
        now[0] += credentials.FILES_SECONDS
        assert await client.get("/version") == {"gitVersion": "v1.37.2"}


@given(st.lists(st.booleans(), max_size=12))
def test_tls_context_changes_only_with_a_valid_file(changes: list[bool]) -> None:
    import tempfile

    authorities = [trustme.CA()]
    with tempfile.TemporaryDirectory() as folder:
        file, now = Path(folder, "ca.crt"), [0.0]
        put(file, authorities[0].cert_pem.bytes())

        async def main() -> None:
            found = Credentials(config("https://127.0.0.1:1", authority=str(file)), lambda: now[0])
            for i, is_usable in enumerate(changes):
                before = found.context
                put(file, authorities[0].cert_pem.bytes() + b"\n" * (i + 1) if is_usable else b"x" * (i + 1))
                await found.headers()
                assert found.context is before, "it was looked at just now"
                now[0] += credentials.FILES_SECONDS
                await found.headers()
                assert (found.context is not before) == is_usable

        asyncio.run(main())


def test_requests_are_those_of_the_impersonated_user(tmp_path: Path) -> None:
    text = """
    clusters: [{name: c, cluster: {server: SERVER}}]
    contexts: [{name: x, context: {cluster: c, user: u}}]
    current-context: x
    users:
    - name: u
      user: {token: t, as: eve, as-uid: "7", as-groups: [dev, ops], as-user-extra: {example.com/team: [a, b]}}
    """
    seen: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.extend((name, value) for name, value in request.headers.items() if name.startswith("Impersonate"))
        return web.json_response({})

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/version", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        file = tmp_path / "kubeconfig"
        file.write_text(text.replace("SERVER", f"http://127.0.0.1:{runner.addresses[0][1]}"))
        async with Client(load(file)) as client:
            await client.get("/version")
        await runner.cleanup()

    asyncio.run(main())
    assert seen == [
        ("Impersonate-User", "eve"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fteam", "a"),
        ("Impersonate-Extra-example.com%2Fteam", "b"),
    ]
