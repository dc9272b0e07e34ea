"""The score service: what it answers, what it refuses, and when it says nothing."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from tests.support.errors import raises
from tests.support.kubeconfig import unreachable
from tests.support.nightly import examples
from tests.support.servers.fake_api_server import listed
from tests.support.servers.watched_service import Object, asking, watched_cluster
from tests.unit.kubernetes.cache.test_cluster_cache import raw

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.cache import cluster_cache
from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.runtime.policy_manager import PolicyManager
from steersman.live.service import limits
from steersman.live.service.config import ServiceConfig, Tls, read_config
from steersman.live.service.process import Service
from steersman.live.service.scoring import node_scorer as opinions_module
from steersman.live.service.scoring.choice import NOWHERE, pick
from steersman.live.service.scoring.node_scorer import (
    NEUTRAL,
    InvalidRequestError,
    NodeScorer,
    NodeSet,
    NodeSets,
    NodeSubset,
    Pods,
    Ranking,
    UnknownNodeSetError,
    version_of,
)
from steersman.live.service.scoring.node_scorer import decode_pod as real
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.profile import typical_pods


def node(name: str, cpu: str = "8", **more: str) -> Object:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "10", **more}}}


def pod(name: str = "web", cpu: str = "1", namespace: str = "default", where: str = "", **labels: str) -> Object:
    wanted = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec: Object = {"containers": [wanted]} | ({"nodeName": where} if where else {})
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


CLUSTER = {"nodes": [node("small", "2"), node("large", "16")], "pods": [pod("there", "1", where="small")]}


# Rankings -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.just(-math.inf), st.floats(-1e6, 1e6)), min_size=1, max_size=20))
def test_only_the_choice_has_the_highest_score(raw):
    values = np.array(raw)
    chosen = int(values.argmax()) if np.isfinite(values).any() else -1
    ranking = Ranking([str(i) for i in range(len(raw))], values, chosen)
    scores = ranking.scores()
    assert ranking.scores(10).tolist() == (scores // 10).tolist()
    assert ((scores >= 0) & (scores <= 100)).all()
    assert (scores[~np.isfinite(values)] == 0).all()
    if chosen >= 0:
        assert (scores == 100).sum() == 1 == (scores[chosen] == 100)
        fits = np.flatnonzero(np.isfinite(values))
        others = fits[fits != chosen]
        for a in others:
            for b in others:
                assert scores[a] <= scores[b] or values[a] > values[b]


@given(st.data(), st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 2.5]), min_size=1, max_size=12))
def test_best_of_the_listed_nodes_is_chosen(data, scores):
    count = len(scores)
    slots = data.draw(st.lists(st.integers(-1, count - 1), min_size=1, max_size=count + 2))
    wanted = data.draw(st.integers(-1, count - 1))
    raw = np.array([scores[slot] if slot >= 0 else -math.inf for slot in slots])
    chosen = pick(raw, np.array(slots), wanted)
    if wanted >= 0 and wanted in slots:
        assert chosen == slots.index(wanted)
    elif max(raw) == -math.inf:
        assert chosen == NOWHERE
    else:
        assert slots[chosen] == min(slot for slot, score in zip(slots, raw, strict=True) if score == max(raw))


@pytest.fixture(scope="module")
def crowded() -> ClusterState:
    """64 nodes of the openb cluster with 200 pods, and every class of the workload."""
    workload = embedded(SMALL)
    state = ClusterState(workload.nodes)
    decider = Decider(ClusterView(state, profile=typical_pods(workload.pods)), resolve("fgd"))
    for number, each in enumerate(workload.pods):
        c = state.class_id(each.pod_class)
        choice = decider.choose(PodQuery(c)) if number < 200 else None
        if choice is not None:
            state.place(each.name, c, choice.slot, choice.devices)
            decider.changed(choice.slot)
    return state


POLICIES = ("best-fit", "fgd", "fgd=2,best-fit=1", "kube-default", "steersman")


@pytest.mark.parametrize("name", POLICIES)
def test_service_scores_match_the_scheduler(crowded, name):
    profile = typical_pods(embedded(SMALL).pods)
    decider, chooses, asked = (Decider(ClusterView(crowded, profile=profile), resolve(name)) for _ in range(3))
    node_scorer = NodeScorer(asked)
    for c in range(len(crowded.classes)):
        choice, scores, ranking = chooses.choose(PodQuery(c)), decider.scores(PodQuery(c)), node_scorer.ask(PodQuery(c))
        assert (ranking.chosen < 0) == (choice is None)
        if choice is not None:
            chosen = crowded.slots[ranking.names[ranking.chosen]]
            assert (chosen, ranking.devices()) == (choice.slot, choice.devices), "the live scheduler's choice"
        np.testing.assert_array_equal(np.isfinite(scores), crowded.mask(c) & np.isfinite(scores))
        if choice is None:
            assert not np.isfinite(scores).any()
            continue
        assert scores[choice.slot] == scores.max()
        if name != "kube-default":  # which searches on from where it stopped, and draws among equals
            assert choice.slot == scores.argmax()
            assert decider.devices(c, choice.slot) == choice.devices
            assert (np.isfinite(scores) == crowded.mask(c)).all()


@pytest.mark.parametrize("name", ["steersman", "fgd=2,gpu-packing=1", "kube-default"])
def test_contributions_sum_to_the_score_difference(crowded, name):
    decider = Decider(ClusterView(crowded, profile=typical_pods(embedded(SMALL).pods)), resolve(name))
    told = 0
    for c in range(0, len(crowded.classes), 7):
        scores = decider.scores(PodQuery(c))
        order = [int(i) for i in np.argsort(-scores, kind="stable") if np.isfinite(scores[i])]
        if len(order) > 1:
            first, second = order[0], order[-1]
            found = decider.contributions(PodQuery(c), first, second)
            assert sum(each.contribution for each in found) == pytest.approx(
                scores[first] - scores[second], rel=1e-4, abs=1e-3
            )
            told += any(each.contribution for each in found)
            sizes = [abs(each.contribution) for each in found]
            assert sizes == sorted(sizes, reverse=True)
    assert told


def test_node_lists_are_versioned_and_evicted_by_use():
    sets = NodeSets()
    first = sets.keep(NodeSet(["a", "b"]))
    assert first == version_of(["a", "b"]) != version_of(["ab"]) != version_of(["b", "a"])
    for i in range(63):
        sets.keep(NodeSet([str(i)]))
    assert sets.get(first).names == ["a", "b"]
    sets.keep(NodeSet(["one more"]))
    assert sets.get(first).names == ["a", "b"], "it was used just now"
    with pytest.raises(UnknownNodeSetError):
        sets.get(version_of(["0"]))
    long = sets.keep(NodeSet(["x" * opinions_module.LARGEST_SET, "y"]))
    with pytest.raises(UnknownNodeSetError):
        sets.get(long)


def test_extender_reuses_an_unchanged_pending_pod():
    there = pod("web", app="web")
    there["metadata"] |= {"uid": "1", "generation": 1, "annotations": {"a": "b"}, "resourceVersion": "7"}
    claims = pod("claims")
    claims["metadata"] |= {"uid": "2", "generation": 1}
    claims["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    old = pod("old")  # as API servers before 1.33 have it
    watched = watched_cluster([node("large", "64")], [there, claims, old])
    found = watched.waiting(raw(there))
    assert found is not None
    with watched.query(Pods().decode(raw(there))) as (node_scorer, query):
        assert node_scorer is watched.node_scorer
        assert (found.class_id, found.labels_id) == (query.class_id, query.labels_id)
    meta, spec = there["metadata"], there["spec"]
    gpus = {"alibabacloud.com/gpu-count": "1"}
    for same in ({"resourceVersion": "8"}, {"annotations": {"a": "c"}}):
        assert watched.waiting(raw(there | {"metadata": meta | same})) is found
    for other in (
        *(there | {"metadata": meta | change} for change in ({"uid": "3"}, {"name": "new"}, {"generation": 2})),
        *(there | {"metadata": meta | change} for change in ({"labels": {"app": "x"}}, {"annotations": gpus})),
        there | {"spec": spec | {"nodeName": "large"}},
        {"metadata": {key: value for key, value in meta.items() if key != "uid"}, "spec": spec},
        {"spec": spec},
        {"metadata": 7},
        claims,
        old,
    ):
        assert watched.waiting(raw(other)) is None
    assert watched.waiting(msgspec.Raw(b'{"metadata":{"name":"\xff"}}')) is None
    cluster_cache.PodFeed(watched.cache).change("MODIFIED", raw(there | {"spec": spec | {"nodeName": "large"}}))
    assert watched.waiting(raw(there)) is None, "it is bound"


def test_names_follow_added_and_removed_nodes():
    watched = watched_cluster([node("a", "16"), node("b", "8")])
    feed = cluster_cache.NodeFeed(watched.cache)
    asked, both = Pod("p", PodClass(Requests(1000, 1 << 20))), NodeSet(["a", "b"])

    def chosen(nodes: NodeSet) -> str:
        with watched.query(asked) as (node_scorer, query):
            ranking = node_scorer.ask(query, nodes)
        return ranking.names[ranking.chosen] if ranking.chosen >= 0 else ""

    assert (chosen(both), chosen(watched.node_scorer.all_nodes)) == ("b", "b")
    for change, then, all_nodes in (
        (lambda: feed.change("DELETED", raw(node("b", "8"))), "a", "a"),
        (lambda: feed.change("ADDED", raw(node("c", "4"))), "a", "c"),  # where b was
        (lambda: feed.change("ADDED", raw(node("b", "2"))), "b", "b"),
        (lambda: feed.change("MODIFIED", raw(node("b", "32"))), "a", "c"),
        (lambda: listed(feed, [*(raw(node(f"n{i}", "64")) for i in range(40)), raw(node("b"))]), "b", "b"),
    ):
        change()
        assert (chosen(both), chosen(watched.node_scorer.all_nodes)) == (then, all_nodes)
    assert chosen(NodeSet(["gone", "a"])) == ""


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_part_of_a_node_list_scores_like_its_own_list(count, random):
    names = [f"n{i}" for i in range(count)]
    state = ClusterState([Node(name, 1000 * random.randint(1, 9), 1 << 30) for name in names])
    node_scorer = NodeScorer(Decider(ClusterView(state), resolve("best-fit")))
    c = state.class_id(PodClass(Requests(cpu_milli=2000, memory_bytes=1 << 20)))
    random.shuffle(names)
    names.insert(random.randrange(count + 1), "unknown")
    picked = sorted(random.sample(range(len(names)), random.randint(1, len(names))))
    mask = sum(1 << i for i in picked).to_bytes(-(-len(names) // 8), "little")
    whole, sets = NodeSet(names), NodeSets()
    part = NodeSubset(whole, mask)
    found, wanted = (node_scorer.ask(PodQuery(c), nodes) for nodes in (part, NodeSet([names[i] for i in picked])))
    assert (list(found.names), found.chosen, found.raw.tolist()) == (wanted.names, wanted.chosen, wanted.raw.tolist())
    assert not any(np.isfinite(score) for name, score in zip(found.names, found.raw, strict=True) if name == "unknown")
    assert sets.get(sets.keep(part)) is whole


# Over HTTP ------------------------------------------------------------------------------------------------------------


async def test_request_with_its_own_cluster_is_answered():
    async with asking() as (_, ask):
        question = {"pod": pod(), "cluster": CLUSTER}
        status, scores = await ask("/v1/scores", question)
        assert (status, scores["scores"], scores["neutral"]) == (200, [100, 0], "")  # the fullest that suffices
        assert scores["policy"] == "best-fit"
        assert scores["nodeSet"] == version_of(["small", "large"])
        status, found = await ask("/v1/suggestions", question)
        assert (status, found["node"], found["scores"]) == (200, "small", {"small": 100, "large": 0})
        status, found = await ask("/v1/suggestions", {"pod": pod(cpu="2"), "cluster": CLUSTER})
        assert (found["node"], found["scores"]) == ("large", {"large": 100})
        status, why = await ask("/v1/explain", {"pod": pod(cpu="2"), "cluster": CLUSTER})
        assert (status, why["node"], why["refused"], why["nodes"]) == (200, "large", {"Insufficient cpu": 1}, 2)
        status, why = await ask("/v1/explain", question)
        assert [each["node"] for each in why["runnersUp"]] == ["large"]
        assert [each["name"] for each in why["features"]] == ["best-fit"]
        status, found = await ask("/score", {"pod": pod(), "nodes": CLUSTER["nodes"]})
        assert (status, found) == (200, {"scores": {"small": 100, "large": 0}})
        status, found = await ask("/v1/suggestions", {"pod": pod(cpu="64"), "cluster": CLUSTER})
        assert (found["node"], found["scores"], found["neutral"]) == ("", {}, "")


async def test_extender_verbs_respond():
    async with asking() as (_, ask):
        nodes = {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": CLUSTER["nodes"]}
        args = {"Pod": pod(cpu="4"), "Nodes": nodes, "NodeNames": None}
        status, found = await ask("/filter", args)
        assert status == 200
        assert [each["metadata"]["name"] for each in found["Nodes"]["items"]] == ["large"]
        assert found["FailedNodes"] == {"small": "Insufficient cpu"}
        assert (found["Error"], found["NodeNames"]) == ("", None)
        status, found = await ask("/prioritize", {**args, "Pod": pod()})
        assert (status, found) == (200, [{"Host": "small", "Score": 10}, {"Host": "large", "Score": 0}])
        status, found = await ask("/prioritize", {"Pod": pod(), "NodeNames": ["small"]})
        assert (status, found["error"]) == (400, "no cluster is watched here; send one as cluster")


BAD: list[tuple[str, Any, int, str]] = [
    ("/v1/scores", b"{", 400, "Input data was truncated"),
    ("/v1/scores", b"[]", 400, "Expected `object`, got `array`"),
    ("/v1/scores", {"pod": pod(), "colour": 1}, 400, "unknown field `colour`"),
    ("/v1/scores", {}, 400, "missing required field `pod`"),
    ("/v1/scores", {"pod": pod()}, 400, "no cluster is watched here"),
    ("/v1/scores", {"pod": pod(), "nodeSet": "x", "nodes": ["a"]}, 400, "one of them"),
    ("/v1/scores", {"pod": pod(), "nodeSet": "x"}, 404, "nodeSet 'x' is not known here"),
    ("/v1/scores", {"pod": pod(), "nodes": []}, 400, "expected at least one"),
    ("/v1/scores", {"pod": pod(), "among": "AQ=="}, 400, "among: of which nodes?"),
    ("/v1/scores", {"pod": pod(), "cluster": CLUSTER, "among": "AQ=="}, 400, "all nodes are meant"),
    ("/v1/scores", {"pod": pod(), "nodes": ["a"], "among": "?"}, 400, "base64"),
    ("/v1/scores", {"pod": pod(), "nodes": ["a"], "among": "AQA="}, 400, "among: has 2 bytes; expected 1 for 1 nodes"),
    ("/v1/scores", {"pod": pod(), "nodes": ["a"], "among": "Ag=="}, 400, "lowest 1 bits"),
    ("/v1/scores", {"pod": pod(), "nodes": ["a"], "among": "AA=="}, 400, "one or more"),
    ("/v1/scores", {"pod": 7, "cluster": CLUSTER}, 400, "pod: must be a mapping of fields, not the number 7"),
    ("/v1/scores", {"pod": pod(), "cluster": {"nodes": []}}, 400, "nodes: expected at least one"),
    ("/v1/scores", {"pod": pod(), "cluster": {"nodes": [node("a"), node("a")]}}, 400, "not unique"),
    ("/v1/scores", {"pod": pod(cpu="lots"), "cluster": CLUSTER}, 400, "lots"),
    (
        "/v1/scores",
        {"pod": {"metadata": {"name": "x"}, "spec": {"containers": []}}, "cluster": CLUSTER},
        400,
        "containers",
    ),
    ("/v1/scores", {"pod": pod(), "cluster": {"nodes": [node("a", "?")]}}, 400, "nodes[0]"),
    ("/v1/scores", {"pod": pod(), "cluster": {**CLUSTER, "pods": [pod("x", where="mars")]}}, 400, "pods[0]"),
    ("/v1/explain", {"pod": pod(), "nodes": ["a"]}, 400, "an explanation is about all nodes"),
    ("/v1/explain", {"pod": pod(), "cluster": CLUSTER, "among": "AQ=="}, 400, "an explanation is about all nodes"),
    ("/score", {"pod": pod(), "nodes": [{}]}, 400, "nodes[0]"),
    ("/score", {"pod": pod(), "nodes": [node("a"), node("a")]}, 400, "'a' is there twice"),
    ("/filter", {"Pod": pod()}, 400, "Nodes or NodeNames"),
    ("/filter", {"Pod": pod(), "NodeNames": ["a"], "Nodes": {"items": []}}, 400, "Nodes or NodeNames"),
    ("/nothing", {}, 404, "/openapi.json lists"),
    ("/v1/scores", b"[" * 100_000, 400, ""),
]


async def test_invalid_request_is_rejected_in_one_line():
    async with asking() as (_, ask):
        for path, body, status, said in BAD:
            found, answer = await ask(path, body)
            assert (found, said in answer["error"]) == (status, True), (path, body, answer)
            assert "\n" not in answer["error"]


async def test_request_size_and_method_are_limited():
    async with asking(max_body_bytes=4096) as (_, ask):
        status, answer = await ask("/v1/scores", b" " * 5000)
        assert (status, answer["error"]) == (413, "the body is larger than 4096 bytes (maxBodyBytes)")
        status, answer = await ask("/v1/scores", method="GET")
        assert (status, answer["error"]) == (405, "the method is not allowed here; expected POST")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def spoiled(data: st.DataObject, value: Any) -> Any:
    """A value with one part of it replaced by anything."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: spoiled(data, value[key])}
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        i = data.draw(st.integers(0, len(value) - 1))
        return [*value[:i], spoiled(data, value[i]), *value[i + 1 :]]
    return data.draw(anything)


QUESTIONS = {
    "/v1/scores": {"pod": pod(), "cluster": CLUSTER},
    "/v1/suggestions": {"pod": pod(), "cluster": CLUSTER},
    "/v1/explain": {"pod": pod(), "cluster": CLUSTER},
    "/score": {"pod": pod(), "nodes": CLUSTER["nodes"]},
    "/filter": {"Pod": pod(), "Nodes": {"items": CLUSTER["nodes"]}},
    "/prioritize": {"Pod": pod(), "Nodes": {"items": CLUSTER["nodes"]}},
}


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_request_body_crashes_the_service(data):
    bodies = [(path, spoiled(data, body)) for path, body in QUESTIONS.items() for _ in range(5)]

    async def story() -> None:
        async with asking() as (_, ask):
            for path, body in bodies:
                status, answer = await ask(path, body)
                assert status in (200, 400, 404), (path, body, answer)
                assert status == 200 or (set(answer) == {"error"} and "\n" not in answer["error"])

    asyncio.run(story())


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_decoding_does_not_depend_on_earlier_pods(data):
    def decoded(decode: Callable[[], Pod]) -> Pod | str:
        try:
            return decode()
        except (InvalidRequestError, msgspec.DecodeError) as error:  # the latter: Infinity
            return str(error)

    pods, plain = Pods(), pod("first", app="web")
    plain["metadata"] |= {"uid": "1", "annotations": {"alibabacloud.com/gpu-count": "1"}}
    plain["spec"] |= {"volumes": [{"name": "token-1"}], "nodeSelector": {"disk": "ssd"}}
    pods.decode(raw(plain))
    other = spoiled(data, plain | {"metadata": plain["metadata"] | {"name": "second", "uid": "2"}})
    body = json.dumps(other).encode()
    expected = decoded(lambda: Pods().decode(msgspec.Raw(body)))
    for _ in range(2):
        assert decoded(lambda: pods.decode(msgspec.Raw(body))) == expected


def test_replicas_are_decoded_once(monkeypatch):
    pods, decoded = Pods(), []
    monkeypatch.setattr(opinions_module, "decode_pod", lambda content: decoded.append(content) or real(content))
    for i in range(1500):
        replica = pod(f"web-{i}")
        replica["metadata"] |= {"uid": str(i), "managedFields": [i]}
        replica["spec"]["containers"][0]["volumeMounts"] = [{"name": f"token-{i}"}]
        assert pods.decode(raw(replica)).name == f"web-{i}"
    assert len(decoded) == 1
    for i in range(1500):
        pods.decode(raw(pod("web", cpu=f"{i + 1}m")))
    assert len(decoded) == 1501
    for i in range(1500 - opinions_module.PODS_KEPT, 1500):
        pods.decode(raw(pod("web", cpu=f"{i + 1}m")))
    assert len(decoded) == 1501, "the last ones are kept"
    pods.decode(raw(pod("web", cpu=f"{1500 - opinions_module.PODS_KEPT}m")))
    assert len(decoded) == 1502
    large = pod("large", app="x" * opinions_module.LARGEST_POD)
    for _ in range(2):
        pods.decode(raw(large))
    assert len(decoded) == 1504, "what is large is not kept"


# Who is scored --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "changes"), [(limits.SHADOW, {"shadow": True}), (limits.DEADLINE, {"deadline_milliseconds": 0.0})]
)
async def test_a_shadow_and_a_late_answer_are_neutral(reason, changes):
    async with asking(**changes) as (_, ask):
        question = {"pod": pod(), "cluster": CLUSTER}
        status, scores = await ask("/v1/scores", question)
        assert (status, scores["scores"], scores["neutral"]) == (200, [NEUTRAL, NEUTRAL], reason)
        status, found = await ask("/filter", {"Pod": pod(cpu="4"), "Nodes": {"items": CLUSTER["nodes"]}})
        assert len(found["Nodes"]["items"]) == 2, "nothing is refused, either"
        _, text = await ask("/metrics", method="GET")
        assert f'steersman_service_neutral_total{{reason="{reason}"}} 2.0' in text


async def test_requests_need_the_token_but_probes_do_not(tmp_path):
    (tmp_path / "token").write_text("sesame\n")
    async with asking(token_file=str(tmp_path / "token")) as (_, ask):
        question = {"pod": pod(), "cluster": CLUSTER}
        for headers in ({}, {"Authorization": "Bearer salt"}, {"Authorization": "sesame"}):
            status, answer = await ask("/v1/scores", question, headers=headers)
            assert (status, answer) == (401, {"error": "a bearer token is needed"})
        status, _ = await ask("/v1/scores", question, headers={"Authorization": "Bearer sesame"})
        assert status == 200
        assert (await ask("/openapi.json", method="GET"))[0] == 401
        assert [(await ask(path, method="GET"))[0] for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


async def test_openapi_document_is_valid():
    async with asking() as (_, ask):
        status, document = await ask("/openapi.json", method="GET")
        assert (status, document["openapi"]) == (200, "3.1.0")
        assert set(QUESTIONS) < set(document["paths"])
        assert document["components"]["schemas"]["ScoreInputs"]["additionalProperties"] is False
        for path, methods in document["paths"].items():
            if "post" in methods:
                example = methods["post"]["requestBody"]["content"]["application/json"]["example"]
                assert (await ask(path, example))[0] == 200, path


# Configuration --------------------------------------------------------------------------------------------------------

HEAD = "apiVersion: steersman.dev/v1alpha1\nkind: ScoreServiceConfiguration\n"


def test_configuration_is_read(tmp_path):
    file = tmp_path / "service.yaml"
    file.write_text(
        HEAD + "policy: fgd\nport: 0\nshadow: true\ndeadlineMilliseconds: 20\n"
        "allowSentClusters: true\nunchecked: true\n"
        "tls: {certificate: c.pem, key: k.pem, clientCa: ca.pem}\n"
    )
    assert read_config(file) == ServiceConfig(
        policy="fgd",
        port=0,
        shadow=True,
        deadline_milliseconds=20.0,
        allow_sent_clusters=True,
        unchecked=True,
        tls=Tls(certificate="c.pem", key="k.pem", client_ca="ca.pem"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a mapping"),
        ("kind: X", "apiVersion"),
        (HEAD + "colour: red", "unknown field `colour`"),
        (HEAD + "port: many", "port: Expected `int`"),
        (HEAD + "port: 70000", "port: is 70000; expected 0 to 65535"),
        (HEAD + "staleSeconds: 0", "staleSeconds: is 0; expected 0.1 to 86400"),
        (HEAD + "{", "is not YAML"),
    ],
)
def test_a_wrong_configuration_fails_in_one_line(tmp_path, text, said):
    file = tmp_path / "service.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=str(file)) as error:
        read_config(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_that_plans_needs_a_cluster_or_to_be_prepared():
    with raises(SteersmanError):
        Service(ServiceConfig(policy="steersman"), None)
    assert PolicyManager(PolicyReloader("fgd")).policy.name == "fgd"


def test_pods_that_differ_in_an_exclusive_volume_are_not_taken_for_replicas():
    pods = Pods()
    for monitor in ("a", "b"):
        disk = {"name": "data", "rbd": {"monitors": [monitor], "image": "disk"}}
        content = pod("one", app="web")
        content["spec"]["volumes"] = [{"name": f"token-{monitor}", "projected": {}}, disk]
        (volume,) = pods.decode(raw(content)).constraints.exclusive_volumes
        assert volume.kind == "rbd"
        assert monitor in str(volume)


async def test_state_that_was_never_listed_is_infinitely_old() -> None:
    service = Service(ServiceConfig(policy="fgd"), unreachable())
    # An alert compares it with seconds.
    assert "steersman_service_state_age_seconds +Inf" in generate_latest(service.metrics.registry).decode()
