"""The cache against an oracle: after any history, the state is that of a cache which saw the end of it alone."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kubeconfig import unreachable
from tests.support.nightly import examples
from tests.support.servers.fake_api_server import listed

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.cluster_cache import ClusterCache, NodeFeed, PodFeed


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def on_pod_added(self, pod: CachedPod) -> None:
        self.told.append(("came", pod.key))

    def on_pod_pending(self, pod: CachedPod) -> None:
        self.told.append(("waits", pod.key))

    def on_pod_bound(self, pod: CachedPod) -> None:
        self.told.append(("bound", pod.key))

    def on_pod_deleted(self, pod: CachedPod) -> None:
        self.told.append(("gone", pod.key))

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        self.told.append(("node", may_have_grown))

    def on_node_problem(self, name: str, problem: str) -> None:
        self.told.append(("node problem", (name, problem)))

    def on_rebuilt(self) -> None:
        self.told.append(("rebuilt", None))


def cache(*, ranked: bool = False) -> ClusterCache:
    return ClusterCache(unreachable(), Listener(), ranked=ranked)


def raw(obj: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


def node(name: str, cpu: int = 8, gpus: int = 0, labels: dict[str, str] | None = None) -> dict[str, object]:
    amounts = {"cpu": str(cpu), "memory": "16Gi", "pods": "10"}
    if gpus:
        amounts |= {"alibabacloud.com/gpu-count": str(gpus), "alibabacloud.com/gpu-milli": str(1000 * gpus)}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": amounts}}


def pod(
    name: str,
    uid: str = "1",
    cpu: str = "1",
    on: str = "",
    phase: str = "Pending",
    gpu: tuple[int, int] = (0, 0),
    index: str = "",
    generation: int = 1,
    **spec: object,
) -> dict[str, object]:
    notes = {"alibabacloud.com/gpu-count": str(gpu[0]), "alibabacloud.com/gpu-milli": str(gpu[1])} if gpu[0] else {}
    if index:
        notes["alibabacloud.com/gpu-index"] = index
    wanted = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "generation": generation,
            "annotations": notes,
            "labels": {"app": name[0]},
            "ownerReferences": [{"kind": "ReplicaSet", "name": name[0], "uid": "o", "controller": True}],
        },
        "spec": {"containers": [wanted], "schedulerName": "steersman", **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": phase},
    }


def by_name(cache: ClusterCache) -> dict[str, object]:
    state = cache.state
    return {
        name: (
            state.arrays.free[slot].tolist(),
            state.arrays.gpu_free[slot, : int(state.arrays.gpu_count[slot])].tolist(),
            state.arrays.nonzero[slot].tolist(),
            sorted(state.pods_on(slot)),
        )
        for name, slot in state.slots.items()
    }


NAMES = ("a0", "a1", "b0", "b1", "c0", "c1")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("pod", "bind", "finish", "delete", "node", "lose node", "assume", "forget", "resize", "again")
        ),
        st.integers(0, 5),
        st.integers(0, 2),
    ),
    max_size=60,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_cache_after_any_history_equals_the_final_state(steps: list[tuple[str, int, int]]) -> None:
    tested = cache()
    pods: dict[str, dict[str, object]] = {}
    nodes: dict[str, dict[str, object]] = {}
    uid = 0
    for what, i, j in steps:
        name, where = NAMES[i], f"n{j}"
        key = f"default/{name}"
        known = pods.get(name)
        if what == "pod" and known is None:
            uid += 1
            pods[name] = pod(name, str(uid), cpu=str(1 + i % 3), gpu=((1, 300) if i % 2 else (0, 0)))
            tested.upsert_pod(raw(pods[name]))
        elif what == "bind" and known and not known["spec"].get("nodeName"):
            pods[name] = {**known, "spec": {**known["spec"], "nodeName": where}}
            tested.upsert_pod(raw(pods[name]))
        elif what == "finish" and known:
            tested.upsert_pod(raw({**pods.pop(name), "status": {"phase": "Succeeded"}}))
        elif what == "delete" and known:
            pods.pop(name)
            tested.delete_pod(key)
        elif what == "node":
            nodes[where] = node(where, cpu=4 + i, gpus=2)
            tested.upsert_node(raw(nodes[where]))
        elif what == "lose node" and where in nodes:
            del nodes[where]
            tested.delete_node(where)
        elif what == "assume" and known and not known["spec"].get("nodeName") and where in nodes:
            cached = tested.pods[key]
            if not cached.assumed:
                tested.expected.assume(cached, tested.state.slots[where], 0)
        elif what == "forget" and known:
            tested.expected.forget(tested.pods[key])
        elif what == "resize" and known:
            spec = {**known["spec"], "containers": pod(name, cpu=f"{500 + 100 * j}m")["spec"]["containers"]}
            meta = {**known["metadata"], "generation": known["metadata"]["generation"] + 1}
            pods[name] = {**known, "spec": spec, "metadata": meta}
            tested.upsert_pod(raw(pods[name]))
        elif what == "again":
            listed(NodeFeed(tested), [raw(each) for each in nodes.values()])
            listed(PodFeed(tested), [raw(each) for each in pods.values()])
    for cached in list(tested.pods.values()):
        tested.expected.forget(cached)
    fresh = cache()
    for each in nodes.values():
        fresh.upsert_node(raw(each))
    for each in pods.values():
        fresh.upsert_pod(raw(each))
    found, expected = by_name(tested), by_name(fresh)
    assert {k: (v[0], v[2], v[3]) for k, v in found.items()} == {k: (v[0], v[2], v[3]) for k, v in expected.items()}
    # Which device a share got where nothing says so depends on the order in which pods came; the sum does not.
    assert {k: sum(v[1]) for k, v in found.items()} == {k: sum(v[1]) for k, v in expected.items()}
    tested.rebuild()
    again = by_name(tested)
    assert {k: (v[0], v[2], v[3]) for k, v in again.items()} == {k: (v[0], v[2], v[3]) for k, v in expected.items()}
    owners = {o: {n: c for n, c in counts.items() if c} for o, counts in tested._owners.items()}
    assert owners == {o: {n: c for n, c in counts.items() if c} for o, counts in fresh._owners.items()}
    assert tested.use._pods == fresh.use._pods


def test_an_assumed_pod_is_confirmed_by_the_watch() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=4)))
    tested.upsert_pod(raw(pod("a0", gpu=(1, 300))))
    cached = tested.pods["default/a0"]
    tested.expected.assume(cached, tested.state.slots["n"], 0b100)
    assert tested.state.arrays.gpu_free[0].tolist() == [1000, 1000, 700, 1000]
    tested.upsert_pod(raw(pod("a0", on="n", gpu=(1, 300), index="2")))
    assert not cached.assumed
    tested.expected.forget(cached)
    assert tested.state.arrays.gpu_free[0].tolist() == [1000, 1000, 700, 1000]
    assert [what for what, _ in tested.listener.told if what in ("waits", "bound")] == ["waits", "bound"]


def test_watch_overrides_assumed_pods() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", gpus=1)))
    tested.upsert_node(raw(node("m", gpus=1)))
    tested.upsert_pod(raw(pod("a0", gpu=(1, 300))))
    tested.expected.assume(tested.pods["default/a0"], tested.state.slots["n"], 1)
    tested.upsert_pod(raw(pod("a0", on="m", gpu=(1, 300), index="0")))
    free = tested.state.arrays.gpu_free[:, 0]
    assert (free[tested.state.slots["n"]], free[tested.state.slots["m"]]) == (1000, 700)


def test_pods_of_unknown_nodes_count_when_the_node_comes() -> None:
    tested = cache()
    tested.upsert_pod(raw(pod("a0", cpu="3", on="late")))
    tested.upsert_node(raw(node("late", cpu=8)))
    assert tested.state.arrays.free[tested.state.slots["late"], 0] == 5000
    tested.delete_node("late")
    tested.upsert_node(raw(node("late", cpu=10)))
    assert tested.state.arrays.free[tested.state.slots["late"], 0] == 7000


def test_pod_recreated_under_the_same_name_is_a_new_pod() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    tested.upsert_pod(raw(pod("a0", uid="1", cpu="2", on="n")))
    tested.upsert_pod(raw(pod("a0", uid="2", cpu="3")))
    assert tested.state.arrays.free[0, 0] == 8000
    assert tested.pods["default/a0"].uid == "2"
    assert ("gone", "default/a0") in tested.listener.told


def test_changes_of_status_alone_do_not_wake_a_waiting_pod() -> None:
    tested = cache()
    tested.upsert_pod(raw(pod("a0")))
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    tested.upsert_pod(raw({**pod("a0"), "status": {"phase": "Pending", "conditions": conditions}}))
    assert [what for what, _ in tested.listener.told].count("waits") == 1
    changes = (
        pod("a0", cpu="2", generation=2),
        pod("a0", cpu="2", generation=2, gpu=(1, 500)),  # annotations are no part of the spec
        pod("a0", cpu="3", generation=0),  # as before Kubernetes 1.33
        pod("a0", cpu="4", generation=0),
    )
    for i, change in enumerate(changes):
        tested.upsert_pod(raw(change))
        assert [what for what, _ in tested.listener.told].count("waits") == 2 + i
    assert tested.pods["default/a0"].pod.requests.cpu_milli == 4000


def test_labels_are_tracked_only_if_selected() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", labels={"kubernetes.io/hostname": "n"})))
    for i in range(20):
        tested.upsert_pod(raw(pod(f"{i}x", on="n")))
    assert len(tested.state.terms.label_sets) <= 2
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "1"}}}
            ]
        }
    }
    tested.upsert_pod(raw(pod("z0", affinity=apart)))
    waits = tested.pods["default/z0"]
    assert not tested.state.mask(*tested.number(waits)).any()  # app=1 is there since before the question
    for i in range(20):
        tested.delete_pod(f"default/{i}x")
    assert tested.state.mask(*tested.number(waits)).any()


def spreading(name: str) -> dict[str, object]:
    selector = {"matchLabels": {"app": "a"}}
    rule = {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return pod(name, topologySpreadConstraints=[rule])


def terminating(obj: dict[str, object]) -> dict[str, object]:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}  # type: ignore[dict-item]


@pytest.mark.parametrize("deleted", ["before it is seen", "later", "while it is assumed"])
def test_a_terminating_pod_keeps_its_resources_and_leaves_topology_spread(deleted: str) -> None:
    tested = cache()
    for name in ("m", "n"):
        tested.upsert_node(raw(node(name, labels={"host": name})))
    old, far = pod("a0", on="m"), pod("c0", affinity=only_without("a"))
    tested.upsert_pod(raw(pod("a1", on="n")))
    for each in (spreading("a2"), far):
        tested.upsert_pod(raw(each))
    if deleted == "while it is assumed":
        tested.upsert_pod(raw(pod("a0")))
        tested.expected.assume(tested.pods["default/a0"], 0, 0)
        tested.upsert_pod(raw(terminating(pod("a0"))))
    elif deleted == "later":
        tested.upsert_pod(raw(old))
        new = tested.pods["default/a2"]
        assert tested.state.mask(*tested.number(new)).tolist() == [True, True]
        tested.listener.told.clear()
    tested.upsert_pod(raw(terminating(old)))
    if deleted == "later":
        assert ("node", False) in tested.listener.told
    new, other = tested.pods["default/a2"], tested.pods["default/c0"]
    assert tested.pods["default/a0"].deleting
    assert tested.state.mask(*tested.number(new)).tolist() == [True, False]
    assert not tested.state.mask(*tested.number(other)).any(), "anti-affinity counts it"
    assert tested.state.arrays.free[0, 0] == 7000
    tested.rebuild()
    new = tested.pods["default/a2"]
    assert tested.state.mask(*tested.number(new)).tolist() == [True, False]
    tested.delete_pod("default/a0")
    assert tested.state.arrays.free[0, 0] == 8000


def only_without(app: str) -> dict[str, object]:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_pods_with_one_exclusive_volume_share_no_node() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    disk = {"name": "d", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.a", "lun": 0}}
    tested.upsert_pod(raw(pod("a0", on="n", volumes=[disk])))
    tested.upsert_pod(raw(pod("b0", volumes=[disk])))
    waits = tested.pods["default/b0"]
    why = unschedulable_message(tested.state, *tested.number(waits))
    assert why == "0/1 nodes are available: 1 node(s) had no available disk."
    tested.delete_pod("default/a0")
    assert tested.state.mask(*tested.number(waits)).any()


def test_a_pod_waits_until_a_node_declares_the_features_that_it_needs() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    tested.upsert_pod(raw(pod("a0", hostNetwork=True, hostUsers=False)))
    waits = tested.pods["default/a0"]
    why = unschedulable_message(tested.state, *tested.number(waits))
    assert why == "0/1 nodes are available: 1 node(s) didn't match Pod's required features."
    changed = node("n")
    changed["status"]["declaredFeatures"] = ["UserNamespacesHostNetworkSupport"]  # type: ignore[index]
    tested.listener.told.clear()
    tested.upsert_node(raw(changed))
    assert tested.listener.told == [("node", True)]
    assert tested.state.mask(*tested.number(waits)).any()


def test_invalid_objects_are_skipped_and_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    tested = cache()
    tested.upsert_node(raw({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "many", "memory": "1Gi"}}}))
    tested.upsert_pod(raw(pod("a0", cpu="-1")))
    tested.upsert_pod(raw(pod("a0", cpu="-1")))
    assert tested.pods["default/a0"].unmodelled, "it waits, and nobody places it"
    assert not tested.state.slots
    said = capsys.readouterr().out
    assert said.count("default/a0") == 1
    assert "many" in said


def test_requests_of_an_invalid_pod_count() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n")))
    tested.upsert_pod(raw(pod("a0", cpu="6", gpu=(1, 5000), on="n")))
    assert tested.state.arrays.free[0, 0] == 2000, "it runs there, though its GPU share makes no sense"
    tested.upsert_pod(raw(pod("b0", gpu=(1, 5000))))
    waits = tested.pods["default/b0"]
    assert "gpu-milli" in waits.unmodelled[0], "and while one waits its event says why"
    tested.upsert_pod(raw({**pod("b0"), "metadata": {**pod("b0")["metadata"], "generation": 2}}))  # type: ignore[dict-item]
    assert tested.pods["default/b0"].unmodelled == ()


def test_a_node_that_changes_keeps_its_pods_and_its_slot() -> None:
    tested = cache()
    tested.upsert_node(raw(node("n", cpu=8)))
    tested.upsert_pod(raw(pod("a0", cpu="3", on="n")))
    before = len(tested.listener.told)
    tested.upsert_node(raw(node("n", cpu=8)))
    assert len(tested.listener.told) == before  # a heartbeat is no news
    tested.upsert_node(raw(node("n", cpu=16)))
    assert np.array_equal(tested.state.arrays.free[0, :1], [13000])


def test_listed_nodes_keep_their_order_and_get_random_ranks() -> None:
    """The API lists nodes by name, so by pool; of equal scores the lowest slot wins."""
    names = [f"{pool}-{i:02}" for pool in ("a100", "cpu", "t4", "v100") for i in range(25)]
    tested, shown = cache(ranked=True), cache()
    for each in (tested, shown):
        listed(NodeFeed(each), (raw(node(name)) for name in names))
    assert [each.name for each in shown.state.nodes[:100] if each is not None] == names, "as pages show them"
    ranked = [each.name for each in tested.state.nodes if each is not None]
    assert sorted(ranked) == names
    for pool in ("a100", "cpu", "t4", "v100"):
        assert 2 <= sum(name.startswith(pool) for name in ranked[:25]) <= 12
    assert list(tested.state.slots) == names, "kube-scheduler visits nodes in this order"
    other = cache(ranked=True)
    listed(NodeFeed(other), (raw(node(name)) for name in reversed(names)))
    assert [each.name for each in other.state.nodes if each is not None] == ranked, "in every process"


def test_nodes_are_reranked_when_their_number_doubles() -> None:
    tested = cache(ranked=True)
    feed = NodeFeed(tested)
    for count, rebuilt in ((4, 1), (5, 1), (8, 2), (9, 2)):
        listed(feed, (raw(node(f"n{i}")) for i in range(count)))
        tested.upsert_pod(raw(pod("a0", cpu="3", on="n0")))
        assert tested.listener.told.count(("rebuilt", None)) == rebuilt
        assert tested.state.arrays.free[tested.state.slots["n0"], 0] == 5000


def devices(tested: ClusterCache, node_name: str, count: int, expression: str = "device.driver == 'd'") -> None:
    """Have a class of devices and a node's slice of them seen."""
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": "nvidia.com/gpu"}
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    slice_spec = {
        "driver": "d",
        "nodeName": node_name,
        "pool": pool,
        "devices": [{"name": f"d{i}"} for i in range(count)],
    }
    classes, slices, _ = tested.device_claims.reflectors
    for reflector, name, body in ((classes, "gpu", spec), (slices, "slice", slice_spec)):
        reflector.change("ADDED", raw({"metadata": {"name": name}, "spec": body}))
        reflector.keep({name})


def requesting(name: str, resource: str = "nvidia.com/gpu") -> dict[str, object]:
    wanted = {"name": "c", "image": "i", "resources": {"limits": {resource: "1"}}}
    return pod(name, containers=[wanted])


@pytest.mark.parametrize("first", ["devices", "pods"])
def test_devices_of_slices_are_extended_resources_of_their_node(first: str) -> None:
    tested = cache()
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    if first == "devices":
        devices(tested, "m", 1)
    for name in ("m", "n"):
        tested.upsert_node(raw(node(name)))
    for each in (requesting("a0"), requesting("b0", implicit)):
        tested.upsert_pod(raw(each))
    if first == "pods":
        tested.listener.told.clear()
        devices(tested, "m", 1)
        assert ("node", True) in tested.listener.told
        assert ("waits", "default/b0") in tested.listener.told
    for name in ("a0", "b0"):
        waits = tested.pods[f"default/{name}"]
        assert tested.state.mask(*tested.number(waits)).tolist() == [True, False]
        assert tested.offered_devices(waits.pod, "m") == ["nvidia.com/gpu"]
        assert tested.offered_devices(waits.pod, "n") == []
    tested.upsert_pod(raw({**requesting("a0"), "spec": {**requesting("a0")["spec"], "nodeName": "m"}}))
    waits = tested.pods["default/b0"]
    assert not tested.state.mask(*tested.number(waits)).any()
    devices(tested, "m", 2)
    assert tested.state.mask(*tested.number(waits)).any()


def test_pods_of_devices_that_are_not_modelled_are_left_to_kube_scheduler() -> None:
    tested = cache()
    tested.upsert_node(raw(node("m")))
    tested.upsert_pod(raw(requesting("a0")))
    devices(tested, "m", 1, "device.driver.matches('d')")
    (use,) = tested.pods["default/a0"].unmodelled
    assert use.startswith("nvidia.com/gpu of DeviceClass gpu, since ")
    devices(tested, "m", 1)
    assert tested.pods["default/a0"].unmodelled == ()
