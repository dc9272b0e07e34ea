"""`workload run` on a cluster: the Deployments of the simulator, a state that outlives the driver, nobody else's things
touched."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.servers.fake_api_server import clock
from tests.support.servers.live_cluster import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, LiveDouble, node, pod, with_double

from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import Client
from steersman.live.load import commands, driver, run_state
from steersman.live.load.commands import RunTarget
from steersman.live.load.driver import FillOptions, FillPlan, planned_seconds, read_capacity
from steersman.workloads.generators.deployments import (
    ADD,
    DELETE,
    DeploymentSettings,
    Row,
    cluster,
    generate,
    read_rows,
)

SETTINGS = DeploymentSettings(cpu_load=0.3, resets=2)
MANNER = FillOptions("steersman", interval=1.0, wait=2.0, patience=5.0)


def fill_nodes(double: LiveDouble, count: int = 2) -> None:
    for i in range(count):
        double.put(NODES, node(f"node-{i}"))


def expected(nodes: int = 2, settings: DeploymentSettings = SETTINGS, seed: int = 42) -> tuple[Row, ...]:
    return generate(settings, cluster(nodes), np.random.default_rng(seed))


async def fill(
    client: Client,
    output: Path | None = None,
    seeds: Sequence[int] = (42,),
    namespace: str = "default",
    say: Callable[[str], None] = lambda _: None,
) -> driver.FillStats:
    return await commands.fill(RunTarget(client, namespace, say), SETTINGS, seeds, MANNER, output, lambda *_: None)


async def killed(run: Coroutine[Any, Any, object], seconds: float) -> None:
    """A run that is killed after some seconds."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await run


@with_double
async def test_live_deployments_match_the_simulator_and_are_removed(double: LiveDouble, client: Client, tmp_path):
    said: list[str] = []
    fill_nodes(double)
    tally = await fill(client, tmp_path / "run.csv", say=said.append)
    rows = read_rows(tmp_path / "run.csv")
    assert rows == expected()
    adds = [row for row in rows if row.action != DELETE]
    assert tally == driver.FillStats(len(adds), sum(row.pod_count for row in adds))
    for path in (DEPLOYMENTS, PODS, CONFIG_MAPS):
        assert not double.named(path)
    assert double.requests.count(("POST", DEPLOYMENTS)) == len(rows) / 2
    # From the first to the last thing: intervals within fillings, and waiting before and after each clearing.
    assert clock() == pytest.approx(len(adds) - 2 + 3 * 2.0, abs=1.0)
    assert clock() == pytest.approx(planned_seconds(rows, MANNER), abs=1.0)
    assert said[0].startswith(f"{len(rows) // 2} Deployments of ")
    assert f"at least {planned_seconds(rows, MANNER):.0f} s" in said[0]
    assert planned_seconds(rows, MANNER, len(rows)) == 0


@with_double
async def test_several_seeds_run_in_sequence(double: LiveDouble, client: Client, tmp_path) -> None:
    fill_nodes(double)
    await fill(client, tmp_path / "run.csv", seeds=(1, 2))
    assert read_rows(tmp_path / "run.csv") == expected(seed=1) + expected(seed=2)


@pytest.mark.parametrize("seconds", [0.5, 2.5, 6.5, 11.0])
@with_double
async def test_killed_run_resumes_to_the_same_end(double: LiveDouble, client: Client, tmp_path, seconds) -> None:
    fill_nodes(double)
    await killed(fill(client, tmp_path / "run.csv"), seconds)
    state = json.loads(double.named(CONFIG_MAPS)["steersman-workload"]["data"]["state.json"])
    assert 0 < state["done"] < len(expected())
    before = read_rows(tmp_path / "run.csv")
    assert before == expected()[: state["done"]]
    if double.named(DEPLOYMENTS):  # somebody removes one while nobody looks
        double.remove(DEPLOYMENTS, next(iter(double.named(DEPLOYMENTS))))
    output = tmp_path / "elsewhere.csv"
    await commands.resume_fill(RunTarget(client, "default"), output, lambda *_: None)
    assert read_rows(output) == expected()
    assert not double.named(PODS)
    assert not double.named(CONFIG_MAPS)


@with_double
async def test_unrecorded_actions_are_not_repeated(double: LiveDouble, client: Client) -> None:
    fill_nodes(double)

    async def lose_saves(request):
        if request.method == "PUT":
            await asyncio.sleep(1000)

    double.fault = lose_saves
    await killed(fill(client), 2.0)
    first = expected()[0]
    assert list(double.named(DEPLOYMENTS)) == [first.name]
    double.fault = None
    await commands.resume_fill(RunTarget(client, "default"), None, lambda *_: None)
    posts = [path for method, path in double.requests if (method, path) == ("POST", DEPLOYMENTS)]
    assert len(posts) == len(expected()) / 2 + 1  # the first one was tried again, and found to be there


@with_double
async def test_next_deployment_waits_for_unbound_pods_with_a_timeout(double: LiveDouble, client: Client) -> None:
    fill_nodes(double)
    double.bind_after = 3.0
    tally = await fill(client)
    assert tally.timed_out == 0
    slow, said = clock(), list[str]()
    double.bind_after = None
    tally = await fill(client, say=said.append)
    assert len([line for line in said if "does scheduler 'steersman' run" in line]) == 1
    assert tally.timed_out == tally.deployments
    adds = len(expected()) / 2
    assert slow == pytest.approx(adds * 3.0 + 2.0, abs=0.1)
    assert clock() - slow == pytest.approx((adds - 2) * 1.0 + adds * 5.0 + 3 * 2.0, abs=0.1)


@with_double
async def test_concurrent_run_is_rejected_and_changes_nothing(double: LiveDouble, client: Client, tmp_path) -> None:
    fill_nodes(double)
    await killed(fill(client, tmp_path / "run.csv"), 2.5)
    done, there = read_rows(tmp_path / "run.csv"), double.named(DEPLOYMENTS)
    with raises(SteersmanError, "'default'", len(done), len(expected())):
        await fill(client, tmp_path / "run.csv")
    assert (read_rows(tmp_path / "run.csv"), double.named(DEPLOYMENTS)) == (done, there)


@with_double
async def test_driver_ends_when_another_takes_its_run(double: LiveDouble, client: Client) -> None:
    fill_nodes(double)
    running = asyncio.create_task(fill(client))
    await asyncio.sleep(2.5)
    state = double.named(CONFIG_MAPS)["steersman-workload"]
    other = json.loads(state["data"]["state.json"]) | {"done": 1}
    double.put(CONFIG_MAPS, {**state, "data": {"state.json": json.dumps(other)}})
    with raises(SteersmanError):
        await running


@with_double
async def test_removed_run_leaves_nothing(double: LiveDouble, client: Client) -> None:
    fill_nodes(double)
    double.put(PODS, pod("theirs"))
    running = asyncio.create_task(fill(client))
    await asyncio.sleep(0.5)
    await run_state.clean(client, lambda *_: None)
    assert list(double.named(PODS)) == ["theirs"]
    with raises(SteersmanError):
        await running
    assert (list(double.named(PODS)), double.named(DEPLOYMENTS)) == (["theirs"], {})


@with_double
async def test_foreign_deployment_is_left_alone(double: LiveDouble, client: Client) -> None:
    fill_nodes(double)
    name = expected()[0].name
    theirs = {"metadata": {"name": name}, "spec": {"replicas": 0, "template": pod("theirs")}}
    double.put(DEPLOYMENTS, theirs)
    with raises(SteersmanError, name):
        await fill(client)
    assert not double.named(CONFIG_MAPS)
    await run_state.clean(client, lambda *_: None)
    assert list(double.named(DEPLOYMENTS)) == [name]


@with_double
async def test_clean_removes_what_runs_made_in_all_namespaces_and_nothing_else(
    double: LiveDouble, client: Client
) -> None:
    fill_nodes(double)
    others = PODS.replace("default", "kube-system")
    double.put(PODS, pod("mine"))
    double.put(others, pod("theirs", app="web"))
    double.put("/api/v1/namespaces", {"metadata": {"name": "load"}})
    await killed(fill(client, seeds=(1,), namespace="load"), 1.5)
    load = PODS.replace("default", "load")
    count = len(double.named(load))
    assert count > 10
    assert await run_state.clean(client, lambda *_: None) == count
    assert not double.named(load)
    assert not double.named(CONFIG_MAPS.replace("default", "load"))
    assert (list(double.named(PODS)), list(double.named(others))) == (["mine"], ["theirs"])


@with_double
async def test_foreign_pods_count_towards_the_loads(double: LiveDouble, client: Client) -> None:
    fill_nodes(double, 1)
    tainted = node("control-plane")
    tainted["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    double.put(NODES, tainted)
    double.put(PODS, pod("theirs", cpu="16", on="node-0"))
    double.put(PODS, {**pod("over", cpu="16", on="node-0"), "status": {"phase": "Succeeded"}})
    double.put(PODS, pod("elsewhere", cpu="16", on="control-plane"))
    room = await read_capacity(client)
    assert (room.cpu_milli, room.pods, room.used[0]) == (64_000, 110, 0.25)
    rows = FillPlan(replace(SETTINGS, cpu_load=0.35), (42,), room, MANNER).rows()
    assert rows == expected(1, replace(SETTINGS, cpu_load=0.35 - 0.25, memory_load=0.5 - 1 / 256))
    with raises(SteersmanError, "25", "--cpu-load", "20"):
        FillPlan(replace(SETTINGS, cpu_load=0.2), (42,), room, MANNER).rows()


@with_double
async def test_state_of_another_version_is_not_resumed(double: LiveDouble, client: Client) -> None:
    place = RunTarget(client, "default")
    with raises(SteersmanError, "'default'"):
        await commands.resume_fill(place, None, lambda *_: None)
    fill_nodes(double)
    await killed(fill(client), 2.5)
    with raises(SteersmanError, "'steersman workload run --resume'"):
        await commands.replay_rows(place, expected(), MANNER, "x.csv", lambda *_: None, resume=True)
    there = double.named(CONFIG_MAPS)["steersman-workload"]
    state = json.loads(there["data"]["state.json"])
    for broken, problem in (
        (state | {"digest": "other"}, "another version"),
        (state | {"options": {}}, "another version"),
        ({"kind": "run"}, "is not what this version of steersman writes"),
    ):
        double.put(CONFIG_MAPS, {**there, "data": {"state.json": json.dumps(broken)}})
        with pytest.raises(SteersmanError, match=problem):
            await commands.resume_fill(place, None, lambda *_: None)


@with_double
async def test_csv_is_replayed_exactly_including_deletions(double: LiveDouble, client: Client) -> None:
    rows = (
        Row("one", 3, "1", "1", "1Gi", "1Gi"),
        Row("two", 2, "1", "1", "1Gi", "1Gi"),
        Row("one", 3, "1", "1", "1Gi", "1Gi", DELETE),
        Row("three", 1, "1", "1", "1Gi", "1Gi"),
    )
    place = RunTarget(client, "default")
    await commands.replay_rows(place, rows, MANNER, "x.csv", lambda *_: None, resume=False)
    assert sorted(double.named(DEPLOYMENTS)) == ["three", "two"]
    assert len(double.named(PODS)) == 3
    template = double.named(DEPLOYMENTS)["two"]["spec"]["template"]["spec"]
    assert template["schedulerName"] == "steersman"
    assert template["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert not double.named(CONFIG_MAPS)
    bad = (replace(rows[0], name="Not a name"),)
    with raises(InputError, "x.csv", "2", "'Not a name'"):
        await commands.replay_rows(place, bad, MANNER, "x.csv", lambda *_: None, resume=False)


@pytest.mark.parametrize("pods", [1, 30, 31, 250])
def test_load_of_a_number_of_pods_fills_as_often_as_it_takes_and_clears(pods: int):
    room = driver.ClusterCapacity(128_000, 512 << 30, 220, 64_000, 256 << 30, (0.0, 0.0, 0.0))
    once = FillPlan(SETTINGS, (7,), room, MANNER).rows()
    plan = FillPlan(SETTINGS, (7,), room, MANNER, pods)
    rows = plan.rows()
    assert sum(row.pod_count for row in rows if row.action == ADD) == pods
    present: set[str] = set()
    for row in rows:
        assert (row.name in present) == (row.action == DELETE)
        present ^= {row.name}
    assert not present
    whole = min(max(i for i, row in enumerate(rows) if row.action == ADD), len(once))
    assert rows[:whole] == once[:whole], "the same Deployments as without a number"
    assert FillPlan.of(plan.state(rows)) == plan


def test_rows_depend_on_total_capacity_not_on_node_sizes():
    nodes = [*cluster(3), *(each for each in cluster(2, cpu="16", memory="999Gi", pods=30) if not each.taints)]
    usable = [each for each in nodes if not each.taints]
    totals = [sum(getattr(each, name) for each in usable) for name in ("cpu_milli", "memory_bytes", "pods")]
    largest = [max(getattr(each, name) for each in usable) for name in ("cpu_milli", "memory_bytes")]
    room = driver.ClusterCapacity(*totals, *largest, (0.0, 0.0, 0.0))
    found = FillPlan(SETTINGS, (7,), room, MANNER)
    rows = found.rows()
    assert rows == generate(SETTINGS, nodes, np.random.default_rng(7))
    assert FillPlan.of(found.state(rows)) == found
