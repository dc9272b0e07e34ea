"""The score service and clients that it must not trust: what they send changes nothing for anybody else."""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.servers.watched_service import Object, node, pod, spread, watched_cluster, watching
from tests.unit.kubernetes.cache.test_cluster_cache import raw

from steersman.cluster.pod_query import PodQuery
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.service import api as api_module
from steersman.live.service import messages
from steersman.live.service import metrics as metrics_module
from steersman.live.service import server as server_module
from steersman.live.service.config import ServiceConfig
from steersman.live.service.limits import Deadline
from steersman.live.service.process import WatchedCluster
from steersman.live.service.scoring import node_scorer as opinions_module
from steersman.live.service.scoring import unknown_pods
from steersman.live.service.scoring.node_scorer import NodeScorer, Pods
from steersman.live.service.scoring.unknown_pods import TimeBudget

NODES = [node(f"n{i}", "16", gpus=4, zone=f"z{i % 2}") for i in range(4)]
RUNNING = [pod(f"there-{i}", "2", 500, f"n{i % 3}", app=f"web-{i % 2}") for i in range(8)]
SENT = {"nodes": [node("elsewhere", "64", gpus=8)], "pods": []}


def sent_cluster(count: int) -> Object:
    """A cluster full of pods unlike those of the watched one."""
    pods = [pod(f"odd-{i}", "10m", 10, "elsewhere") for i in range(count)]
    return {"nodes": [node("elsewhere", "64", gpus=8)], "pods": pods}


# Sent clusters --------------------------------------------------------------------------------------------------------


async def test_watching_service_rejects_requests_with_a_cluster() -> None:
    async with watching(NODES, RUNNING) as (_, _, ask):
        for path in ("/v1/scores", "/v1/suggestions", "/v1/explain"):
            status, answer = await ask(path, {"pod": pod("web"), "cluster": SENT})
            assert (status, "allowSentClusters" in answer["error"]) == (403, True), path
        for more in ({"pods": SENT["pods"]}, {"pods": [pod("x", where="elsewhere")]}):
            status, answer = await ask("/score", {"pod": pod("web"), "nodes": SENT["nodes"], **more})
            assert (status, "allowSentClusters" in answer["error"]) == (403, True)
        status, answer = await ask("/score", {"pod": pod("web"), "nodes": NODES})
        assert (status, len(answer["scores"])) == (200, 4), "nodes of the watched cluster are meant"
        assert (await ask("/v1/scores", {"pod": pod("web")}))[0] == 200


async def test_requests_do_not_change_scores_of_the_watched_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.live.runtime.policy_manager.CHECK_INTERVAL_SECONDS", 0.05)
    async with watching(NODES, RUNNING, policy="fgd", allow_sent_clusters=True) as (service, _, ask):
        question = {"pod": pod("web", share=300)}
        await asyncio.sleep(0.2)
        before, profile = (await ask("/v1/scores", question))[1], service.policy_manager.profile.pods
        assert len(profile) == 1
        for _ in range(3):
            status, sent = await ask("/v1/scores", {**question, "cluster": sent_cluster(50)})
            assert (status, sent["neutral"]) == (200, "")
        await asyncio.sleep(0.2)
        assert service.policy_manager.profile.pods == profile
        assert (len(service.policy_manager.profile), (await ask("/v1/scores", question))[1]) == (len(RUNNING), before)


async def test_sent_cluster_is_scored_by_its_own_profile() -> None:
    async with watching(NODES, RUNNING, policy="fgd", allow_sent_clusters=True) as (_, _, ask):
        places = [node("a", "64", gpus=2), node("b", "64", gpus=2)]
        pods = [pod(f"p{i}", "1", 700, "a" if i else "b") for i in range(2)]
        question = {"pod": pod("new", share=300), "cluster": {"nodes": places, "pods": pods}}
        first = (await ask("/v1/scores", question))[1]
        await ask("/v1/scores", {"pod": pod("x"), "cluster": sent_cluster(80)})
        assert (await ask("/v1/scores", question))[1] == first
        assert max(first["scores"]) == 100


# Overload -------------------------------------------------------------------------------------------------------------


def undecoded(*_: Any, **__: Any) -> Any:
    raise AssertionError("it is not decoded")


def test_exhausted_budget_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions_module, "pod_from_json", undecoded)
    monkeypatch.setattr(opinions_module, "node_from_json", undecoded)
    asked = api_module.Api(ServiceConfig(), lambda: "best-fit", None, undecoded, metrics_module.ServiceMetrics())

    def decoded(body: Object, kind: Any) -> Any:
        return msgspec.json.decode(msgspec.json.encode(body), type=kind)

    question = decoded({"pod": pod("web"), "cluster": {"nodes": NODES, "pods": RUNNING}}, messages.ScoreInputs)
    scored = decoded({"pod": pod("web"), "nodes": NODES, "pods": RUNNING}, messages.ScoreRequest)
    args = decoded({"Pod": pod("web"), "Nodes": {"items": NODES}}, messages.ExtenderArgs)
    names = [each["metadata"]["name"] for each in NODES]
    for deadline, overloaded in ((Deadline(60.0), True), (Deadline(0.0), False)):
        reason = "overload" if overloaded else "deadline"
        scores = asked.scores(question, deadline, overloaded)
        assert (scores.scores, scores.neutral) == ([50] * len(NODES), reason)
        assert asked.suggest(question, deadline, overloaded).scores == dict.fromkeys(names, 50)
        assert asked.score(scored, deadline, overloaded).scores == dict.fromkeys(names, 50)
        passed = asked.filter(args, deadline, overloaded).nodes
        assert passed is not None
        assert (len(passed.items), len(asked.prioritize(args, deadline, overloaded))) == (4, 4)  # type: ignore[arg-type]


# Pods that the cluster does not have ----------------------------------------------------------------------------------

KEYS, VALUES = ("app", "tier", "fresh"), ("web-0", "web-1", "other")


def watched(policy: str = "best-fit", pods: Iterable[Object] = RUNNING) -> WatchedCluster:
    return watched_cluster(NODES, pods, policy)


@st.composite
def described(draw: st.DrawFn) -> Object:
    """A pod with any of the constraints that look at others, at labels of nodes, or at ports."""
    labels = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2))
    made = pod("asked", f"{draw(st.integers(1, 40))}00m", draw(st.sampled_from([0, 0, 300, 1000])), **labels)
    spec, key, value = made["spec"], draw(st.sampled_from(KEYS)), draw(st.sampled_from(VALUES))
    kinds = draw(st.sets(st.sampled_from(["spread", "near", "far", "preferred", "zone", "port"]), max_size=3))
    term = {"topologyKey": draw(st.sampled_from(["kubernetes.io/hostname", "zone"]))}
    term |= {"labelSelector": {"matchLabels": {key: value}}}
    if "spread" in kinds:
        spread(made, key, value)
    affinity: Object = {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if "near" in kinds:
        affinity["podAffinity"] = {required: [term]}
    if "far" in kinds:
        affinity["podAntiAffinity"] = {required: [term]}
    if "preferred" in kinds:
        affinity.setdefault("podAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 10, "podAffinityTerm": term}
        ]
    spec["affinity"] = affinity
    if "zone" in kinds:
        spec["nodeSelector"] = {"zone": draw(st.sampled_from(["z0", "z9"]))}
    if "port" in kinds:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": draw(st.sampled_from([80, 81]))}]
    return made


def outlined(cluster: WatchedCluster) -> list[Any]:
    """What a state would grow by."""
    state = cluster.cache.state
    arrays = [array.tobytes() for array in (*state.class_arrays, *state.term_arrays[:-1])]
    return [elements(state), *arrays, set(cluster.cache.selected)]


@pytest.mark.parametrize("policy", ["best-fit", "fgd=2,best-fit=1", "kube-default"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_requested_pods_leave_no_state(policy: str, data: st.DataObject) -> None:
    there = [described_pod(data.draw(described()), i) for i in range(data.draw(st.integers(0, 3)))]
    cluster, twin = watched(policy, RUNNING + there), watched(policy, RUNNING + there)
    waits = Pods().decode(raw(pod("waits", "3", 300, app="web-1")))
    with cluster.query(waits) as (asked, query):
        before = asked.ask(query).raw.tolist()
    # What a state computes once is there then.
    with cluster.query(Pods().decode(raw(hostile(0)))) as (asked, query):
        asked.ask(query).settled()
    outline, state, node_scorer = outlined(cluster), cluster.cache.state, cluster.node_scorer
    for each in data.draw(st.lists(described(), min_size=1, max_size=4)):
        decoded = Pods().decode(raw(each))
        with cluster.query(decoded) as (asked, query):
            ranking = asked.ask(query).settled()
            refused = asked.refused(query)
        # The twin keeps apart whatever the pod selects by.
        known = PodQuery(*twin.cache.number(CachedPod(decoded.name, "", decoded, 1)))
        expected = NodeScorer(twin.policy_manager.decider(twin.cache))
        if policy != "kube-default":  # which begins its search where the last one ended
            assert ranking.raw.tolist() == expected.ask(known).raw.tolist(), each
        assert refused == expected.refused(known), each
        assert outlined(cluster) == outline
        assert (cluster.cache.state is state, cluster.node_scorer is node_scorer) == (True, True)
    with cluster.query(waits) as (asked, query):
        assert asked.ask(query).raw.tolist() == before


def described_pod(made: Object, i: int) -> Object:
    """The same as one that runs, or waits."""
    made["metadata"] |= {"name": f"with-{i}", "uid": f"with-{i}"}
    return made | {"spec": made["spec"] | ({"nodeName": f"n{i}"} if i else {})}


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.5)), max_size=50), st.floats(0.01, 0.5))
def test_budget_overrun_is_bounded_by_one_request(steps: list[Any], share: float) -> None:
    now = [0.0]
    budget, spent, longest, refused = TimeBudget(share, 0.25, lambda: now[0], lambda: now[0]), 0.0, 0.0, 0
    for wait, cost in steps:
        now[0] += wait
        if budget.is_spent:
            refused += 1
            continue
        with budget.charged():
            now[0] += cost
        spent, longest = spent + cost, max(longest, cost)
    assert spent <= 0.25 + share * now[0] + longest + 1e-9
    assert not refused or spent > 0.0


def test_novel_pods_have_a_bounded_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow(self: NodeScorer, *arguments: Any, **more: Any) -> Any:
        now[0] += 0.1
        return whole(self, *arguments, **more)

    whole = NodeScorer.ask
    monkeypatch.setattr(NodeScorer, "ask", slow)
    budget = functools.partial(TimeBudget, clock=lambda: now[0], cpu=lambda: now[0])
    monkeypatch.setattr(unknown_pods, "TimeBudget", budget)
    cluster = watched()

    def ask(asked: Object) -> bool:
        with cluster.query(Pods().decode(raw(asked))) as (node_scorer, query):
            node_scorer.ask(query)
        return True

    fresh = (pod(f"p{i}", f"{3000 + i}m") for i in range(100))
    assert [ask(next(fresh)) for _ in range(3)] == [True] * 3
    for _ in range(5):
        with pytest.raises(unknown_pods.UnusualPodError, match="many such pods"):
            ask(next(fresh))
    assert ask(pod("like-there-0", "2", 500)), "what the cluster has is answered in any case"
    now[0] += 4.0
    assert ask(next(fresh)), "and there is time again"
    many = pod("many")
    many["spec"]["nodeSelector"] = {f"key-{i}": "x" for i in range(unknown_pods.MOST_REQUIREMENTS + 1)}
    with pytest.raises(unknown_pods.UnusualPodError, match="requirements"):
        ask(many)


# What is kept ---------------------------------------------------------------------------------------------------------


def elements(root: object) -> int:
    """Everything in containers, arrays and texts that objects of ours hold."""
    seen, total, left = set[int](), 0, [root]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            total += each.nbytes
        elif isinstance(each, str | bytes):
            total += len(each)
        elif isinstance(each, dict):
            total += len(each)
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | collections.deque):
            total += len(each)
            left += each
        elif type(each).__module__.startswith("steersman"):
            left += fields(each)
    return total


def fields(each: object) -> Iterator[Any]:
    yield from getattr(each, "__dict__", {}).values()
    names = {name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())}
    yield from (
        getattr(each, name) for name in names | set(getattr(each, "__struct_fields__", ())) if hasattr(each, name)
    )


def hostile(i: int) -> Object:
    """Another pod each time, in every way that a pod can be another."""
    made = spread(pod(f"evil-{i}", f"{1000 + i}m", app=f"a{i}", **{f"key-{i}": "x"}), f"key-{i}", "x")
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"job-{i}", "uid": f"u{i}", "controller": True}]
    spec = made["spec"]
    spec["nodeSelector"], spec["tolerations"] = {f"disk-{i}": "x"}, [{"key": f"taint-{i}", "operator": "Exists"}]
    spec["containers"][0] |= {"ports": [{"containerPort": 1, "hostPort": 1 + i}], "image": f"image-{i}"}
    for amounts in ("requests", "limits"):
        spec["containers"][0]["resources"].setdefault(amounts, {})[f"example.com/thing-{i}"] = "1"
    spec["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": f"topology-{i}", "labelSelector": {"matchLabels": {f"other-{i}": "x"}}}
            ]
        }
    }
    return made


@pytest.mark.parametrize("policy", ["best-fit", "kube-default"])
async def test_caches_do_not_grow_with_requests(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions_module, "PODS_KEPT", 8)
    monkeypatch.setattr(opinions_module, "SETS_KEPT", 8)
    monkeypatch.setattr(metrics_module, "REMEMBERED", 8)
    monkeypatch.setattr(unknown_pods, "SAVED_SECONDS", 1e9)
    async with watching(NODES, RUNNING, policy=policy) as (service, _, ask):
        held: list[Any] = []
        assert service.watched is not None
        monkeypatch.setattr(api_module, "LARGE_SHARE", 1.0)

        async def attack(start: int) -> None:
            for i in range(start, start + 15):
                evil, names = hostile(i), [each["metadata"]["name"] for each in NODES]
                for path, question in (
                    ("/v1/scores", {"pod": evil}),
                    ("/v1/scores", {"pod": evil, "nodes": [*names, f"unknown-{i:09}"]}),
                    ("/v1/suggestions", {"pod": evil}),
                    ("/v1/explain", {"pod": evil}),
                    ("/score", {"pod": evil, "nodes": NODES}),
                    ("/filter", {"Pod": evil, "NodeNames": names}),
                    ("/prioritize", {"Pod": evil, "NodeNames": names}),
                    (f"/path-{i}", {}),
                ):
                    assert (await ask(path, question))[0] in (200, 404, 503), path

        await attack(10_000)
        held.append(service)
        first = elements(service)
        await attack(20_000)
        second = elements(service)
        await attack(30_000)
        assert elements(service) <= max(first, second) * 1.02, "within what pods of other sizes make of full caches"
        assert service.watched.cache._owners.keys() == set()


async def test_large_bodies_get_a_small_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LARGE_SHARE", 1e-6)
    monkeypatch.setattr(server_module, "LARGE_SAVED_SECONDS", 1e-6)
    async with watching(NODES, RUNNING) as (_, _, ask):
        small, large = {"pod": pod("p")}, {"pod": pod("p"), "cluster": {"nodes": [{"x": "y" * (600 << 10)}]}}
        assert [(await ask("/v1/scores", each))[0] for each in (large, large, small)] == [403, 503, 200]


def test_cached_lists_of_nodes_are_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions_module, "SETS_CHARACTERS", 10_000)
    sets = opinions_module.NodeSets()
    given = [opinions_module.NodeSet([f"{i:02}-{k:02}" for k in range(20)]) for i in range(60)]
    for each in given:
        sets.keep(each)
    size = 20 * (len("00-00") + opinions_module.NAME_OVERHEAD)
    first_kept = len(given) - 10_000 // size
    for each in given[first_kept:]:
        assert sets.get(each.version) is each
    with pytest.raises(opinions_module.UnknownNodeSetError):
        sets.get(given[first_kept - 1].version)


def test_cached_pods_are_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions_module, "PODS_BYTES", 20_000)
    decoded, decode = list[object](), opinions_module.decode_pod
    monkeypatch.setattr(opinions_module, "decode_pod", lambda content: decoded.append(content) or decode(content))
    pods = Pods()
    given = [raw(pod("p", app=f"{i:02}" + "x" * 1000)) for i in range(60)]
    for each in given:
        pods.decode(each)
        pods.decode(each)
    assert len(decoded) == len(given)
    for each in given[:-11:-1]:
        pods.decode(each)
    assert len(decoded) == len(given), "the last ten are kept"
    pods.decode(given[-21])
    assert len(decoded) == len(given) + 1, "twenty of more than 1,000 bytes are not"


def test_impossible_object_is_rejected_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("it is not decoded")

    monkeypatch.setattr(opinions_module, "pod_from_json", never)
    with raises(opinions_module.InvalidRequestError):
        Pods().decode(msgspec.Raw(b'"' + b"x" * opinions_module.LARGEST_OBJECT + b'"'))


def test_unknown_names_are_not_cached() -> None:
    metrics = metrics_module.ServiceMetrics()
    metrics.scored("default/" + "x" * 1000, "n0")
    metrics.scored("default/web", "n0")
    for name in ("x" * 1000, "web"):
        metrics.bound(f"default/{name}", "n0")
    assert metrics.registry.get_sample_value("steersman_service_agreement_total", {"agrees": "true"}) == 1


async def test_excess_names_are_rejected() -> None:
    async with watching(NODES, RUNNING) as (_, _, ask):
        names = [f"n{i}" for i in range(2000)]
        for path, question in (
            ("/v1/scores", {"pod": pod("web"), "nodes": names}),
            ("/prioritize", {"Pod": pod("web"), "NodeNames": names}),
        ):
            status, answer = await ask(path, question)
            assert (status, "expected at most 1008" in answer["error"]) == (400, True)
