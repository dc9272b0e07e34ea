"""What the cache counts where pods and nodes say things that make no sense, or change after they were bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples
from tests.support.servers.fake_api_server import KubeDouble, in_jumping_time, listed
from tests.unit.kubernetes.cache.test_cluster_cache import Listener, by_name, cache, node, pod, raw

from steersman.cluster.arrays import EXTENDED
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client

COUNT, MILLI, INDEX = (f"alibabacloud.com/gpu-{key}" for key in ("count", "milli", "index"))


def annotated(obj: dict[str, Any], **notes: str) -> dict[str, Any]:
    keys = {"count": COUNT, "milli": MILLI, "index": INDEX}
    meta = {**obj["metadata"], "annotations": {keys[key]: value for key, value in notes.items()}}
    return {**obj, "metadata": meta}


def amounts(tested: ClusterCache) -> dict[str, Any]:
    """What is free of CPU, memory, pods and storage, and the pods, by node; extended resources have other columns."""
    return {name: (each[0][:EXTENDED], each[2], each[3]) for name, each in by_name(tested).items()}  # type: ignore[index]


def free_gpus(tested: ClusterCache, name: str) -> list[int]:
    slot = tested.state.slots[name]
    arrays = tested.state.arrays
    return arrays.gpu_free[slot, : int(arrays.gpu_count[slot])].tolist()


def free_cpu(tested: ClusterCache, name: str) -> int:
    return int(tested.state.arrays.free[tested.state.slots[name], 0])


@pytest.mark.parametrize(
    ("notes", "left"),
    [
        ({"count": "63"}, [0, 0]),
        ({"count": "99999999"}, [0, 0]),
        ({"count": "2", "milli": "5000"}, [0, 0]),
        ({"count": "1", "milli": "300", "index": "7"}, [700, 1000]),
        ({"count": "1", "milli": "300", "index": "x-y"}, [700, 1000]),
        ({"milli": "300"}, [700, 1000]),
        ({"count": "many"}, [1000, 1000]),
    ],
)
def test_invalid_bound_pod_counts(notes: dict[str, str], left: list[int]) -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=2)))
    tested.upsert_node(raw(node("m", gpus=2)))
    tested.upsert_pod(raw(pod("b0", gpu=(1, 400), on="m", index="1")))
    tested.upsert_pod(raw(annotated(pod("a0", cpu="3", on="n"), **notes)))
    for _ in range(2):
        assert (free_cpu(tested, "n"), sorted(free_gpus(tested, "n"))) == (5000, left)
        assert (free_cpu(tested, "m"), free_gpus(tested, "m")) == (7000, [1000, 600])
        tested.select({"app", "new"})
        tested.rebuild()
    tested.delete_pod("default/a0")
    assert (free_cpu(tested, "n"), free_gpus(tested, "n")) == (8000, [1000, 1000])


def test_absurd_requests_leave_no_free_resources() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    tested.upsert_pod(raw(pod("a0", cpu="99999999999", on="n")))
    assert free_cpu(tested, "n") < 0


def test_gpus_of_a_pod_on_a_cordoned_node_are_counted() -> None:
    """Of a device plugin, so nothing says which devices it holds; no new pod may go there."""
    tested = cache()
    closed = node("n", gpus=4)
    closed["status"]["allocatable"] = {"cpu": "8", "memory": "16Gi", "pods": "10", "nvidia.com/gpu": "4"}  # type: ignore[index]
    tested.upsert_node(raw({**closed, "spec": {"unschedulable": True}}))
    wants = pod("a0", on="n")
    wants["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "3"  # type: ignore[index]
    tested.upsert_pod(raw(wants))
    assert sum(free_gpus(tested, "n")) == 1000
    tested.upsert_node(raw(closed))
    assert sum(free_gpus(tested, "n")) == 1000


def test_gpus_count_if_the_device_plugin_registers_after_the_pod() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    tested.upsert_pod(raw(pod("a0", gpu=(2, 1000), on="n")))
    tested.upsert_node(raw(node("n", gpus=4)))
    assert sorted(free_gpus(tested, "n")) == [0, 0, 1000, 1000]
    tested.upsert_node(raw(node("n", gpus=1)))
    tested.upsert_node(raw(node("n", gpus=4)))
    assert sorted(free_gpus(tested, "n")) == [0, 0, 1000, 1000]


def test_invalid_node_takes_no_pods_and_keeps_its_own() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=4)))
    tested.upsert_pod(raw(pod("a0", cpu="3", on="n")))
    tested.upsert_pod(raw(pod("b0", tolerations=[{"operator": "Exists"}])))
    waits = tested.pods["default/b0"]
    assert tested.state.mask(*tested.number(waits)).any()
    strange = node("n", gpus=4)
    strange["status"]["allocatable"]["nvidia.com/gpu"] = "7"  # type: ignore[index]
    tested.upsert_node(raw(strange))
    tested.upsert_node(raw(strange))
    assert not tested.state.mask(*tested.number(waits)).any()
    assert (free_cpu(tested, "n"), list(tested.state.pods_on(0))) == (5000, ["default/a0"])
    problems = [about for what, about in tested.listener.told if what == "node problem"]  # type: ignore[attr-defined]
    assert [name for name, _ in problems] == ["n"]
    assert "contradicts" in tested.node_problems["n"]
    tested.upsert_node(raw(node("n", gpus=4)))
    assert tested.state.mask(*tested.number(waits)).any()
    assert not tested.node_problems


def test_node_that_was_never_valid_is_reported() -> None:
    tested = cache()
    tested.upsert_node(raw({"metadata": {"name": "odd"}, "status": {"allocatable": {"cpu": "many", "memory": "1Gi"}}}))
    assert list(tested.node_problems) == ["odd"]
    tested.delete_node("odd")
    assert not tested.node_problems


def test_the_api_corrects_the_devices_of_an_assumed_pod() -> None:
    """The lease was lost, and the new leader bound the pod to the same node with other devices."""
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=4)))
    tested.upsert_pod(raw(pod("a0", gpu=(1, 300))))
    tested.expected.assume(tested.pods["default/a0"], 0, 0b1)
    tested.upsert_pod(raw(pod("a0", on="n", gpu=(1, 300), index="2")))
    assert free_gpus(tested, "n") == [1000, 1000, 700, 1000]


def test_a_bound_pod_keeps_the_gpus_that_it_was_bound_with() -> None:
    """Whoever may patch a pod may patch its annotations; also when its spec changes, which is decoded again."""
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=4)))
    tested.upsert_pod(raw(pod("a0", gpu=(1, 1000))))
    tested.expected.assume(tested.pods["default/a0"], 0, 0b1)
    tested.upsert_pod(raw(pod("a0", on="n", gpu=(1, 1000), index="0")))
    for generation in (1, 2):
        tested.upsert_pod(raw(pod("a0", cpu=str(generation), on="n", gpu=(1, 1), index="0", generation=generation)))
        assert free_gpus(tested, "n") == [0, 1000, 1000, 1000]
    assert free_cpu(tested, "n") == 6000
    tested.rebuild()
    assert free_gpus(tested, "n") == [0, 1000, 1000, 1000]


def resized(cpu: str, allocated: str, actual: str, generation: int, reason: str = "") -> dict[str, Any]:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}
        ],
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return {**pod("a0", cpu=cpu, on="n", generation=generation), "status": status}


def test_downsized_pod_keeps_resources_until_the_kubelet_frees_them() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    steps = (
        (resized("6", "6", "6", 1), 2000),
        (resized("2", "6", "6", 2), 2000),
        (resized("2", "2", "6", 2), 2000),
        (resized("2", "2", "2", 2), 6000),
        (resized("7", "2", "2", 3), 1000),
        (resized("7", "2", "2", 3, "Deferred"), 1000),
        (resized("7", "2", "2", 3, "Infeasible"), 6000),
        (resized("3", "3", "3", 4), 5000),
    )
    for seen, left in steps:
        tested.upsert_pod(raw(seen))
        assert free_cpu(tested, "n") == left, seen["status"]


def nominated(obj: dict[str, Any], on: str, priority: int = 0) -> dict[str, Any]:
    return {
        **obj,
        "spec": {**obj["spec"], "priority": priority},
        "status": {"phase": "Pending", "nominatedNodeName": on},
    }


def test_resources_are_reserved_for_nominated_pods() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", cpu=8)))
    tested.upsert_pod(raw(nominated(pod("a0", cpu="6"), "n", priority=5)))
    tested.upsert_pod(raw(pod("b0", cpu="4")))
    tested.upsert_pod(raw({**pod("c0", cpu="4"), "spec": {**pod("c0", cpu="4")["spec"], "priority": 9}}))  # type: ignore[dict-item]
    waits, urgent, itself = (tested.pods[f"default/{name}"] for name in ("b0", "c0", "a0"))

    def fits(who: Any) -> bool:
        with tested.expected.without_nominated(who) as beside:
            assert free_cpu(tested, "n") == 8000, "nodes are scored without nominated pods"
            found = tested.state.mask(*tested.number(who))
        return bool(found.any() if beside is None else (found & beside).any())

    assert [fits(each) for each in (waits, urgent, itself)] == [False, True, True]
    assert free_cpu(tested, "n") == 2000
    tested.rebuild()
    assert free_cpu(tested, "n") == 2000
    tested.upsert_pod(raw({**pod("a0", cpu="6", on="n")}))
    assert free_cpu(tested, "n") == 2000
    tested.delete_pod("default/a0")
    assert free_cpu(tested, "n") == 8000
    assert fits(waits)


def test_required_affinity_ignores_nominated_pods() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", cpu=8, labels={"kubernetes.io/hostname": "n"})))
    tested.upsert_pod(raw(nominated(pod("a0"), "n", priority=5)))
    near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    tested.upsert_pod(raw(pod("b0", affinity=affinity)))
    waits = tested.pods["default/b0"]
    assert not tested.expected.displaces(waits)
    with tested.expected.without_nominated(waits) as beside:
        assert beside is not None
        assert beside.any(), "beside it the pod has what it wants to be near"
        assert not tested.state.mask(*tested.number(waits)).any(), "which may never come"


def test_reservation_ends_with_the_nomination() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", cpu=8)))
    tested.upsert_pod(raw(nominated(pod("a0", cpu="6"), "n")))
    tested.upsert_pod(raw(pod("a0", cpu="6")))
    assert free_cpu(tested, "n") == 8000
    tested.upsert_pod(raw(nominated(pod("a0", cpu="6"), "later")))
    tested.upsert_node(raw(node("later", cpu=8)))
    assert (free_cpu(tested, "n"), free_cpu(tested, "later")) == (8000, 2000)
    tested.delete_node("later")
    tested.delete_pod("default/a0")
    assert free_cpu(tested, "n") == 8000


def test_gated_pod_is_not_queued() -> None:
    tested = cache()
    tested.upsert_pod(raw(pod("a0", schedulingGates=[{"name": "quota"}])))
    assert "waits" not in [what for what, _ in tested.listener.told]  # type: ignore[attr-defined]
    tested.upsert_pod(raw(pod("a0", generation=2)))
    assert [what for what, _ in tested.listener.told].count("waits") == 1  # type: ignore[attr-defined]


def test_unknown_labels_add_no_state() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", labels={"kubernetes.io/hostname": "n"})))
    tested.upsert_pod(raw(pod("a0", on="n")))
    state = tested.state
    for i in range(50):
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {f"k{i}": "v"}}}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        tested.upsert_pod(raw(pod(f"b{i}", affinity=apart)))
    assert tested.state is state
    assert not [what for what, _ in tested.listener.told if what == "rebuilt"]  # type: ignore[attr-defined]


STRANGE_NOTES = st.dictionaries(
    st.sampled_from((COUNT, MILLI, INDEX, "alibabacloud.com/gpu-card-model")),
    st.sampled_from(
        ("0", "1", "2", "63", "1000", "5000", "-1", "x", "", "0-1", "7", "1e9", "99999999999999999999", "A||B")
    ),
)
AMOUNTS = st.sampled_from(("0", "1", "500m", "3", "99999999999", "1e30"))
STRANGE_SPECS = st.sampled_from(
    (
        {},
        {"tolerations": [{"key": "", "operator": "Equal"}]},
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "x", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}},
        {"priority": -5},
        {"overhead": {"cpu": "1"}},
        {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "500000"}}}]},
        {"resources": {"requests": {"nvidia.com/gpu": "1"}}},
    )
)
STRANGE = st.tuples(st.integers(0, 3), st.integers(0, 1), STRANGE_NOTES, AMOUNTS, STRANGE_SPECS, st.booleans())


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(("pod", "lose", "node", "odd node", "select", "rebuild")), STRANGE), max_size=25)
)
def test_invalid_objects_do_not_change_other_accounts(steps: list[tuple[str, Any]]) -> None:
    """Strange pods live on `odd` nodes alone; the accounts of `n` are those of its own pods, always."""
    tested, quiet = cache(), cache()
    for each in (tested, quiet):
        each.upsert_node(raw(node("n", gpus=2)))
        each.upsert_pod(raw(pod("q0", cpu="2", gpu=(1, 300), on="n", index="1")))
        each.upsert_pod(raw(pod("q1", cpu="1", on="n")))
    tested.upsert_node(raw(node("odd0", gpus=2)))
    seen: set[str] = set()
    for what, (i, j, notes, cpu, spec, bound) in steps:
        where = f"odd{j}"
        if what == "pod":
            made = pod(f"a{i}", uid=f"{i}{bound}", cpu=cpu, on=where if bound else "", generation=1 + i, **spec)
            made["metadata"]["annotations"] = notes  # type: ignore[index]
            tested.upsert_pod(raw(made))
            seen.add(f"default/a{i}")
        elif what == "lose":
            tested.delete_pod(f"default/a{i}")
            seen.discard(f"default/a{i}")
        elif what == "node":
            tested.upsert_node(raw(node(where, gpus=j * 3)))
        elif what == "odd node":
            broken = node(where, gpus=3)
            broken["status"]["allocatable"] |= {"nvidia.com/gpu": "2"}  # type: ignore[index,operator]
            tested.upsert_node(raw(broken))
        elif what == "select":
            tested.select({f"key{i}", "app"})
        else:
            tested.rebuild()
    assert seen == {key for key in tested.pods if "/a" in key}
    mine, right = by_name(tested)["n"], by_name(quiet)["n"]
    width = min(len(mine[0]), len(right[0]))  # type: ignore[index]
    assert (mine[0][:width], mine[1:]) == (right[0][:width], right[1:])  # type: ignore[index]
    for key, cached in tested.pods.items():
        known = cached.node in tested.state.slots
        assert (key in tested.state.placements) == known, cached
    before = amounts(tested)
    tested.rebuild()
    after = amounts(tested)
    assert after == before


def apart_from(**labels: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "b"}}
    near = {"topologyKey": "zone", "labelSelector": selector, "namespaceSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}


def test_anti_affinity_with_namespace_selector_repels_pods() -> None:
    tested = cache()
    for i in range(2):
        tested.upsert_node(raw(node(f"n{i}", labels={"zone": str(i)})))
    tested.upsert_pod(raw(pod("a0", on="n0", affinity=apart_from(team="red"))))
    other = pod("b0")
    other["metadata"]["namespace"] = "theirs"  # type: ignore[index]
    tested.upsert_pod(raw(other))

    def allowed() -> list[bool]:
        waits = tested.pods["theirs/b0"]
        return tested.state.mask(*tested.number(waits)).tolist()

    def namespace(name: str, **labels: str) -> Any:
        return raw({"metadata": {"name": name, "labels": labels}})

    assert not tested.namespaces.synced.is_set(), "they are needed now"
    listed(tested.namespaces, [namespace("default"), namespace("theirs", team="red")])
    assert allowed() == [False, True]
    listed(tested.namespaces, [namespace("default"), namespace("theirs", team="blue")])
    assert allowed() == [True, True]
    tested.delete_pod("default/a0")
    listed(tested.namespaces, [namespace("default"), namespace("theirs", team="red")])
    assert allowed() == [True, True]


@in_jumping_time
async def test_namespaces_are_watched_on_demand() -> None:
    async with KubeDouble() as double, Client(double.config()) as client:
        double.put("/api/v1/nodes", node("n0", labels={"zone": "0"}))
        double.put("/api/v1/namespaces", {"metadata": {"name": "default", "labels": {"team": "red"}}})
        tested = ClusterCache(client, Listener())
        tasks = [asyncio.create_task(reflector.run()) for reflector in tested.reflectors]
        await asyncio.sleep(1.0)
        assert all(reflector.synced.is_set() for reflector in tested.reflectors)
        assert ("GET", "/api/v1/namespaces") not in double.requests
        double.put("/api/v1/pods", pod("a0", on="n0", affinity=apart_from(team="red")))
        double.put("/api/v1/pods", pod("b0"))
        await asyncio.sleep(1.0)
        waits = tested.pods["default/b0"]
        assert not tested.state.mask(*tested.number(waits)).any()
        double.put("/api/v1/namespaces", {"metadata": {"name": "default", "labels": {"team": "blue"}}})
        await asyncio.sleep(2.0)
        waits = tested.pods["default/b0"]
        assert tested.state.mask(*tested.number(waits)).all()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
