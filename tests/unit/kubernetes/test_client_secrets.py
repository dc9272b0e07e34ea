"""What goes wrong on the way to an API server is said without passwords of proxies, servers and plugins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import ExecConfig, KubeCluster, KubeConfig, KubeUser

SECRET = "s3cr3t-of-tests"
CONFIG = KubeConfig(Path("kubeconfig"), "here", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default")


def error_of(config: KubeConfig) -> str:
    async def ask() -> str:
        async with Client(config) as client:
            with pytest.raises(SteersmanError) as caught:
                await client.request("GET", "/api/v1/nodes")
            return str(caught.value)

    return asyncio.run(ask())


def test_proxy_error_hides_its_password() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story() -> str:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            proxy = f"http://user:{SECRET}@127.0.0.1:{port}"
            cluster = KubeCluster("https://api.example:6443", proxy_url=proxy)
            async with Client(replace(CONFIG, cluster=cluster)) as client:
                with pytest.raises(SteersmanError) as caught:
                    await client.request("GET", "/api/v1/nodes")
                return str(caught.value)

    said = asyncio.run(story())
    assert "407" in said
    assert SECRET not in said


def test_server_error_hides_its_password() -> None:
    said = error_of(replace(CONFIG, cluster=KubeCluster(f"http://admin:{SECRET}@127.0.0.1:1")))
    assert "127.0.0.1:1" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "printed",
    [
        f"request with Authorization: Bearer {SECRET} failed",
        f'{{"kind":"ExecCredential","status":{{"token":"{SECRET}"}}}}',
        f"POST https://sso.example/token?client_secret={SECRET}: 401",
        f"helper: --password={SECRET} is wrong",
    ],
)
def test_credential_plugin_output_hides_secrets(tmp_path: Path, printed: str) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n")
    plugin.chmod(0o755)
    said = error_of(replace(CONFIG, user=KubeUser(exec=ExecConfig(str(plugin)))))
    assert "failed" in said
    assert SECRET not in said
