"""What is asked of Prometheus, what its answers are taken for, and what happens when they are nonsense."""

import asyncio
import math
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.objects import node_from_object
from tests.support.servers.fake_api_server import KubeDouble
from tests.support.servers.fake_prometheus import (
    CPU,
    LATENCY,
    OFF,
    ONE,
    Answer,
    Json,
    Prometheus,
    answering,
    ask,
    collector,
    known,
    vector,
)
from tests.unit.policies.node_metrics.test_telemetry_live import SMALL, cluster

from steersman.cli.commands.schedule import _run as follow_shadow
from steersman.cluster.model import Node
from steersman.cluster.objects.manifests import node_to_object
from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import InputError
from steersman.kubernetes.cache.cluster_cache import NODES_PATH, PODS_PATH
from steersman.kubernetes.client import Client
from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.runtime.policy_manager import PolicyManager
from steersman.live.scheduler.shadow import Shadow
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve
from steersman.prometheus.client import PrometheusError
from steersman.prometheus.collector import NodeNames, TelemetryCollector, TelemetryMetrics, addresses_of
from steersman.prometheus.configuration import Configuration, NodeMapping, configuration, read_configuration

EXAMPLE = Path(__file__).parents[3] / "deploy" / "prometheus" / "telemetry.yaml"


def test_example_configuration_equals_the_defaults() -> None:
    example = read_configuration(EXAMPLE)
    plain = configuration(
        {
            "prometheus": {"url": example.prometheus.url},
            "features": {LATENCY: {"maxAgeSeconds": example.features[LATENCY].max_age_seconds}},
        }
    )
    assert example == plain
    assert configuration({}) == Configuration()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "file.yaml: is not a mapping"),
        ("kind: Other", "file.yaml, apiVersion: expected steersman.dev/v1alpha1"),
        ("a: [", "file.yaml: is not YAML"),
        ("colour: red", "file.yaml, file: Object contains unknown field `colour`"),
        ("prometheus: {url: 'http://me:secret@host'}", "prometheus.url: is not an address; expected one such as"),
        (
            "prometheus: {url: prometheus:9090}",
            "file.yaml, prometheus.url: is not an address; expected one such as http://",
        ),
        (
            "features: {cpu: {}}",
            "file.yaml, features.cpu: is unknown; expected cpu_used_percent,",
        ),
        ("features: {tcp_connections: {query: x}}", "features.tcp_connections.sampledAt: is missing; a query needs"),
        ("features: {tcp_connections: {whenStale: x}}", "features.tcp_connections.whenStale: Invalid enum value 'x'"),
        ("features: {tcp_connections: {userLabel: x}}", "features.tcp_connections.userLabel: is for latency_mill"),
        ("features: {tcp_connections: {maxAgeSeconds: -1}}", "maxAgeSeconds: is -1; expected 0 to 86400"),
        ("nodes: {pattern: (}", "file.yaml, nodes.pattern: is not a regular expression"),
        ("nodes: {pattern: a}", "file.yaml, nodes.pattern: has no group; expected one that names the node"),
        ("refreshSeconds: 0", "file.yaml, refreshSeconds: is 0; expected 0.1 to 3600"),
    ],
)
def test_invalid_configuration_is_reported(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "file.yaml"
    head = "apiVersion: steersman.dev/v1alpha1\nkind: TelemetryConfiguration\n"
    file.write_text(content if not content or "kind" in content or "[" in content else head + content)
    with pytest.raises(InputError) as caught:
        read_configuration(file)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


NEVER = (math.nan, math.inf)


def test_value_age_is_the_age_of_its_sample() -> None:
    n0, n1 = {"instance": "n0:9100"}, {"instance": "n1:9100"}
    values = vector((n0, 5000.0, 7), (n1, 5000.0, 8))
    found = asyncio.run(ask(answering(values, vector((n0, 5000.0, 4960.0), (n1, 5000.0, 1400.0)))))
    assert known(found) == [(7, 40), (8, 3600)]
    assert found.rounds == {"complete": 1}


def test_value_without_sample_time_is_not_fresh() -> None:
    n0, n1 = {"instance": "n0"}, {"instance": "n1"}
    values, times = vector((n0, 5000.0, 7), (n1, 5000.0, 8)), vector((n1, 5000.0, 4999.0))
    np.testing.assert_equal(known(asyncio.run(ask(answering(values, times)))), [NEVER, (8, 1)])


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_non_numeric_values_are_dropped(value: str) -> None:
    n0 = {"instance": "n0"}
    found = asyncio.run(ask(answering(vector((n0, 10.0, value)), vector((n0, 10.0, 9.0)))))
    np.testing.assert_equal(known(found), [NEVER, NEVER])
    assert found.store.dropped == {"not finite": 1}


@pytest.mark.parametrize(
    ("nodes", "label", "node"),
    [
        ({}, "n0:9100", "n0"),
        ({}, "n0", "n0"),
        ({"pattern": r"ip-(.*)\.internal"}, "ip-n0.internal", "n0"),
        ({"pattern": r"ip-(.*)\.internal"}, "ip-n0.internal.org", ""),
        ({"names": {"10.0.0.1": "n0"}}, "10.0.0.1:9100", "n0"),
        ({"names": {"[::1]": "n0"}}, "[::1]:9100", "n0"),
        ({"label": "node"}, "n0:9100", "n0"),
        ({}, "other:9100", ""),
    ],
)
def test_series_map_to_nodes_by_the_configured_label(nodes: Json, label: str, node: str) -> None:
    labels = {nodes.get("label", "instance"): label, "job": "x"}
    answer = answering(vector((labels, 10.0, 7)), vector((labels, 10.0, 10.0)))
    found = asyncio.run(ask(answer, nodes=("n0", "n1"))) if not nodes else asyncio.run(_ask_with(answer, nodes))
    np.testing.assert_equal(known(found), [(7, 0) if node else NEVER, NEVER])
    assert found.store.dropped == ({} if node else {"unknown node": 1})


async def _ask_with(answer: Answer, nodes: Json) -> TelemetryCollector:
    async with Prometheus() as server:
        server.answer = answer
        made = TelemetryCollector(
            configuration({"prometheus": {"url": server.url}, "features": OFF | ONE, "nodes": nodes}),
            lambda: dict.fromkeys(("n0", "n1"), ()),
            clock=lambda: 1000.0,
        )
        async with made._client:
            await made.refresh()
    return made


NODES = (
    Node("n0", 1, 1, addresses=("10.0.0.1", "203.0.113.7", "fd00::1", "n0.rack.example.com")),
    Node("n1", 1, 1, addresses=("10.0.0.2", "10.0.0.3"), labels={"kubernetes.io/hostname": "Machine-1"}),
    Node("ip-10-0-0-9.ec2.internal", 1, 1, addresses=("10.0.0.3",)),
    Node("twin.a", 1, 1),
    Node("twin.b", 1, 1),
)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("n0:9100", "n0"),
        ("10.0.0.1:9100", "n0"),
        ("203.0.113.7", "n0"),
        ("[fd00::1]:9100", "n0"),
        ("[FD00:0:0::1]:9100", "n0"),
        ("fd00::1", "n0"),
        ("[::ffff:10.0.0.2]:9100", "n1"),
        ("n0.rack.example.com:9100", "n0"),
        ("N0.Rack.Example.com.:9100", "n0"),
        ("n0.other.example.com", "n0"),
        ("machine-1:9100", "n1"),
        ("ip-10-0-0-9", "ip-10-0-0-9.ec2.internal"),
        ("ip-10-0-0-9.ec2.internal:9100", "ip-10-0-0-9.ec2.internal"),
        ("twin.a", "twin.a"),
        ("twin", ""),
        ("10.0.0.3:9100", ""),
        ("10.0.0.10:9100", ""),
        ("other.n0", ""),
        ("", ""),
    ],
)
def test_nodes_are_found_by_names_addresses_and_host_names(text: str, node: str) -> None:
    assert NodeNames(NodeMapping(), addresses_of(NODES)).find(text) == node


def test_addresses_of_a_node_object_are_read() -> None:
    addresses = [{"type": "Hostname", "address": "n0"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    content = {
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"cpu": "1", "memory": "1"}, "addresses": addresses},
    }
    node = node_from_object(content)
    assert node.addresses == ("10.0.0.1",)
    assert node_from_object(node_to_object(node)) == node


def test_two_series_of_a_node_are_an_error_that_names_both() -> None:
    one, other = {"instance": "n0:9100", "job": "a"}, {"instance": "n0:9100", "job": "b"}
    values = vector((one, 10.0, 7), (other, 10.0, 9), ({"instance": "n1"}, 10.0, 1))
    answer = answering(values, vector((one, 10.0, 10.0), (other, 10.0, 9.0), ({"instance": "n1"}, 10.0, 9.0)))
    found = asyncio.run(ask(answer))
    np.testing.assert_equal(known(found), [NEVER, NEVER])
    (problem,) = found._failing.values()
    assert '{instance="n0:9100", job="a"} and {instance="n0:9100", job="b"}' in problem
    assert "two series are of node n0" in problem

    async def once() -> None:
        async with Prometheus() as server:
            server.answer = answer
            await collector(server).query_once()

    with pytest.raises(PrometheusError, match="two series are of node n0"):
        asyncio.run(once())


def test_the_field_that_says_which_node_a_series_is_of_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"host": "other", "instance": "other"}
    answer = answering(vector((labels, 10.0, 7)), vector((labels, 10.0, 10.0)))
    for override, named in (({}, "nodes.label,"), ({"nodeLabel": "host"}, f"features.{next(iter(ONE))}.nodeLabel,")):
        asyncio.run(ask(answer, features=OFF | {name: {**feature, **override} for name, feature in ONE.items()}))
        assert named in capsys.readouterr().out


DEEP = b"[" * 3000 + b"]" * 3000


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (200, b"", "does not answer as Prometheus does (HTTP 200)"),
        (200, b"<html>", "does not answer as Prometheus does"),
        (200, b"\xff\xfe", "does not answer as Prometheus does"),
        (200, {"status": "success"}, "failed (HTTP 200)"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}, "does not answer"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [1]}}, "does not answer"),
        (200, vector(({}, 1.0, "x")), "does not answer"),
        (
            200,
            {"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}},
            "scalar; expected an inst",
        ),
        (400, {"status": "error", "error": "bad\n\u001b[31mquery"}, ": bad [31mquery (HTTP 400)"),
        (503, b"upstream", "does not answer as Prometheus does (HTTP 503)"),
        (302, b"", "does not answer as Prometheus does (HTTP 302)"),
        (200, b" " * 5000, "the answer is larger than 4096 bytes"),
        (200, b'{"status":' + DEEP[:2000] + b"}", "does not answer as Prometheus does"),
    ],
)
def test_invalid_response_is_one_line_and_changes_nothing(status: int, content: object, said: str) -> None:
    found = asyncio.run(ask(lambda _: (status, content)))
    (problem,) = found._failing.values()
    assert said in problem
    assert problem.isprintable()
    np.testing.assert_equal(known(found), [NEVER, NEVER])
    assert found.rounds == {"failed": 1}


def test_prometheus_outage_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    n0 = {"instance": "n0"}

    async def story() -> None:
        async with Prometheus() as server:
            server.answer = answering(vector((n0, 10.0, 7)), vector((n0, 10.0, 10.0)))
            made = collector(server)
            async with made._client:
                await made.refresh()
                server.hangs = True
                for _ in range(2):
                    await made.refresh()
                    assert "no answer within 0.2 s" in made.problem
                server.hangs = False
                made.clock = lambda: 1000.4
                assert known(made)[0] == (7, 0.4)
                await made.refresh()
                assert (known(made)[0], made.problem) == ((7, 0), "")
        async with made._client:  # and now there is nobody
            await made.refresh()
            assert "cannot be reached: " in made.problem
        assert made.rounds == {"complete": 2, "failed": 3}

    asyncio.run(story())
    told = capsys.readouterr().out
    assert told.count("Prometheus cannot be asked") == 2
    assert told.count("Prometheus answers again") == 1


def test_failing_query_does_not_affect_others() -> None:
    n0 = {"instance": "n0"}
    good, features = vector((n0, 10.0, 7)), OFF | ONE | {CPU: {"query": "broken", "sampledAt": "time"}}

    def answer(query: str) -> tuple[int, object]:
        return (400, {"status": "error", "error": "no"}) if query == "broken" else (200, good)

    found = asyncio.run(ask(answer, features=features))
    assert known(found)[0][0] == 7
    assert found.rounds == {"partial": 1}
    assert list(found._failing) == [CPU]


def test_answered_query_counts_while_others_are_pending() -> None:
    """What /metrics call fresh is what the next pod is decided by."""
    state, features = cluster(2), OFF | ONE | {CPU: {"query": "slow", "sampledAt": "slow"}}
    answered = vector(*(({"instance": f"n{i}"}, 10.0, 9 - 5 * i) for i in range(2)))

    async def story() -> None:
        async with Prometheus() as server:
            server.answer = answering(answered, vector(*(({"instance": f"n{i}"}, 10.0, 10.0) for i in range(2))))
            made = collector(server, features=features, prometheus={"timeoutSeconds": 30})
            decider, pod = Decider(ClusterView(state, telemetry=made), resolve("lc")), PodQuery(state.class_id(SMALL))
            first = decider.choose(pod)
            async with made._client:
                server.slow.add("slow")
                under_way = asyncio.create_task(made.refresh())
                while math.isnan(known(made)[0][0]) and not under_way.done():
                    await asyncio.sleep(0.01)
                choice = decider.choose(pod)
                assert not under_way.done()
                under_way.cancel()
            assert first is not None
            assert choice is not None
            assert (first.slot, choice.slot) == (0, 1)

    asyncio.run(story())


def test_token_is_read_again_for_every_query(tmp_path: Path) -> None:
    file = tmp_path / "token"

    async def story() -> None:
        async with Prometheus() as server:
            made = collector(server, prometheus={"tokenFile": str(file)})
            async with made._client:
                await made.refresh()
                assert "token cannot be read: No such file" in made.problem
                for token in ("one", "two"):
                    file.write_text(f"{token}\n")
                    await made.refresh()
                    assert server.headers[-1] == f"Bearer {token}"

    asyncio.run(story())


def test_metrics_export_ages_and_missing_values() -> None:
    n0, n1 = {"instance": "n0"}, {"instance": "n1"}
    values, times = vector((n0, 1000.0, 7), (n1, 1000.0, 8)), vector((n0, 1000.0, 990.0), (n1, 1000.0, 500.0))
    nodes = ("n0", "n1", "n2")
    made = asyncio.run(ask(answering(values, times), nodes))
    made.limits["not measured"] = 3
    registry = CollectorRegistry()
    registry.register(TelemetryMetrics(made, lambda: nodes))
    text = generate_latest(registry).decode()
    assert re.search(r'steersman_telemetry_age_seconds{feature="tcp_connections"} 500\.', text)
    for state in ("fresh", "stale", "missing"):
        assert f'steersman_telemetry_nodes{{feature="tcp_connections",state="{state}"}} 1.0' in text
    assert 'steersman_telemetry_rounds_total{result="complete"} 1.0' in text
    assert 'steersman_latency_limits_total{outcome="not_measured"} 3.0' in text
    assert CPU not in text


def test_a_shadow_decides_by_telemetry() -> None:
    def connections(*counts: int) -> Json:
        return vector(*(({"instance": f"n{i}"}, 10.0, count) for i, count in enumerate(counts)))

    async def story() -> None:
        async with KubeDouble() as api, Prometheus() as server, Client(api.config()) as client:
            server.answer = answering(connections(9, 2, 9), connections(10, 10, 10))
            for i in range(3):
                room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
                api.put(NODES_PATH, {"metadata": {"name": f"n{i}"}, "status": {"allocatable": room}})
            policy_manager = PolicyManager(PolicyReloader("lc"))
            shadow = Shadow(client, policy_manager.decider, "other")
            policy_manager.telemetry = TelemetryCollector(
                configuration({"prometheus": {"url": server.url}, "features": OFF | ONE}),
                lambda: dict.fromkeys(shadow.actual.cache.state.slots, ()),
            )
            running = asyncio.create_task(follow_shadow(shadow, policy_manager))
            while not policy_manager.telemetry.store.version or shadow.actual.decider is None:
                await asyncio.sleep(0.01)
            for i in (0, 1):
                spec = {"schedulerName": "other", "nodeName": f"n{i}", "containers": [{"name": "main"}]}
                metadata = {"name": f"p{i}", "namespace": "default", "uid": str(i)}
                api.put(PODS_PATH, {"metadata": metadata, "spec": spec})
            while shadow.tally.decisions < 2:
                await asyncio.sleep(0.01)
            assert shadow.tally.agreed == 1  # n1 has the fewest connections
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
