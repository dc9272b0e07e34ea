"""A service that others on the network can reach says what they can do, and which options change that."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from steersman.live.service.config import ServiceConfig, Tls, exposure
from steersman.live.service.process import Service

TLS, MUTUAL = Tls(certificate="c", key="k"), Tls(certificate="c", key="k", client_ca="a")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "2001:db8::1", "gpu-host.example"])
def test_public_address_needs_a_token_or_certificates(address: str) -> None:
    for tls in (None, TLS):
        problem = exposure(ServiceConfig(address=address, tls=tls))
        assert "tokenFile" in problem
        assert "tls.clientCa" in problem
        assert "\n" not in problem
    assert "unencrypted" in exposure(ServiceConfig(address=address, token_file="t"))
    assert exposure(ServiceConfig(address=address, token_file="t", tls=TLS)) == ""
    assert exposure(ServiceConfig(address=address, tls=MUTUAL)) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_address_needs_nothing(address: str) -> None:
    assert exposure(ServiceConfig(address=address)) == ""


@pytest.mark.parametrize(("address", "warnings"), [("0.0.0.0", 1), ("127.0.0.1", 0)])
def test_warning_is_logged_once_when_it_listens(address: str, warnings: int) -> None:
    async def story() -> None:
        service = Service(ServiceConfig(policy="fgd", address=address, port=0, allow_sent_clusters=True), None)
        listening = asyncio.Event()
        task = asyncio.create_task(service.run(lambda _: listening.set()))
        async with asyncio.timeout(60):
            await listening.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with capture_logs() as logged:
        asyncio.run(story())
    assert [line["address"] for line in logged if line["log_level"] == "warning"] == [address] * warnings
