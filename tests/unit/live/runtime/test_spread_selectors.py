"""Default spreading in a live cluster: as in a simulation of the same objects, whatever came before."""

import asyncio
import itertools
import random
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.support.errors import raises
from tests.support.kube_decisions import KubeDecisions
from tests.support.kubeconfig import unreachable
from tests.support.objects import node_from_object
from tests.support.servers.fake_api_server import failing, failure, listed
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, with_double
from tests.unit.kubernetes.cache.test_cluster_cache import Listener, node, pod, raw
from tests.unit.live.scheduler.test_binding import Notes

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.model import NodeSelectorTerm, ProfileRules, Requirement
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.kubernetes.cache import store
from steersman.kubernetes.cache.cluster_cache import ClusterCache, NodeFeed, PodFeed
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import SELECTING, Selectors
from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.runtime.policy_manager import LiveSpreadSelectors, PolicyManager, check_served
from steersman.live.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.kube_scheduler.arrays import HOSTNAME, ZONE
from steersman.policies.kube_scheduler.minors import MINORS
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, DefaultSpread, KubeProfile
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

Object = dict[str, Any]
KINDS = {kind.kind: kind for kind in SELECTING}


class Live:
    """A live `kube-default` without a network.

    Attributes:
        nodes, pods, selecting: what the API holds, by name; of what selects by kind and name.
    """

    def __init__(self, profile: KubeProfile = DEFAULT_PROFILE) -> None:
        self.policy = KubeSchedulerPolicy(profile=profile)
        file = PolicyReloader("live", policy=self.policy)
        self.selectors = PolicyManager(file).selectors(unreachable())
        self.cache = ClusterCache(unreachable(), self.Told(self), self.selectors)
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.selecting: dict[tuple[str, str], Object] = {}
        self.feeds = {each.handler.kind.kind: each.handler for each in self.selectors.reflectors}
        self.decide_anew()

    class Told(Listener):
        def __init__(self, live: "Live") -> None:
            super().__init__()
            self.live = live

        def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
            if hasattr(self.live, "decider"):
                self.live.decider.changed(slot)

        def on_node_problem(self, name: str, problem: str) -> None: ...

        def on_rebuilt(self) -> None:
            self.live.decide_anew()

    def decide_anew(self) -> None:
        self.decider = Decider(
            ClusterView(self.cache.state, selectors=LiveSpreadSelectors(self.selectors)), self.policy
        )

    def choose(self, name: str) -> tuple[str, dict[str, int]]:
        """The node for a pod, and the score of each that was scored."""
        found = self.cache.pods[f"default/{name}"]
        query, state = PodQuery(*self.cache.number(found)), self.cache.state
        scores, choice = self.decider.scores(query), self.decider.choose(query)
        return named(state, -1 if choice is None else choice.slot, scores)

    def simulated(self, name: str) -> tuple[str, dict[str, int]]:
        """The same in a simulation that is given the objects as they are."""
        slots = sorted(self.cache.state.slots.items(), key=lambda each: each[1])
        state = ClusterState([node_from_object(self.nodes[each]) for each, _ in slots])
        ids = {}
        for each, obj in self.pods.items():
            on = obj["spec"].get("nodeName")
            model = pod_from_object({**obj, "spec": {k: v for k, v in obj["spec"].items() if k != "nodeName"}})
            ids[each] = state.class_id(model.pod_class), state.labels_id(model)
            if on in state.slots:
                state.place(each, ids[each][0], state.slots[on], labels_id=ids[each][1], force=True)
        found = Objects(Document(each, "", "") for each in self.selecting.values())
        kube = KubeDecisions(state, found.services())
        return named(state, kube.choose(*ids[name]), kube.scores(*ids[name]))


def named(state: ClusterState, chosen: int, scores: np.ndarray) -> tuple[str, dict[str, int]]:
    kept = np.flatnonzero(scores >= 0).tolist()
    names = {state.nodes[n].name: int(scores[n]) for n in kept} if len(kept) > 1 else {}
    return "" if chosen < 0 else state.nodes[chosen].name, names


def selecting(kind: str, name: str, *, namespace: str = "default", **selector: Any) -> Object:
    return {
        "apiVersion": KINDS[kind].version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": "x", "resourceVersion": "1"},
        "spec": {"replicas": 3, "selector": selector, "template": {}},
    }


def place(name: str, zone: str) -> Object:
    return node(name, cpu=64, labels={HOSTNAME: name, **({ZONE: zone} if zone else {})})


SELECTORS = {
    "Service": ({"app": "a"}, {"app": "b", "rev": "1"}, {"tier": "x"}),
    "ReplicationController": ({"app": "a"}, {"tier": "y"}),
    "ReplicaSet": (
        {"matchLabels": {"app": "a", "rev": "1"}},
        {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "rev", "operator": "In", "values": ["2", "1"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    ),
    "StatefulSet": ({"matchLabels": {"app": "b"}}, {"matchLabels": {"app": "b"}, "matchExpressions": []}),
}
SELECTING_OBJECTS = [(kind, selector) for kind, found in SELECTORS.items() for selector in found]
LABELS = [
    {k: v for k, v in zip(("app", "rev", "tier"), values, strict=True) if v}
    for values in itertools.product(("", "a", "b"), ("", "1", "2"), ("", "x"))
]
STEPS = ("select", "select", "deselect", "list", "pod", "pod", "bind", "bind", "lose", "relabel", "node")


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_live_spreading_matches_a_simulation_of_the_same_objects(rng: random.Random) -> None:
    live = Live()
    for i in range(4):
        live.nodes[f"n{i}"] = place(f"n{i}", f"z{i // 2}")
        live.cache.upsert_node(raw(live.nodes[f"n{i}"]))
    for _ in range(30):
        play(live, rng.choice(STEPS), rng.randrange(4), rng.randrange(100))
        waiting = sorted(name for name, each in live.pods.items() if not each["spec"].get("nodeName"))
        for name in rng.sample(waiting, min(1, len(waiting))):
            assert live.choose(name) == live.simulated(name)


def play(live: Live, what: str, i: int, j: int) -> None:
    """Something happens."""
    kind, selector = SELECTING_OBJECTS[j % len(SELECTING_OBJECTS)]
    name = f"p{i}{j % 4}"
    if what == "select":  # also where it is there, with another selector
        obj = live.selecting[kind, f"s{i}"] = selecting(kind, f"s{i}", **selector)
        live.feeds[kind].change("ADDED", raw(obj))
    elif what == "deselect" and (kind, f"s{i}") in live.selecting:
        live.feeds[kind].change("DELETED", raw(live.selecting.pop((kind, f"s{i}"))))
    elif what == "list":
        live.selecting = {key: obj for key, obj in live.selecting.items() if key[0] != kind or key[1] != f"s{i}"}
        listed(live.feeds[kind], [raw(obj) for key, obj in live.selecting.items() if key[0] == kind])
        listed(PodFeed(live.cache), [raw(each) for each in live.pods.values()])
        listed(NodeFeed(live.cache), [raw(each) for each in live.nodes.values()])
    elif what in ("pod", "relabel"):
        known = live.pods.get(name)
        if (known is None) == (what == "pod"):
            obj = known or pod(name)
            live.pods[name] = {**obj, "metadata": {**obj["metadata"], "labels": LABELS[j % len(LABELS)]}}
            live.cache.upsert_pod(raw(live.pods[name]))
    elif what == "bind" and name in live.pods and not live.pods[name]["spec"].get("nodeName"):
        live.pods[name] = {**live.pods[name], "spec": {**live.pods[name]["spec"], "nodeName": f"n{i}"}}
        live.cache.upsert_pod(raw(live.pods[name]))
    elif what == "lose" and live.pods.pop(name, None):
        live.cache.delete_pod(f"default/{name}")
    elif what == "node":
        live.nodes[f"n{i}"] = place(f"n{i}", f"z{j % 3}" if j % 3 else "")
        live.cache.upsert_node(raw(live.nodes[f"n{i}"]))


def test_default_constraints_of_a_profile_hold_for_what_a_service_selects() -> None:
    live = Live(KubeProfile(default_spread=(DefaultSpread(1, HOSTNAME, hard=True),)))
    for i in range(2):
        live.cache.upsert_node(raw(place(f"n{i}", "")))
    for i in range(4):
        live.cache.upsert_pod(raw(pod(f"w{i}", cpu="100m", on="n0" if i < 2 else "")))
    told: list[str] = []
    live.cache.listener.on_pod_pending = lambda each: told.append(each.key)
    assert live.choose("w3")[1].keys() == {"n0", "n1"}
    service = selecting("Service", "web", app="w")
    live.feeds["Service"].change("ADDED", raw(service))
    assert told == ["default/w2", "default/w3"]
    assert live.choose("w3") == ("n1", {})
    live.feeds["Service"].change("DELETED", raw(service))
    assert live.choose("w3")[1].keys() == {"n0", "n1"}


def test_a_live_pod_is_filtered_by_the_profile() -> None:
    rules = ProfileRules(frozenset({"NodeUnschedulable"}), (term(HOSTNAME, "n1"),))
    for profile, expected in ((KubeProfile(), {"n0", "n2"}), (KubeProfile(rules=rules), {"n1"})):
        live = Live(profile)
        for i in range(3):
            obj = place(f"n{i}", "")
            obj["spec"] = {"unschedulable": i == 1}
            live.cache.upsert_node(raw(obj))
        live.cache.upsert_pod(raw(pod("p", cpu="100m")))
        found = live.cache.pods["default/p"]
        mask = live.cache.state.mask(*live.cache.number(found))
        assert {each.name for each, fits in zip(live.cache.state.nodes, mask, strict=True) if each and fits} == expected


def term(key: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(key, "In", values),), ())


@pytest.mark.parametrize("minor", ["1.34", "1.36", "1.37"])
def test_the_service_takes_profiles_that_leave_pods_as_they_are(minor: str) -> None:
    rules = MINORS[minor]
    check_served(KubeSchedulerPolicy(profile=KubeProfile(percentage=30).of_minor(rules)))
    for changed in (
        KubeProfile(ignored=frozenset({"a.com/b"})),
        KubeProfile(rules=ProfileRules(frozenset({"NodePorts"}))),
    ):
        with raises(UsageError, "kube-default", "steersman schedule"):
            check_served(KubeSchedulerPolicy(profile=changed.of_minor(rules)))


def test_updates_without_selector_change_are_ignored() -> None:
    live = Live()
    obj = selecting("ReplicaSet", "r", matchLabels={"app": "w", "pod-template-hash": "1"})
    services = LiveSpreadSelectors(live.selectors)
    feed = live.feeds["ReplicaSet"]
    listed(feed, [raw(obj)])
    version, before = live.selectors.version, services()
    assert len(before) == 1
    feed.change("MODIFIED", raw({**obj, "status": {"replicas": 3}}))
    listed(feed, [raw({**obj, "metadata": {**obj["metadata"], "resourceVersion": "9"}})])
    live.feeds["Service"].change("ADDED", raw({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None"}}))
    assert live.selectors.version == version
    assert services() is before
    feed.change("MODIFIED", raw(selecting("ReplicaSet", "r", matchLabels={"app": "v"})))
    assert live.selectors.version > version
    assert services().selectors == (("default", (("app", "v"),)),)


def test_labels_are_distinguished_only_for_selectors() -> None:
    live = Live()
    for i in range(5):
        obj = pod(f"w{i}", on="n")
        obj["metadata"]["labels"] = {"app": "w", "statefulset.kubernetes.io/pod-name": f"w{i}", "rev": str(i % 2)}
        live.cache.upsert_pod(raw(obj))
    assert len({live.cache.number(each)[1] for each in live.cache.pods.values()}) == 1
    live.feeds["StatefulSet"].change("ADDED", raw(selecting("StatefulSet", "w", matchLabels={"app": "w", "rev": "1"})))
    assert len({live.cache.number(each)[1] for each in live.cache.pods.values()}) == 2
    state = live.cache.state
    live.feeds["Service"].change("ADDED", raw(selecting("Service", "w", app="w")))
    assert live.cache.state is state  # the labels are known already


def test_invalid_selector_is_reported_and_skipped() -> None:
    live = Live()
    broken = selecting("ReplicaSet", "r", matchExpressions=[{"key": "app", "operator": "Like", "values": ["w"]}])
    fine = selecting("ReplicaSet", "r", matchLabels={"app": "w"})
    live.feeds["ReplicaSet"].change("ADDED", raw(fine))
    with capture_logs() as logs:
        live.feeds["ReplicaSet"].change("MODIFIED", raw(broken))
    (said,) = logs
    assert (said["event"], said["name"]) == ("object ignored", "default/r")
    assert "spec.selector.matchExpressions[0].operator" in said["error"]
    assert not LiveSpreadSelectors(live.selectors)()


def test_deleted_selectors_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CLASSES_KEPT", 10)
    live = Live()
    live.cache.upsert_node(raw(place("n0", "a")))
    live.cache.upsert_node(raw(place("n1", "b")))
    live.cache.upsert_pod(raw(pod("w0")))
    gone = raw(pod("gone"))
    for i in range(60):
        extra = {} if i % 2 else {"app": "w"}
        expression = {"key": "rev", "operator": "NotIn", "values": [str(i)]}
        changed = selecting("ReplicaSet", "r", matchLabels=extra, matchExpressions=[expression])
        live.feeds["ReplicaSet"].change("MODIFIED", raw(changed))
        live.choose("w0")
        PodFeed(live.cache).change("ADDED", gone)
        PodFeed(live.cache).change("DELETED", gone)
    assert len(live.cache.state.term_arrays.matched) < 20


async def synced(selectors: Selectors) -> list[Any]:
    """What is logged until all that can be listed is; those that run on are ended."""
    with capture_logs() as logs:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in selectors.reflectors]
            for each in selectors.reflectors:
                await each.synced.wait()
            await asyncio.gather(*(each.relist() for each in selectors.reflectors))
            assert max(each.age for each in selectors.reflectors) < 10, "what cannot be known does not grow old"
            for task in tasks:
                task.cancel()
    return logs


@pytest.mark.parametrize(
    ("refused", "said", "allow"),
    [
        ((), None, None),
        (
            ("services",),
            "default spreading is incomplete: no permission to list services",
            'rules: [{apiGroups: [""], resources: [services], verbs: [list, watch]}] of a ClusterRole, and a restart',
        ),
        (
            ("services", "replicationcontrollers", "replicasets", "statefulsets"),
            "default spreading is off: no permission to list services, replicationcontrollers, replicasets, "
            "statefulsets",
            'rules: [{apiGroups: [""], resources: [services, replicationcontrollers], verbs: [list, watch]}, '
            "{apiGroups: [apps], resources: [replicasets, statefulsets], verbs: [list, watch]}] of a ClusterRole, "
            "and a restart",
        ),
    ],
)
@with_double
async def test_missing_permission_is_reported_with_the_remedy(
    double: LiveDouble, client: Client, refused: tuple[str, ...], said: str | None, allow: str | None
) -> None:
    if refused:
        double.fault = failing(403, *(f"/{each}" for each in refused))
    for kind, name in (("Service", "s"), ("ReplicaSet", "r")):
        path = KINDS[kind].path.replace("v1/", "v1/namespaces/default/")
        double.put(path, selecting(kind, name, **({"app": "s"} if kind == "Service" else {})))
    selectors = Selectors(client)
    logs = await synced(selectors)
    assert [(each["event"], each.get("allow")) for each in logs] == ([(said, allow)] if said else [])
    assert len(LiveSpreadSelectors(selectors)()) == (not refused)


def test_empty_cluster_fits_no_pod() -> None:
    live = Live()
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    live.cache.upsert_pod(raw(pod("w0", topologySpreadConstraints=[spread])))
    live.feeds["Service"].change("ADDED", raw(selecting("Service", "w", app="w")))
    assert live.choose("w0") == ("", {})
    found = live.cache.pods["default/w0"]
    assert unschedulable_message(live.cache.state, *live.cache.number(found)) == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("resources", "notes", "word"),
    [
        ({"limits": {"nvidia.com/gpu": 1}}, {}, "nvidia.com/gpu"),
        ({"requests": {"amd.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "0"}}, {}, "amd.com/gpu"),
        ({}, {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "500"}, "GPU"),
    ],
)
def test_missing_gpus_are_named_by_the_requested_resource(resources: Object, notes: dict[str, str], word: str) -> None:
    live = Live()
    live.cache.upsert_node(raw(place("n0", "a")))
    obj = pod("w0")
    obj["metadata"]["annotations"] = notes
    obj["spec"]["containers"][0]["resources"] = resources
    live.cache.upsert_pod(raw(obj))
    found = live.cache.pods["default/w0"]
    why = unschedulable_message(live.cache.state, *live.cache.number(found))
    assert why == f"0/1 nodes are available: 1 Insufficient {word}."


@with_double
async def test_scheduling_continues_without_default_spreading(double: LiveDouble, client: Client) -> None:
    double.bind_after = None

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if request.path.rpartition("/")[2] in {kind.resource for kind in SELECTING}:
            return failure(403, "Forbidden")
        if request.path.endswith("/binding"):
            double.bind("web", (await request.json())["target"]["name"])
            return web.json_response({}, status=201)
        return None

    double.fault = fault
    double.put(NODES, place("n0", "a"))
    double.put(PODS, pod("web"))
    policy = PolicyManager(PolicyReloader("kube-default"))
    scheduler = Scheduler(client, policy.decider, Notes(), SchedulerOptions(), selectors=policy.selectors(client))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(scheduler.watch()), group.create_task(scheduler.schedule())]
        while not double.objects[PODS, "web"]["spec"].get("nodeName"):
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
    assert scheduler.cache.synced
    assert PolicyManager(PolicyReloader("fgd")).selectors(client) is None
