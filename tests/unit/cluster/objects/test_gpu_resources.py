"""GPUs of several vendors, and more of them than are looked at one by one: pods get those alone that they ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct
from tests.contract.cases import FOLDER, policy_files
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.objects import node_from_object

from steersman.cluster import model
from steersman.cluster.constraints.reasons import counted, reasons_by_node, unschedulable_message
from steersman.cluster.model import (
    GPU_MILLI,
    GPU_MODEL_KEY,
    PLUGIN_GPUS,
    SHARED_GPUS,
    Constraints,
    GpuType,
    Node,
    Pod,
    PodClass,
    Requests,
)
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.gpus import GPU_INDEX_KEY
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState, device_indices
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.evaluation.bound.gpu_bound import check_bound
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.binder import binding
from steersman.objectives.summary import FRAGMENTED
from steersman.policies.base import Policy, default_member
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.policy_file import open_policy, prepare_policy, write_policy
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.profile import TypicalPod, profile_arrays, typical_pods
from steersman.workloads.workload import Workload

NVIDIA, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
POLICIES = ("fgd", "steersman", "gpu-clustering", "gpu-packing", "dot-product", "best-fit", "random", "kube-default")


def node_object(labels: dict[str, str] | None = None, name: str = "n", **amounts: int) -> dict[str, Any]:
    """A v1 Node; `amounts` are GPUs by `nvidia`, `amd`, `intel`, `count` and `milli`."""
    keys = {"nvidia": NVIDIA, "amd": AMD, "intel": INTEL, "count": SHARED_GPUS, "milli": "alibabacloud.com/gpu-milli"}
    stated = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    stated |= {keys[key]: str(amount) for key, amount in amounts.items()}
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": stated}}


def pod_of(
    count: int, resource: str = "", milli: int = GPU_MILLI, name: str = "p", models: tuple[str, ...] = ()
) -> Pod:
    requests = Requests(1000, 1 << 30, gpu_count=count, gpu_milli=milli if count else 0, gpu_resource=resource)
    return Pod(name, PodClass(requests, Constraints(gpu_models=models)))


def node_of(name: str, count: int = 0, *resources: str, model: str = "", **counted: int) -> Node:
    keys = {"nvidia": NVIDIA, "amd": AMD, "intel": INTEL, "shared": SHARED_GPUS}
    extended = tuple(sorted((keys[key], amount) for key, amount in counted.items()))
    return Node(name, 64_000, 256 << 30, gpu_count=count, gpu_model=model, gpu_resources=resources, extended=extended)


def gpu_use(state: ClusterState) -> tuple[int, int]:
    taken, total = state.gpu_use_by_node()
    return int(taken.sum()), int(total.sum())


def places(pod: Pod, *nodes: Node) -> list[bool]:
    state = ClusterState(nodes)
    return state.mask(state.class_id(pod.pod_class)).tolist()


# Names


def test_go_and_python_have_the_same_resource_names():
    said = json.loads((FOLDER / "gpu_resources.json").read_text())
    assert said["shared"] == SHARED_GPUS
    assert said["model_label"] == GPU_MODEL_KEY
    assert said["plugins"] == [list(each) for each in PLUGIN_GPUS.items()]
    assert {SHARED_GPUS, *PLUGIN_GPUS} == model.GPU_RESOURCES


# Decoding


@pytest.mark.parametrize(
    ("amounts", "devices", "names", "others"),
    [
        ({"nvidia": 8}, 8, (NVIDIA,), {}),
        ({"count": 4}, 4, (SHARED_GPUS,), {}),
        ({"milli": 4000}, 4, (SHARED_GPUS,), {}),
        ({"count": 4, "nvidia": 4}, 4, (SHARED_GPUS, NVIDIA), {}),
        ({"nvidia": 62}, 62, (NVIDIA,), {}),
        ({"nvidia": 63}, 0, (), {NVIDIA: 63}),
        ({"nvidia": 80, "amd": 2}, 2, (AMD,), {NVIDIA: 80}),
        ({"nvidia": 2, "amd": 8, "intel": 4}, 8, (AMD,), {NVIDIA: 2, INTEL: 4}),
        ({"count": 2, "nvidia": 2, "amd": 8}, 2, (SHARED_GPUS, NVIDIA), {AMD: 8}),
        ({"count": 2, "nvidia": 0, "amd": 2}, 2, (SHARED_GPUS, AMD), {}),
        ({"count": 80, "nvidia": 80}, 0, (), {NVIDIA: 80}),
        ({"count": 63, "milli": 63_000}, 0, (), {SHARED_GPUS: 63}),
        ({"nvidia": 0}, 0, (), {}),
        ({}, 0, (), {}),
    ],
)
def test_gpus_of_a_node(amounts: dict[str, int], devices: int, names: tuple[str, ...], others: dict[str, int]):
    node = node_from_object(node_object(**amounts))
    assert (node.gpu_count, node.gpu_resources, node.counted_gpus) == (devices, names, others)
    assert node.gpu_total == devices + sum(others.values())
    assert node_from_object(node_to_object(node)) == node
    written = node_to_object(node)["status"]["allocatable"]
    offered = dict.fromkeys(names, devices) | others
    for name in PLUGIN_GPUS:
        assert int(written.get(name, 0)) == offered.get(name, 0)


@pytest.mark.parametrize(
    ("amounts", "problem"),
    [
        ({"count": 2, "nvidia": 3}, "2 contradicts the 3 devices"),
        ({"count": 2, "nvidia": 3, "amd": 4}, "2 contradicts the 3 and 4 devices"),
        ({"count": 2, "nvidia": 0}, "2 contradicts the 0 devices"),
        ({"count": 0, "nvidia": 3}, "0 contradicts the 3 devices"),
        ({"count": 80, "milli": 5}, "5 does not go with 80 devices"),
    ],
)
def test_contradictions_are_reported(amounts: dict[str, int], problem: str):
    with pytest.raises(InputError, match=problem) as caught:
        node_from_object(node_object(**amounts), file="f")
    assert "\n" not in str(caught.value)


def test_gpu_model_is_read_from_the_vendors_label():
    labels = {"nvidia.com/gpu.product": "A100", "amd.com/gpu.product-name": "MI300X"}
    both = node_from_object(node_object(labels, nvidia=2, amd=8))
    assert both.gpu_model == "MI300X"
    assert [both.gpu_model_for(name) for name in (AMD, NVIDIA, "")] == ["MI300X", "A100", "MI300X"]
    assert places(pod_of(1, NVIDIA, models=("A100",)), both) == [True]
    assert places(pod_of(1, NVIDIA, models=("MI300X",)), both) == [False]
    many = node_from_object(node_object(labels, nvidia=80))
    assert places(pod_of(1, NVIDIA, models=("A100",)), many) == [True]
    assert places(pod_of(1, NVIDIA, models=("H100",)), many) == [False]
    # B's label speaks of whatever GPUs there are; without a plugin any label does.
    assert node_from_object(node_object({**labels, GPU_MODEL_KEY: "X"}, amd=1)).gpu_model == "X"
    assert node_from_object(node_object(labels, count=1)).gpu_model == "A100"


@pytest.mark.parametrize("resource", [*PLUGIN_GPUS])
def test_pods_of_device_plugins_are_written_as_they_were_read(resource: str):
    pod = pod_of(3, resource)
    written = pod_to_object(pod)
    assert written["spec"]["containers"][0]["resources"]["requests"][resource] == "3"
    assert written["spec"]["containers"][0]["resources"]["limits"] == {resource: "3"}
    assert "gpu" not in str(written["metadata"])
    assert pod_from_object(written) == pod


@pytest.mark.parametrize("milli", [250, 1000])
def test_shares_and_pods_without_a_name_are_written_with_annotations(milli: int):
    asking = pod_of(1, SHARED_GPUS, milli)
    assert pod_from_object(pod_to_object(asking)) == asking
    assert pod_to_object(pod_of(1, "", milli)) == pod_to_object(asking)
    assert "gpu" not in str(pod_to_object(asking)["spec"])


# Which nodes


def test_devices_serve_requests_of_their_vendor():
    nodes = (
        node_of("nvidia", 8, NVIDIA),
        node_of("amd", 8, AMD),
        node_of("shared", 8, SHARED_GPUS),
        node_of("shared-nvidia", 8, SHARED_GPUS, NVIDIA),
        node_of("openb", 8),
        node_of("many", nvidia=80),
        node_of("mixed", 2, AMD, nvidia=80),
        node_of("cpu"),
    )
    assert places(pod_of(1, NVIDIA), *nodes) == [True, False, False, True, True, True, True, False]
    assert places(pod_of(1, AMD), *nodes) == [False, True, False, False, True, False, True, False]
    assert places(pod_of(1, SHARED_GPUS), *nodes) == [False, False, True, True, True, False, False, False]
    assert places(pod_of(1, SHARED_GPUS, 500), *nodes) == [False, False, True, True, True, False, False, False]
    assert places(pod_of(1), *nodes) == [True, True, True, True, True, False, True, False]
    assert places(pod_of(9, NVIDIA), *nodes) == [False, False, False, False, False, True, True, False]
    assert places(pod_of(0), *nodes) == [True] * 8


def test_counted_gpus_are_whole_and_without_index():
    state = ClusterState([node_of("n", nvidia=80, shared=70)])
    share, whole = (state.class_id(pod_of(1, SHARED_GPUS, milli).pod_class) for milli in (500, 1000))
    assert not state.mask(share).any()
    assert state.mask(whole).any()
    big = state.class_id(pod_of(79, NVIDIA).pod_class)
    placed = state.place("big", big, 0)
    assert placed.devices == 0
    assert gpu_use(state) == (79_000, 150_000)
    one = state.class_id(pod_of(1, NVIDIA).pod_class)
    state.place("one", one, 0)
    assert not state.mask(one).any()
    with raises(SteersmanError):
        state.place("more", one, 0)
    state.remove("big")
    assert gpu_use(state) == (1000, 150_000)
    with raises(SteersmanError):
        state.place("odd", big, 0, 0b1)


def test_pod_with_excessive_gpus_is_counted_where_it_runs():
    state = ClusterState([node_of("n", 2, NVIDIA)])
    c = state.class_id(pod_of(500, NVIDIA).pod_class)
    state.place("p", c, 0, force=True)
    state.remove("p")
    assert not state.arrays.gpu_kinds.any()
    assert gpu_use(state) == (0, 2000)


def test_pods_stay_counted_when_their_node_switches_gpu_counting():
    state = ClusterState([node_of("n", 8, NVIDIA)])
    c = state.class_id(pod_of(3, NVIDIA).pod_class)
    state.place("p", c, 0)
    state.update_node(node_of("n", nvidia=80))
    assert gpu_use(state) == (3000, 80_000)
    state.place("q", c, 0)
    state.update_node(node_of("n", 8, NVIDIA))
    assert gpu_use(state) == (6000, 8000)
    state.remove("p")
    state.remove("q")
    assert gpu_use(state) == (0, 8000)


# Reasons


def test_reasons_name_the_resource_as_kube_scheduler_does():
    state = ClusterState([node_of("a", 8, AMD), node_of("b", 1, NVIDIA), node_of("c", nvidia=80), node_of("d")])
    c = state.class_id(pod_of(81, NVIDIA).pod_class)
    assert unschedulable_message(state, c) == "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    few = state.class_id(PodClass(Requests(65_000, 1, 0, 2, 1000, gpu_resource=NVIDIA)))
    assert reasons_by_node(state, few)["a"] == ("Insufficient cpu", "Insufficient nvidia.com/gpu")
    assert reasons_by_node(state, few)["c"] == ("Insufficient cpu",)
    share = state.class_id(pod_of(1, SHARED_GPUS, 500).pod_class)
    assert counted(state, share) == {"Insufficient GPU": 4}


def test_a_run_gives_the_same_reasons():
    nodes = (node_of("a", 8, AMD), node_of("b", 1, NVIDIA), node_of("c", nvidia=80))
    pods = (pod_of(81, NVIDIA, name="big"), pod_of(1, SHARED_GPUS, 100, name="share"))
    run = Simulator(Workload("w", nodes, pods)).run("best-fit", protocol="arrivals", record=True)
    assert run.placements is not None
    assert dict(zip(run.placements.pod, run.placements.reason, strict=True)) == {
        "big": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. 1 node offers amd.com/gpu, not nvidia.com/gpu.",
        "share": "0/3 nodes are available: 3 Insufficient GPU. 3 nodes offer amd.com/gpu and nvidia.com/gpu, "
        "not alibabacloud.com/gpu-count.",
    }


# Against an oracle


@dataclass
class Oracle:
    """A node in plain Python: what is left of each device and of each counted name."""

    node: Node
    devices: list[int]
    counts: dict[str, int]

    def mode(self, pod: Pod) -> str:
        """How a pod would get its GPUs here: from `devices`, from `counts`, or not ("")."""
        name = pod.requests.gpu_resource
        if name in self.counts:
            return "counts" if pod.requests.gpu_milli == GPU_MILLI else ""
        offered = self.node.gpu_resources
        return "devices" if self.devices and (not name or not offered or name in offered) else ""

    def fits(self, pod: Pod) -> bool:
        requests = pod.requests
        mode = self.mode(pod)
        if not requests.gpu_count:
            return True
        if mode == "counts":
            return self.counts[requests.gpu_resource] >= requests.gpu_count
        return mode == "devices" and sum(left >= requests.gpu_milli for left in self.devices) >= requests.gpu_count

    def change(self, pod: Pod, devices: tuple[int, ...], sign: int) -> None:
        requests = pod.requests
        if requests.gpu_count and self.mode(pod) == "counts":
            assert devices == ()
            self.counts[requests.gpu_resource] -= sign * requests.gpu_count
            return
        assert len(devices) == requests.gpu_count
        for device in devices:
            self.devices[device] -= sign * requests.gpu_milli


names = st.sampled_from([NVIDIA, AMD, INTEL, SHARED_GPUS])


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Nodes as they are decoded, and nodes as openb has them."""
    found = []
    for i in range(draw(st.integers(1, 5))):
        amounts = st.integers(0, 4) | st.sampled_from([62, 63, 80])
        if draw(st.booleans()):
            found.append(node_of(f"n{i}", draw(st.integers(0, 4)), model=draw(st.sampled_from(["", "A"]))))
            continue
        stated = draw(st.dictionaries(st.sampled_from(["nvidia", "amd", "intel"]), amounts, max_size=3))
        shared = sorted(amount for amount in stated.values() if amount)
        if draw(st.booleans()):
            stated["count"] = shared[0] if shared else (0 if stated else draw(amounts))
        found.append(node_from_object(node_object(name=f"n{i}", **stated)))
    return found


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    resource = draw(st.sampled_from(["", NVIDIA, AMD, INTEL, SHARED_GPUS]))
    count = draw(st.integers(0, 3) | st.sampled_from([5, 70]))
    milli = draw(st.sampled_from([250, 500, 1000])) if count and resource not in PLUGIN_GPUS else GPU_MILLI
    return pod_of(count, resource if count else "", milli)


@cache
def policy_of(name: str) -> Policy:
    return default_member(resolve(name))


@settings(max_examples=examples(120), deadline=None)
@given(st.data(), clusters(), st.lists(pods(), min_size=1, max_size=25), st.sampled_from(POLICIES))
def test_every_policy_allocates_the_requested_resources(
    data: st.DataObject, nodes: list[Node], wanted: list[Pod], name: str
) -> None:
    state = ClusterState(nodes)
    profile = typical_pods(wanted)
    decider = Decider(ClusterView(state, profile=profile), policy_of(name))
    plain = [Oracle(node, [GPU_MILLI] * node.gpu_count, node.counted_gpus) for node in nodes]
    placed: dict[str, Pod] = {}
    for i, pod in enumerate(wanted):
        c = state.class_id(pod.pod_class)
        feasible = [each.fits(pod) for each in plain]
        assert state.mask(c)[: len(nodes)].tolist() == feasible
        for slot, why in reasons_by_node(state, c).items():
            assert not feasible[state.slots[slot]]
            assert why == (f"Insufficient {model.shown_name(pod.requests.gpu_resource)}",)
        choice = decider.choose(PodQuery(c))
        assert (choice is not None) == any(feasible)
        if choice is not None:
            assert feasible[choice.slot]
            state.place(f"p{i}", c, choice.slot, choice.devices)
            plain[choice.slot].change(pod, device_indices(choice.devices), 1)
            placed[f"p{i}"] = pod
            decider.changed(choice.slot)
        if placed and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(placed)))
            old = state.remove(gone)
            plain[old.slot].change(placed.pop(gone), device_indices(old.devices), -1)
            decider.changed(old.slot)
        total = sum(node.gpu_total for node in nodes) * GPU_MILLI
        left = sum(sum(each.devices) + GPU_MILLI * sum(each.counts.values()) for each in plain)
        assert gpu_use(state) == (total - left, total)
    for name in list(placed):
        state.remove(name)
    for ours, fresh in zip(state.arrays, ClusterState(nodes).arrays, strict=True):
        assert np.array_equal(ours[:, : fresh.shape[1]] if fresh.ndim == 2 else ours, fresh)


@settings(max_examples=examples(60), deadline=None)
@given(clusters(), st.lists(pods(), min_size=1, max_size=12))
def test_run_matches_the_oracle_and_counts_all_gpus(nodes: list[Node], wanted: list[Pod]) -> None:
    wanted = [replace(pod, name=f"p{i}") for i, pod in enumerate(wanted)]
    run = Simulator(Workload("w", tuple(nodes), tuple(wanted))).run("best-fit", protocol="arrivals", record=True)
    assert run.placements is not None
    plain = {node.name: Oracle(node, [GPU_MILLI] * node.gpu_count, node.counted_gpus) for node in nodes}
    by_name = {pod.name: pod for pod in wanted}
    milli = 0
    for pod, where, devices in zip(run.placements.pod, run.placements.node, run.placements.devices, strict=True):
        if where:
            assert plain[where].fits(by_name[pod])
            plain[where].change(by_name[pod], tuple(map(int, devices.split("-"))) if devices else (), 1)
            milli += by_name[pod].requests.gpu_total_milli
        else:
            assert not any(each.fits(by_name[pod]) for each in plain.values())
    final = run.final_nodes
    for name, share, count in zip(final.names, final.gpu_used_share, final.gpu_count, strict=True):
        left = sum(plain[name].devices) + GPU_MILLI * sum(plain[name].counts.values())
        assert count == plain[name].node.gpu_total
        assert not count or share == pytest.approx(1 - left / count / GPU_MILLI)
    total = sum(node.gpu_total for node in nodes) * GPU_MILLI
    value = next(each.value for each in run.metrics if each.name == "gpu_allocation_percent")
    assert (np.isnan(value) and not total) or value == pytest.approx(100 * milli / total, abs=0.00501)  # two decimals


# The mix


def test_idle_devices_do_not_serve_another_vendor():
    profile = (TypicalPod(1000, 1000, 1, (), 0.5, NVIDIA), TypicalPod(1000, 1000, 1, (), 0.5, AMD))
    types = (GpuType("", (AMD,)), GpuType("", (NVIDIA,)), GpuType("", (SHARED_GPUS, NVIDIA)))
    assert profile_arrays(profile, types).accepts.tolist() == [[False, True, True, True], [True, False, False, True]]
    state = ClusterState([node_of("a", 4, AMD), node_of("b", 4, NVIDIA), node_of("c", 4)])
    decider = Decider(ClusterView(state, profile=profile), resolve("fgd"))
    nodes = np.eye(3, dtype=np.bool_)
    assert [decider.live.summary(0, node)[FRAGMENTED] for node in nodes] == [2000, 2000, 0]


@pytest.mark.parametrize("base", ["steersman-default", "gpu-deepsets"])
def test_prepared_policy_distinguishes_vendors(tmp_path: Path, base: str):
    nodes = tuple(node_of(f"n{i}", 4, (NVIDIA, AMD)[i % 2], model="X" if i < 3 else "") for i in range(6))
    kinds = [((NVIDIA, AMD)[i % 3 == 0], ("X",) * (i % 5 == 0)) for i in range(40)]
    wanted = tuple(pod_of(1 + i % 2, each, name=f"p{i}", models=models) for i, (each, models) in enumerate(kinds))
    workload = Workload("w", nodes, wanted)
    file = tmp_path / "policy.safetensors"
    with policy_files() as files:
        write_policy(file, *prepare_policy(files[base], workload))
    prepared = open_policy(file, "prepared")
    assert prepared.prepared is not None
    assert sorted(set(prepared.prepared.card.resources)) == [AMD, NVIDIA]
    simulator = Simulator(workload)
    assert prepared.prepared.pods == simulator.profile
    for ours, theirs in zip(simulator.profile_arrays(prepared.prepared), simulator.profile_arrays(None), strict=True):
        assert np.array_equal(ours, theirs)
    run = simulator.run(prepared, protocol="arrivals", record=True)
    assert run.placements is not None
    asked = {pod.name: pod.requests.gpu_resource for pod in wanted}
    offered = {node.name: node.gpu_resources for node in nodes}
    there = [(pod, node) for pod, node in zip(run.placements.pod, run.placements.node, strict=True) if node]
    assert len(there) > 10
    assert all(asked[pod] in offered[node] for pod, node in there)


def test_card_with_mismatched_resource_names_is_rejected(tmp_path: Path):
    workload = Workload("w", (node_of("a", 4, NVIDIA),), (pod_of(1, NVIDIA), pod_of(2, NVIDIA, name="q")))
    with policy_path("steersman") as packaged:
        card, arrays = prepare_policy(packaged, workload, resolve("fgd"))
    assert card.profile is not None
    file = tmp_path / "policy.safetensors"
    write_policy(file, replace_struct(card, profile=replace_struct(card.profile, resources=(NVIDIA,))), arrays)
    with raises(InputError, "1", "2"):
        open_policy(file, "prepared")


def test_bound_rejects_counted_gpus():
    workload = Workload("w", (node_of("a", nvidia=80),), (pod_of(1, NVIDIA),))
    with raises(UsageError, "80", "nvidia.com"):
        check_bound(workload, "arrivals")


@pytest.mark.parametrize(
    ("resource", "index"),
    [(NVIDIA, None), (AMD, None), (SHARED_GPUS, {GPU_INDEX_KEY: "0-2"}), ("", {GPU_INDEX_KEY: "0-2"})],
)
def test_device_index_is_annotated_only_for_annotated_requests(resource: str, index: dict[str, str] | None):
    pod = CachedPod("default/p", "1", pod_of(2, resource), 1)
    assert binding(pod, "n", 0b101).metadata.annotations == index
