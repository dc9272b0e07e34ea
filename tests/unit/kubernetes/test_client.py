"""What is said of servers that are none, or not the right ones."""

import ssl
from dataclasses import replace

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.support.errors import raises
from tests.support.servers.fake_api_server import KubeDouble, in_jumping_time

from steersman.cli.main import describe
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client, UnreachableError


@pytest.mark.parametrize("body", ["<html>Welcome</html>", "null", "[]", '{"items": ["cut'])
@in_jumping_time
async def test_server_without_kubernetes_api_is_reported(body):
    async with KubeDouble() as server:

        async def answers(_: web.Request) -> web.StreamResponse:
            return web.Response(text=body, content_type="text/html")

        server.fault = answers
        async with Client(server.config()) as client:
            for ask in (client.get("/version"), client.list("/api/v1/pods"), client.create("/api/v1/pods", {})):
                with raises(SteersmanError) as error:
                    await ask
                assert server.url in str(error.value)


@in_jumping_time
async def test_null_list_is_empty():
    async with KubeDouble() as server:

        async def answers(_: web.Request) -> web.StreamResponse:
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": None})

        server.fault = answers
        async with Client(server.config()) as client:
            assert (await client.list("/api/v1/pods")).items == []


@in_jumping_time
async def test_tls_to_a_plain_http_server_is_reported():
    async with KubeDouble() as server:
        config = server.config()
        cluster = msgspec.structs.replace(config.cluster, server=server.url.replace("http:", "https:"))
        async with Client(replace(config, cluster=cluster)) as client:
            with raises(UnreachableError):
                await client.get("/version")


@in_jumping_time
async def test_untrusted_certificate_is_reported():
    async with KubeDouble() as server:
        client = Client(server.config())
        cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
        cause.verify_message = "self-signed certificate"
        error = aiohttp.ClientConnectorCertificateError(None, cause)  # type: ignore[arg-type]
        assert str(client._unreachable(error)).endswith("certificate is not valid: self-signed certificate")


def test_error_group_reports_the_user_facing_error():
    refused = ApiError("GET /api/v1/pods", 403, "Forbidden", "no", 0.0)
    group = ExceptionGroup("some", [ValueError("odd"), ExceptionGroup("more", [refused])])
    assert describe(group) == (str(refused), 1)
    assert "bug" in describe(ExceptionGroup("some", [ValueError("odd")]))[0]
