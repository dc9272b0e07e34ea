"""What takes a service or a scheduler out of its endpoints, and what does not."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.servers.bindings import Get, bind, says, scheduling
from tests.support.servers.fake_api_server import KubeDouble
from tests.support.servers.live_cluster import PODS, LiveDouble
from tests.support.servers.live_cluster import pod as live_pod
from tests.support.servers.watched_service import Ask, node, pod, serve

from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.scheduler.process import (
    FORBIDDEN_SECONDS,
    LEAST_FORBIDDEN,
    BindingCheck,
    LiveScheduler,
)
from steersman.live.service.process import Service
from steersman.policies.registry import policy_path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "mine.safetensors"
    with policy_path("rules") as shipped:
        shutil.copy(shipped, file)
    return file


def test_broken_policy_update_keeps_the_service_ready(policy: Path) -> None:
    async def story(service: Service, _: KubeDouble, ask: Ask) -> None:
        assert (await ask("/readyz", method="GET"))[0] == 200
        assert "steersman_policy_file_broken 0.0" in (await ask("/metrics", method="GET"))[1]
        policy.write_bytes(b"nonsense")
        service.policy_manager.file.renewed()
        status, scores = await ask("/v1/scores", {"pod": pod("web")})
        assert (status, scores["neutral"]) == (200, ""), "it answers as well as before"
        status, text = await ask("/readyz", method="GET")
        assert (status, text) == (200, "[+]watches ok\nreadyz check passed\n")
        status, text = await ask("/healthz?verbose", method="GET")
        assert (status, "[!]policy degraded: " in text, str(policy) in text) == (200, True, True)
        text = (await ask("/metrics", method="GET"))[1]
        assert "steersman_policy_file_broken 1.0" in text
        assert 'steersman_policy_reads_total{result="refused"} 1.0' in text
        assert 'steersman_policy_reads_total{result="loaded"} 1.0' in text

    serve([node("n0")], [], story, policy=str(policy), unchecked=True)


def test_broken_policy_update_keeps_the_scheduler_ready(policy: Path) -> None:
    async def story(_: LiveDouble, scheduler: LiveScheduler, get: Get) -> None:
        policy.write_bytes(b"nonsense")
        scheduler.policy_manager.file.renewed()
        assert await get("readyz") == (200, "[+]loop ok\n[+]watches ok\n[+]bindings ok\nreadyz check passed\n")
        status, text = await get("healthz?verbose")
        assert (status, "[!]policy degraded: " in text) == (200, True)
        assert "steersman_policy_file_broken 1.0" in (await get("metrics"))[1]

    scheduling(str(policy), story)


def test_forbidden_bindings_are_reported_until_one_succeeds() -> None:
    async def story(double: LiveDouble, scheduler: LiveScheduler, get: Get) -> None:
        for i in range(LEAST_FORBIDDEN):
            double.put(PODS, live_pod(f"p{i}", scheduler="steersman"))
        while scheduler.binder.errors.get(403, 0) < LEAST_FORBIDDEN:
            await asyncio.sleep(0.01)
        status, text = await get("readyz")
        assert (status, "[-]bindings failed: the last 3 bindings were all forbidden" in text) == (503, True)
        assert (await get("healthz"))[0] == 200, "starting it anew would help nobody"
        while not double.objects[PODS, "p0"]["spec"].get("nodeName"):
            await asyncio.sleep(0.1)
        assert (await get("readyz"))[0] == 200

    scheduling("best-fit", story, [says(403)] * LEAST_FORBIDDEN + [bind])


def test_forbidden_bindings_make_the_scheduler_unready() -> None:
    errors: dict[int, int] = {}
    now = [0.0]
    check = BindingCheck(lambda: errors, lambda: now[0])
    assert check.problem() == ""
    errors[409] = 7
    for count in range(1, LEAST_FORBIDDEN):
        errors[403] = count
        assert check.problem() == ""
    errors[403] = LEAST_FORBIDDEN
    assert f"the last {LEAST_FORBIDDEN} bindings were all forbidden" in check.problem()
    now[0] += FORBIDDEN_SECONDS + 1
    assert check.problem() == "", "nothing was tried for long: it may be right by now"
    errors[403] += 1
    assert check.problem() != ""
    check.bound()
    assert check.problem() == ""


@given(st.lists(st.sampled_from(["bound", "forbidden", "conflict"]), max_size=30))
def test_scheduler_is_unready_while_every_binding_is_rejected(outcomes: list[str]) -> None:
    errors: dict[int, int] = {}
    check, since = BindingCheck(lambda: errors, lambda: 0.0), 0
    for each in outcomes:
        if each == "bound":
            check.bound()
            since = 0
        else:
            status = 403 if each == "forbidden" else 409
            errors[status] = errors.get(status, 0) + 1
            since += each == "forbidden"
        assert bool(check.problem()) == (since >= LEAST_FORBIDDEN)


def test_scrape_reads_no_file(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("at a scrape")

    async def story(service: Service, _: KubeDouble, ask: Ask) -> None:
        await ask("/v1/scores", {"pod": pod("web")})
        with monkeypatch.context() as patched:
            for name in ("sha256", "sha1", "md5", "blake2b", "new"):
                patched.setattr(hashlib, name, never)
            patched.setattr(Path, "read_bytes", never)
            patched.setattr(PolicyReloader, "renewed", never)
            for _ in range(3):
                status, text = await ask("/metrics", method="GET")
                assert (status, f'digest="{service.policy_manager.file.version}"' in text) == (200, True)

    serve([node("n0")], [], story, policy=str(policy), unchecked=True)
