"""Leader election: one leads, it stops in time, the next one follows; in time that jumps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from tests.support.errors import raises
from tests.support.servers.fake_api_server import JumpingLoop, KubeDouble, Story, as_test, clock, failure, play

from steersman.core.errors import UsageError
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.lease import LeaderElection, Lease, LeaseLostError, LeaseTimes

STEERSMAN = Lease("default", "steersman")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Candidate:
    """One of several that want to lead; keeps when it did."""

    def __init__(
        self, client: Client, name: str, linger: float = 0.0, lease: Lease = STEERSMAN, **options: Any
    ) -> None:
        self.election = LeaderElection(client, lease, identity=name, clock=clock, on_change=self.changed, **options)
        self.changes: list[tuple[float, bool]] = []
        self.began: list[float] = []
        self.ended: list[float] = []
        self.linger = linger
        self.decided: list[float] = []
        self.task = asyncio.ensure_future(self.election.run(self.lead))

    def changed(self, leads: bool) -> None:
        self.changes.append((clock(), leads))

    async def lead(self) -> None:
        self.began.append(clock())
        try:
            while True:
                if self.election.is_leader:
                    self.decided.append(clock())
                await asyncio.sleep(0.5)
        finally:
            await asyncio.sleep(self.linger)
            self.ended.append(clock())

    async def lost(self) -> None:
        """Wait until it has ended because it lost the lease."""
        with raises(LeaseLostError, "default/steersman"):
            async with asyncio.timeout(100):
                await self.task

    async def stop(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


async def leading(candidate: Candidate) -> None:
    async with asyncio.timeout(100):
        while not candidate.election.is_leader:
            await asyncio.sleep(0.5)


def with_server(test: Story) -> Callable[..., None]:
    """Play a test with a new server, `server`, and a client of it, `client`, in time that jumps."""

    async def served(story: Story) -> None:
        async with KubeDouble() as server, Client(server.config()) as client:
            await story(server, client)

    return as_test(test, lambda story: play(served(story)), "server", "client")


def lose_an_answer(server: KubeDouble) -> None:
    """Have the next change be made, and its answer be lost."""

    async def lose(request: web.Request) -> None:
        if request.method == "PUT":
            server.fault = None
            server.put(LEASES, await request.json())
            await asyncio.sleep(1000)

    server.fault = lose


def spec(server: KubeDouble) -> dict[str, Any]:
    found: dict[str, Any] = server.objects[LEASES, "steersman"]["spec"]
    return found


@with_server
async def test_first_candidate_leads_and_releases_at_the_end(server: KubeDouble, client: Client) -> None:
    first = Candidate(client, "first", lease=replace(STEERSMAN, annotations={"steersman.dev/policy": "fgd"}))
    await leading(first)
    second = Candidate(client, "second")
    await asyncio.sleep(60)
    assert spec(server)["holderIdentity"] == "first"
    assert spec(server)["leaseTransitions"] == 0
    assert server.objects[LEASES, "steersman"]["metadata"]["annotations"] == {"steersman.dev/policy": "fgd"}
    assert not second.began
    assert second.election.holder == "first"
    stopped_at = clock()
    await first.stop()
    assert spec(server)["holderIdentity"] == ""
    assert spec(server)["leaseDurationSeconds"] == 1
    await leading(second)
    assert clock() - stopped_at < 6  # a released lease is not waited out
    assert spec(server)["holderIdentity"] == "second"
    assert spec(server)["leaseTransitions"] == 1
    assert first.ended[0] <= second.began[0]
    assert [leads for _, leads in first.changes] == [True, False]
    await second.stop()


@with_server
async def test_lease_of_a_dead_holder_is_taken_after_its_duration(server: KubeDouble, client: Client) -> None:
    # By its times it has expired long ago; by our clock it has not: the holder's clock may be wrong.
    held = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    server.put(LEASES, {"metadata": {"name": "steersman"}, "spec": {**held, "leaseTransitions": 4}})
    candidate = Candidate(client, "new")
    began = clock()
    await leading(candidate)
    assert 15 <= clock() - began < 20
    assert spec(server)["leaseTransitions"] == 5
    await candidate.stop()


@with_server
async def test_leader_without_renewal_stops_before_another_starts(server: KubeDouble, client: Client) -> None:
    hanging = False

    async def hang(request: web.Request) -> None:
        if hanging and request.headers["User-Agent"] == "cut off":
            await asyncio.sleep(1000)

    server.fault = hang
    async with Client(server.config(), "cut off") as broken:
        first = Candidate(broken, "first", linger=1.0)
        await leading(first)
        second = Candidate(client, "second")
        await asyncio.sleep(20)
        hanging, cut_at = True, clock()
        await leading(second)
        assert first.decided[-1] <= cut_at + 10
        assert first.ended[0] <= cut_at + 11.1
        assert first.decided[-1] < first.changes[1][0] <= cut_at + 10.01  # said at once, not when it has ended
        assert second.began[0] >= cut_at + 12
        hanging = False
        await first.lost()
        assert second.election.succeeds
        await second.stop()


@with_server
async def test_the_deadline_counts_between_two_attempts_too(server: KubeDouble, client: Client) -> None:
    candidate = Candidate(client, "first", times=LeaseTimes(15, 10, 3))  # 3, 6, 9 and then 12 would be too late
    await leading(candidate)

    async def fail(_: web.Request) -> web.Response:
        return failure(500, "InternalError")

    await asyncio.sleep(30.5)
    server.fault, cut_at = fail, clock()
    await asyncio.sleep(20)
    assert candidate.changes[1][0] <= cut_at + 10.01
    server.fault = None
    await candidate.lost()


@with_server
async def test_stopped_leader_decides_nothing_after_resuming(server: KubeDouble, client: Client) -> None:
    candidate = Candidate(client, "first")
    await leading(candidate)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.stall(10.5)
    assert not candidate.election.is_leader  # at once, before any timer could run
    before = len(candidate.decided)
    await asyncio.sleep(0)
    assert len(candidate.decided) == before
    await candidate.lost()  # although nobody else wanted it
    assert spec(server)["leaseTransitions"] == 0


@with_server
async def test_taken_lease_is_lost_at_the_next_renewal(server: KubeDouble, client: Client) -> None:
    candidate = Candidate(client, "first")
    await leading(candidate)
    thief = {**spec(server), "holderIdentity": "thief"}
    lease = {**server.objects[LEASES, "steersman"], "spec": thief}
    server.put(LEASES, lease)
    taken_at = clock()
    await asyncio.sleep(4)
    assert candidate.ended
    assert candidate.ended[0] - taken_at <= 2.1
    assert spec(server)["holderIdentity"] == "thief"  # not released: it is not ours
    await candidate.lost()


@with_server
async def test_one_of_two_concurrent_candidates_is_rejected(client: Client) -> None:
    both = [Candidate(client, name) for name in ("a", "b")]
    await asyncio.sleep(40)
    assert sorted(len(each.began) for each in both) == [0, 1]
    for each in both:
        await each.stop()


@with_server
async def test_transient_failures_keep_the_lease(server: KubeDouble, client: Client) -> None:
    count = 0

    async def flaky(_: web.Request) -> web.Response | None:
        nonlocal count
        count += 1
        if count < 10:
            return None
        return (failure(409, "Conflict"), failure(500, "InternalError"), None, None, None, None)[count % 6]

    server.fault = flaky
    candidate = Candidate(client, "first")
    await asyncio.sleep(120)
    assert len(candidate.began) == 1
    assert not candidate.ended
    server.fault = None
    await candidate.stop()


@with_server
async def test_lost_response_is_no_conflict(server: KubeDouble, client: Client) -> None:
    candidate = Candidate(client, "first")
    await leading(candidate)
    lose_an_answer(server)
    await asyncio.sleep(30)
    assert len(candidate.began) == 1
    assert not candidate.ended
    await candidate.stop()


@with_server
async def test_errors_and_end_of_the_work_release_the_lease(server: KubeDouble, client: Client) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def end() -> None:
        return

    election = LeaderElection(client, Lease("default", "steersman"), identity="x", clock=clock)
    with pytest.raises(ValueError, match="broken"):
        await election.run(fail)
    assert spec(server)["holderIdentity"] == ""
    assert not election.is_leader
    await election.run(end)
    assert spec(server)["holderIdentity"] == ""
    assert spec(server)["leaseTransitions"] == 1


@with_server
async def test_taken_lease_is_not_released(server: KubeDouble, client: Client) -> None:
    async def be_robbed_and_end() -> None:
        thief = {**spec(server), "holderIdentity": "thief"}
        server.put(LEASES, {**server.objects[LEASES, "steersman"], "spec": thief})

    await LeaderElection(client, Lease("default", "steersman"), identity="x", clock=clock).run(be_robbed_and_end)
    assert spec(server)["holderIdentity"] == "thief"


@with_server
async def test_missing_permission_is_fatal_at_the_start_only(server: KubeDouble, client: Client) -> None:
    async def forbid(_: web.Request) -> web.Response:
        return failure(403, "Forbidden")

    server.fault = forbid
    with raises(ApiError, "leases/steersman", "HTTP", "403"):
        await Candidate(client, "first").task
    server.fault = None
    candidate = Candidate(client, "first")
    await leading(candidate)
    server.fault = forbid  # as an API server does whose authoriser has not started yet
    await asyncio.sleep(6)
    server.fault = None
    await asyncio.sleep(30)
    assert len(candidate.began) == 1
    assert not candidate.ended
    await candidate.stop()


@with_server
async def test_a_new_leader_knows_whether_the_last_one_released_the_lease(client: Client) -> None:
    first = Candidate(client, "first")
    await leading(first)
    assert not first.election.succeeds
    await first.stop()
    second = Candidate(client, "second", may_release=lambda: False)
    await leading(second)
    assert not second.election.succeeds
    await second.stop()
    third = Candidate(client, "third")
    await leading(third)
    assert third.election.succeeds
    await third.stop()


@with_server
async def test_new_leader_detects_its_predecessor_after_a_lost_response(server: KubeDouble, client: Client) -> None:
    held = {"holderIdentity": "gone", "leaseDurationSeconds": 1}
    server.put(LEASES, {"metadata": {"name": "steersman"}, "spec": held})
    lose_an_answer(server)
    candidate = Candidate(client, "new")
    await leading(candidate)
    assert candidate.election.succeeds
    await candidate.stop()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
@with_server
async def test_the_lease_expires_while_the_machine_is_suspended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended = 0.0
    clock_of = time.clock_gettime

    def clock_gettime(number: int) -> float:
        return clock_of(number) + (suspended if number == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    election = LeaderElection(client, Lease("default", "steersman"), identity="x")

    async def suspend() -> None:
        nonlocal suspended
        assert election.is_leader
        suspended = 20.0
        assert not election.is_leader

    await election.run(suspend)


@pytest.mark.parametrize("times", [(10, 15, 2), (15, 10, 9), (15, 10, 0)])
def test_inconsistent_lease_times_are_rejected(times: tuple[float, float, float]) -> None:
    with raises(UsageError):
        LeaseTimes(*times)
