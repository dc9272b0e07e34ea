"""Waits between attempts."""

from __future__ import annotations

import asyncio

import pytest

from steersman.core.event_loop import Backoff


def waits(backoff: Backoff, monkeypatch: pytest.MonkeyPatch, *at_least: float) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def main() -> None:
        for seconds in at_least:
            await backoff.wait(seconds)

    with monkeypatch.context() as patched:
        patched.setattr("steersman.core.event_loop.asyncio.sleep", sleep)
        asyncio.run(main())
    return slept


def test_waits_double_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = waits(Backoff(0.1, 0.5), monkeypatch, *[0.0] * 5)
    for seconds, most in zip(slept, (0.1, 0.2, 0.4, 0.5, 0.5), strict=True):
        assert most / 2 <= seconds <= most


def test_server_may_request_a_longer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = waits(Backoff(0.1, 0.5), monkeypatch, 7.0, 0.0)
    assert 7.0 <= first <= 8.75
    assert 0.1 <= second <= 0.2


def test_success_resets_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = Backoff(0.1, 0.5)
    waits(backoff, monkeypatch, 0.0, 0.0, 0.0)
    backoff.reset()
    (seconds,) = waits(backoff, monkeypatch, 0.0)
    assert seconds <= 0.1
