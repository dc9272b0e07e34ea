"""`steersman schedule` where things die: every pod is bound exactly once, to a node where it fits, whatever happens."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.e2e.chaos.faults import BINDING, EVERYTHING, WATCH, Fault
from tests.e2e.chaos.oracle import PODS, Verdict, judge
from tests.e2e.chaos.scenario import ALL, CPU_NODES, SCALE, ChaosCluster, Scenario, node, pod, scenario
from tests.support.frozen_leader import ROOM, FrozenLeaderResult, FrozenLeaderTrial, Kind, as_json

from steersman.kubernetes.client import Client

pytestmark = pytest.mark.e2e

MANY = ALL // 4
"""Bound pods at which the burst is in full swing."""
LEADING = ("--leader-elect",)

Story = Callable[[Scenario], Awaitable[tuple[Verdict, str]]]
Tell = Callable[[str], None]


@pytest.fixture
def play(chaos: ChaosCluster, tmp_path: Path, tell: Tell, request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Plays a story in a world of its own and tells how it ended."""

    def run(story: Story) -> None:
        async def main() -> None:
            async with scenario(chaos, tmp_path, seed=1) as place:
                verdict, counts = await story(place)
                seconds = time.monotonic() - place.began
                tell(f"{request.node.name}: {verdict}; {counts}; {seconds:.0f} s")

        asyncio.run(main())

    return run


def test_the_scheduler_is_killed_and_another_takes_over(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        await scenario.create_pods()
        first = await scenario.scheduler()
        await scenario.bound(MANY)
        first.end()
        await asyncio.sleep(1)  # the watch may be behind
        before = scenario.watch.bound
        await scenario.scheduler()
        return await scenario.settle(), f"killed after {before} pods"

    play(story)


def test_terminating_leader_hands_over_to_a_lagging_one(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        async with scenario.proxy() as its_way, scenario.proxy() as other_way:
            its_way.faults = [Fault("delay", BINDING, seconds=2.0 / SCALE)]  # many pods wait, also under load
            leader = await scenario.scheduler(*LEADING, through=its_way)
            other = await scenario.scheduler(*LEADING, through=other_way, begins="leader changed")
            await scenario.create_pods()
            other_way.faults = [Fault("lag", WATCH, seconds=6.0)]
            await scenario.bound(MANY + scenario.watch.bound)
            leader.signal(signal.SIGTERM)
            asked = time.monotonic()
            await scenario.until(lambda: other.said("scheduling") > 0, "taken over")
            took, before = time.monotonic() - asked, scenario.watch.bound
            assert leader.process.wait(20) in (0, 143)
            assert not any(bind.at < asked for bind in other_way.binds)
            verdict = await scenario.settle()
            assert verdict.untold == 0
            return verdict, f"handed over after {before} pods in {took:.1f} s"

    play(story)


def test_a_leader_is_killed(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        leader = await scenario.scheduler(*LEADING)
        other = await scenario.scheduler(*LEADING, begins="leader changed")
        creating = asyncio.create_task(scenario.create_pods())
        await scenario.bound(MANY)
        leader.end()
        before, killed = scenario.watch.bound, time.monotonic()
        await scenario.until(lambda: other.said("scheduling") > 0, "taken over")
        took = time.monotonic() - killed
        assert took > 9  # not before the lease was over
        await creating
        return await scenario.settle(), f"killed after {before} pods, taken over after {took:.1f} s"

    play(story)


def test_leader_frozen_beyond_its_lease_binds_nothing(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        async with scenario.proxy() as its_way, scenario.proxy() as other_way:
            # Many bindings are to be tried again when it stands still.
            its_way.faults = [Fault("status", BINDING, 0.7, status=429, retry_after="1")]
            leader = await scenario.scheduler(*LEADING, through=its_way)
            other = await scenario.scheduler(*LEADING, through=other_way, begins="leader changed")
            creating = asyncio.create_task(scenario.create_pods())
            await scenario.until(lambda: len(its_way.binds) > 100, "bindings asked for")
            leader.signal(signal.SIGSTOP)
            before = scenario.watch.bound
            await scenario.until(lambda: other.said("scheduling") > 0, "taken over")
            await creating
            asked = len(its_way.binds)
            its_way.faults = []
            leader.signal(signal.SIGCONT)
            assert leader.process.wait(20) == 1
            assert leader.said("leadership lost") == 1
            verdict = await scenario.settle()
            await asyncio.sleep(6)  # longer than bindings under way are waited for
            late = its_way.binds[asked:]
            assert not late, f"{len(late)} bindings without the lease, such as {late[0]}"
            return (
                verdict,
                f"stopped after {before} pods, then {asked} bindings by it, {len(other_way.binds)} by the other",
            )

    play(story)


@pytest.mark.parametrize("kind", ["shares", "cpu"])
def test_leader_frozen_during_binding_exceeds_no_capacity(
    chaos: ChaosCluster, tmp_path: Path, kind: Kind, tell: Tell
) -> None:
    async def main() -> FrozenLeaderResult:
        async with Client(chaos.config) as client:
            return await FrozenLeaderTrial(client, chaos.local.kubeconfig, tmp_path, f"frozen-{kind}", kind).run()

    result = asyncio.run(main())
    tell(f"frozen while it bound: {as_json(result)}")
    assert (result.bound, result.over) == (ROOM, 0)
    assert result.ended


def test_late_binding_of_the_last_leader_is_rejected(play: Callable[[Story], None]) -> None:
    """It was sent while it led, and comes when another leads, which has not bound the pod."""

    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        async with scenario.proxy() as its_way:
            its_way.faults = [Fault("delay", BINDING, seconds=40.0)]
            first = await scenario.scheduler(*LEADING, through=its_way)
            await create(scenario, "late")
            await scenario.until(lambda: len(its_way.binds) == 1, "asked for")
            first.signal(signal.SIGSTOP)
            other = await scenario.scheduler(*LEADING, begins="leader changed")
            await scenario.until(lambda: other.said("late bindings of the last leader are invalid") > 0, "fenced")
            await scenario.bound(1)
            name, node = "late", (await scenario.api.ask("GET", f"{PODS}/late"))["spec"]["nodeName"]
            await scenario.until(lambda: its_way.binds[0].status == 409, "refused")
            first.signal(signal.SIGCONT)
            assert first.process.wait(20) == 1
            assert "was lost" in first.written()
            verdict = await judge(scenario.api, scenario.watch, scenario.made)
            assert not verdict.faults, verdict.faults
            return verdict, f"{name} is on {node}, and its late binding was refused"

    async def create(scenario: Scenario, name: str) -> None:
        made = pod("plain", 0)
        made["metadata"]["name"] = name
        scenario.made.append((await scenario.api.ask("POST", PODS, made))["metadata"]["uid"])

    play(story)


@pytest.mark.parametrize("server", ["kube-apiserver", "etcd"])
def test_a_server_is_killed(play: Callable[[Story], None], server: str) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        await scenario.create_pods()
        scheduler = await scenario.scheduler()
        await scenario.bound(MANY)
        killed = scenario.cluster.kill_server(server)
        before, at = scenario.watch.bound, time.monotonic()
        await scenario.up_again(killed, after=1.0)
        away = time.monotonic() - at
        verdict = await scenario.settle()
        counts = await scheduler.metrics()
        relists = int(sum(n for name, n in counts.items() if name.startswith("relists_total")))
        errors = {name[25:-2]: int(n) for name, n in counts.items() if name.startswith("bind_errors_total")}
        assert verdict.untold == 0
        return verdict, f"killed after {before} pods, away {away:.1f} s, {relists} relists, failed bindings {errors}"

    play(story)


def test_api_outage_longer_than_the_lease(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        async with scenario.proxy() as its_way:
            its_way.faults = [Fault("delay", BINDING, seconds=2.0 / SCALE)]  # many pods wait, also under load
            replicas = [await scenario.scheduler(*LEADING, through=its_way)]
            replicas.append(await scenario.scheduler(*LEADING, begins="leader changed"))
            await scenario.create_pods()
            await scenario.bound(MANY + scenario.watch.bound)
            killed = scenario.cluster.kill_server("kube-apiserver")
            before, at = scenario.watch.bound, time.monotonic()
            await scenario.up_again(killed, after=11.0)
            away = time.monotonic() - at
            verdict = await scenario.settle()
            assert replicas[0].said("leadership lost") == 1
            turns = [replica.said("scheduling") for replica in replicas]
            assert sum(turns) == 2
            return verdict, f"killed after {before} pods, away {away:.1f} s, turns of the two {turns}"

    play(story)


async def through_faults(scenario: Scenario, *faults: Fault, cuts: float = 0.0) -> tuple[Verdict, str]:
    """Schedule everything through a proxy with these faults."""
    async with scenario.proxy() as proxy:
        scheduler = await scenario.scheduler(through=proxy)
        proxy.faults = list(faults)
        creating = asyncio.create_task(scenario.create_pods())
        while cuts and scenario.watch.bound < ALL:
            await asyncio.sleep(cuts)
            proxy.cut_watches()
        await creating
        await scenario.bound(ALL)
        proxy.faults = []
        verdict = await scenario.settle()
        counts = await scheduler.metrics()
        injected = ", ".join(f"{count} x {what}" for what, count in sorted(proxy.injected.items()))
        relists, watches = (
            int(sum(n for name, n in counts.items() if name.startswith(f"{what}_total{{")))
            for what in ("relists", "watch_restarts")
        )
        return verdict, f"{injected}; {len(proxy.binds)} bindings, {watches} watches anew, {relists} relists"


def test_watches_are_cut_repeatedly(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        verdict, counts = await through_faults(scenario, Fault("cut", WATCH, 0.05), cuts=0.3)
        assert verdict.untold == 0
        return verdict, counts

    play(story)


STORMS = {
    "409": [Fault("status", BINDING, 0.3, status=409, most=200 * SCALE)],
    "429": [
        Fault("status", BINDING, 0.2, status=429, retry_after="1"),
        Fault("status", BINDING, 0.2, status=429),
        Fault("status", WATCH, 0.2, status=429, retry_after="1"),
        Fault("cut", WATCH, 0.05),
    ],
    "500 and 503": [
        Fault("status", BINDING, 0.2, status=500),
        Fault("status", BINDING, 0.2, status=503),
        Fault("status", EVERYTHING, 0.1, status=503),
        Fault("cut", WATCH, 0.02),
    ],
    "answers lost": [
        Fault("lose", BINDING, 0.3),
        Fault("drop", BINDING, 0.2),
        Fault("delay", BINDING, 0.2, seconds=0.5),
        Fault("drop", r"GET .*/pods/", 0.3),
        Fault("lag", WATCH, 0.3, seconds=0.3),
    ],
    "no answer in time": [
        Fault("drop", BINDING, 0.05, seconds=45, most=8),
        Fault("lose", BINDING, 0.05, seconds=45, most=8),
        Fault("delay", BINDING, 0.05, seconds=31, most=8),  # done when nobody waits for it any more
    ],
}


@pytest.mark.parametrize("storm", STORMS)
def test_storms(play: Callable[[Story], None], storm: str) -> None:
    faults = STORMS[storm]

    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        # What befalls a watch when it begins or tells something is sure to come only if watches begin often.
        cuts = 0.5 if any(fault.where == WATCH for fault in faults) else 0.0
        verdict, counts = await through_faults(scenario, *faults, cuts=cuts)
        assert [str(fault) for fault in faults if not fault.times] == []
        return verdict, counts

    play(story)


def test_versions_expire_repeatedly(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        old = [Fault("status", WATCH, 0.4, status=410), Fault("expire", WATCH, 0.5)]
        verdict, counts = await through_faults(scenario, *old, cuts=0.3)
        assert verdict.untold == 0
        return verdict, counts

    play(story)


def test_nodes_are_deleted_while_pods_are_assumed_on_them(play: Callable[[Story], None]) -> None:
    async def story(scenario: Scenario) -> tuple[Verdict, str]:
        async with scenario.proxy() as proxy:
            proxy.faults = [
                Fault("status", BINDING, 0.3, status=429, retry_after="1"),
                Fault("delay", BINDING, 0.5, seconds=0.3),
            ]
            await scenario.scheduler(through=proxy)
            creating = asyncio.create_task(scenario.create_pods())
            deleted_at: dict[str, float] = {}
            assumed = 0
            for turn in range(6):
                await scenario.bound((turn + 1) * ALL // 10)
                under_way = [bind for bind in proxy.binds[-40:] if bind.status == 0 and bind.node.startswith("cpu-")]
                for name in sorted({bind.node for bind in under_way} - deleted_at.keys())[:2]:
                    assumed += sum(bind.node == name for bind in under_way)
                    await scenario.api.ask("DELETE", f"/api/v1/nodes/{name}")
                    deleted_at[name] = time.monotonic()
                for i in range(2 * SCALE):
                    fresh = node(f"cpu-new-{turn}-{i}", 0)
                    await scenario.api.ask("POST", "/api/v1/nodes", fresh)
            await creating
            scenario.deleted_nodes = list(deleted_at)
            try:
                verdict = await scenario.settle()
            finally:
                await renew_nodes(scenario)
            watch = scenario.watch
            after = [
                uid
                for uid, at in watch.bound_at.items()
                if (end := deleted_at.get(watch.nodes[uid][0])) is not None and at > end + 0.05
            ]
            assert assumed
            return verdict, (
                f"{len(deleted_at)} nodes deleted with {assumed} bindings under way to them, "
                f"{len(after)} pods bound to them after that"
            )

    play(story)


async def renew_nodes(scenario: Scenario) -> None:
    """The nodes as they were before the test."""
    names = {f"cpu-{i:03}": i for i in range(CPU_NODES)}
    there = {each["metadata"]["name"] for each in (await scenario.api.ask("GET", "/api/v1/nodes"))["items"]}
    for name in there:
        if name.startswith("cpu-new-"):
            await scenario.api.ask("DELETE", f"/api/v1/nodes/{name}")
    for name, index in names.items():
        if name not in there:
            await scenario.api.ask("POST", "/api/v1/nodes", node(name, index))
