"""From node-exporter over Prometheus to the choice of a node, with Debian's programs and a real control plane."""

import asyncio
import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.e2e.conftest import NODES, STEERSMAN, LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, bound, create, events, pod, pods, scheduling
from tests.e2e.service.test_service import ask
from tests.e2e.telemetry.prometheus import Node, Telemetry, free_port, telemetry

from steersman.policies.features import POD_KINDS, TELEMETRY
from steersman.policies.policy_file import Card, write_policy
from steersman.prometheus.collector import TelemetryCollector
from steersman.prometheus.configuration import DEFAULT_FEATURES, FEATURES, configuration

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[3] / "deploy"
SOFT, HARD = 35, 100
CPU_QUERY = DEFAULT_FEATURES["cpu_used_percent"].query
LIMITS = {"latencySoftConstraint": str(SOFT), "latencyHardConstraint": str(HARD)}
STALE_SECONDS = 10


@pytest.fixture(scope="module")
def names(control_plane: LocalCluster) -> list[str]:
    return control_plane.node_names()


@pytest.fixture(scope="module")
def measured(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telemetry]:
    """Telemetry of the cluster's nodes. The first three are near the users."""
    nodes = {name: Node(latency={"rome": 20.0 if i < 3 else 150.0}) for i, name in enumerate(names)}
    with telemetry(tmp_path_factory.mktemp("telemetry") / "here", nodes) as made:
        yield made


def written(measured: Telemetry, folder: Path, **changes: object) -> Path:
    file = folder / "telemetry.yaml"
    file.write_text(measured.configuration(maxAgeSeconds=STALE_SECONDS, **changes))
    return file


def figure(running: Running, name: str, **labels: str) -> float:
    """A metric of the scheduler, 0 where there is none."""
    wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
    lines = (line.rpartition(" ") for line in running.get("metrics").splitlines())
    return next((float(value) for key, _, value in lines if key == wanted), 0.0)


def fresh(running: Running, feature: str, count: int = NODES) -> bool:
    return figure(running, "steersman_telemetry_nodes", feature=feature, state="fresh") == count


def settled(measured: Telemetry, query: str, wanted: dict[str, float], within: float, *everyone: Running) -> None:
    """Wait until Prometheus says so of nodes, and each of the programs has asked it since."""

    def said() -> bool:
        found = measured.ask(query)
        return all(abs(found.get(node, -1e9) - value) <= within for node, value in wanted.items())

    def rounds(running: Running) -> float:
        return figure(running, "steersman_telemetry_rounds_total", result="complete")

    until(said)
    goals = [(running, rounds(running) + 2) for running in everyone]
    until(lambda: all(rounds(running) >= goal for running, goal in goals))


@contextmanager
def serving(cluster: LocalCluster, folder: Path, *arguments: str) -> Iterator[Running]:
    """Run `steersman serve`; yields when it watches the cluster."""
    log = folder / f"{len(list(folder.iterdir()))}.log"
    command = [STEERSMAN, "serve", "--name", cluster.name, "--port", "0", "--deadline", "10000", *arguments]
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=cluster.environment, stdout=stream, stderr=stream)
    running = Running(process, log)
    try:
        until(lambda: running.said("watching") or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        process.terminate()
        assert process.wait(30) == 143, log.read_text()


def endpoint(running: Running) -> str:
    """The address of a service."""
    return f"http://127.0.0.1:{next(line['port'] for line in running.log() if line['event'] == 'listening')}"


def cpu(measured: Telemetry) -> dict[str, float]:
    return {name: 100 * node.cpu for name, node in measured.nodes.items()}


def place(cluster: LocalCluster, name: str, annotations: dict[str, str] | None = None) -> str:
    """Create a pod; the node that it is bound to."""
    create(cluster, pod(name, "500m", annotations))
    until(lambda: name in bound(cluster))
    return bound(cluster)[name]


@pytest.mark.parametrize("policy", ["ma", "la", "lc"])
def test_objectives_follow_measurements(
    policy: str, cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        measured.nodes[name].cpu = 0.5 if i == 4 else 0.02 if i == 5 else 0.2
        measured.nodes[name].connections = 5 if i == 6 else 200
    wanted = {"ma": names[4], "la": names[5], "lc": names[6]}[policy]
    file = written(measured, tmp_path)
    with scheduling(cluster, tmp_path, "--policy", policy, "--telemetry", str(file)) as running:
        until(lambda: fresh(running, "cpu_used_percent") and fresh(running, "tcp_connections"))
        settled(measured, CPU_QUERY, cpu(measured), 5, running)
        assert place(cluster, "first") == wanted
        if policy == "ma":
            measured.nodes[names[7]].cpu = 0.7
            settled(measured, CPU_QUERY, cpu(measured), 5, running)
            assert place(cluster, "second") == wanted  # a node in use, so that the others stay empty


def test_hard_limit_is_kept_while_latencies_are_known(
    cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    near, far = set(names[:3]), names[9]
    for i in range(2):  # best-fit would rather fill this node up
        create(cluster, pod(f"there-{i}", "8", nodeName=far))
    file = written(measured, tmp_path)
    with scheduling(cluster, tmp_path, "--policy", "best-fit", "--telemetry", str(file)) as running:
        until(lambda: fresh(running, "latency_milliseconds"))
        assert place(cluster, "free") == far
        assert place(cluster, "odd", {"latencyHardConstraint": "soon"}) == far
        until(lambda: "odd" in events(cluster, "LatencyLimitIgnored"))
        assert events(cluster, "LatencyLimitIgnored")["odd"].startswith(
            "annotation latencyHardConstraint: 'soon' is not a number of milliseconds above 0"
        )
        create(cluster, *(pod(f"limited-{i}", "500m", LIMITS) for i in range(10)))
        until(lambda: sum(name.startswith("limited") for name in bound(cluster)) == 10)
        assert {node for name, node in bound(cluster).items() if name.startswith("limited")} <= near
        outcome = "steersman_latency_limits_total"
        assert figure(running, outcome, outcome="kept_safely") >= 10  # a pod whose binding failed is decided anew

        measured.kill()
        assert place(cluster, "early", LIMITS) in near  # what is known is not stale yet
        until(lambda: fresh(running, "latency_milliseconds", 0))
        assert figure(running, "steersman_telemetry_age_seconds", feature="latency_milliseconds") > STALE_SECONDS
        assert place(cluster, "blind", LIMITS) == far
        assert figure(running, outcome, outcome="not_measured") == 1
        assert running.get("readyz").endswith("readyz check passed\n")

        measured.start()
        latency = {name: node.latency["rome"] for name, node in measured.nodes.items()}
        settled(measured, "steersman_probe_latency_milliseconds", latency, 0, running)
        until(lambda: fresh(running, "latency_milliseconds"))
        assert place(cluster, "again", LIMITS) in near, running.get("metrics")
        told = [line["event"] for line in running.log()]
        assert told.count("Prometheus cannot be asked; what is known grows old") == 1
        assert told.count("Prometheus answers again") == 1
        assert not [name for name, each in pods(cluster).items() if not each["spec"].get("nodeName")]


def test_p0_fills_near_nodes_first(
    cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        measured.nodes[name].cpu = 0.6 if i == 9 else 0.3 if i == 1 else 0.1
    file = written(measured, tmp_path)
    with scheduling(cluster, tmp_path, "--policy", "p0", "--telemetry", str(file)) as running:
        until(lambda: fresh(running, "latency_milliseconds") and fresh(running, "cpu_used_percent"))
        settled(measured, CPU_QUERY, cpu(measured), 5, running)
        create(cluster, *(pod(f"limited-{i}", "500m", LIMITS) for i in range(8)))
        until(lambda: len(bound(cluster)) == 8)
        assert set(bound(cluster).values()) == {names[1]}  # the fullest of those within the soft limit, and no other
        measured.nodes[names[0]].there = False
        for name in names:
            measured.nodes[name].latency["rome"] = 150.0 if name != names[0] else 20.0
        until(lambda: fresh(running, "latency_milliseconds", NODES - 1), 30)
        assert place(cluster, "beyond", LIMITS) in names  # nobody is known to keep it: it is placed all the same
        assert figure(running, "steersman_latency_limits_total", outcome="kept_by_no_node") >= 1


def test_stale_values_follow_the_configuration(
    cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        measured.nodes[name].there = True
        measured.nodes[name].connections = 5 if i == 2 else 50 + i
    file = written(measured, tmp_path, features={"tcp_connections": {"whenStale": "last"}})
    with scheduling(cluster, tmp_path, "--policy", "lc", "--telemetry", str(file)) as running:
        until(lambda: fresh(running, "tcp_connections"))
        connections = {name: node.connections for name, node in measured.nodes.items()}
        settled(measured, "node_netstat_Tcp_CurrEstab", connections, 0, running)
        measured.nodes[names[2]].there = False
        until(lambda: fresh(running, "tcp_connections", NODES - 1))
        assert place(cluster, "last") == names[2]
    file = written(measured, tmp_path, features={"tcp_connections": {"whenStale": "impute"}})
    with scheduling(cluster, tmp_path, "--policy", "lc", "--telemetry", str(file)) as running:
        until(lambda: fresh(running, "tcp_connections", NODES - 1))
        assert place(cluster, "imputed") == names[0]
    measured.nodes[names[2]].there = True


def test_service_scores_by_the_objective(
    cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        measured.nodes[name].connections = 5 if i == 8 else 100
        measured.nodes[name].latency["rome"] = 150.0 if i == 8 else 20.0
    with serving(cluster, tmp_path, "--policy", "lc", "--telemetry", str(written(measured, tmp_path))) as running:
        until(lambda: fresh(running, "tcp_connections") and fresh(running, "latency_milliseconds"))
        until(lambda: ask(running, "/v1/suggestions", {"pod": pod("free")})["node"] == names[8])
        limited = ask(running, "/v1/suggestions", {"pod": pod("limited", annotations=LIMITS)})
        assert limited["node"] != names[8]
        why = ask(running, "/v1/explain", {"pod": pod("free")})
        assert (why["node"], why["features"][0]["name"]) == (names[8], "tcp_connections")


def idlest(file: Path) -> Path:
    """Write a policy that prefers nodes whose CPU is used least, as measured; a linear network."""
    weights = np.zeros((POD_KINDS, len(TELEMETRY.node) + len(TELEMETRY.pod) + len(TELEMETRY.context)), dtype=np.float32)
    weights[:, TELEMETRY.node_column("cpu_used")] = -1.0
    card = Card(
        name="idlest",
        view=TELEMETRY.name,
        view_version=TELEMETRY.version,
        network="linear",
        objective="least-allocated",
        algorithm="by hand",
    )
    write_policy(file, card, {"head.weight": weights, "head.bias": np.zeros(POD_KINDS, dtype=np.float32)})
    return file


def test_a_learned_policy_decides_by_what_is_measured(
    cluster: LocalCluster, measured: Telemetry, names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        measured.nodes[name].cpu = 0.02 if i == 5 else 0.3 + 0.01 * i
        measured.nodes[name].latency["rome"] = 150.0 if i == 5 else 20.0
    policy, file = idlest(tmp_path / "idlest.safetensors"), written(measured, tmp_path)
    for command in (("schedule",), ("serve", "--port", "0"), ("explain", "--pod", "any")):
        refused = cluster.steersman(*command, "--name", cluster.name, "--policy", str(policy))
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.splitlines()[-1].endswith("give --telemetry FILE with their queries")
    options = ("--policy", str(policy), "--telemetry", str(file))
    with scheduling(cluster, tmp_path, *options) as running:
        until(lambda: fresh(running, "latency_milliseconds") and fresh(running, "cpu_used_percent"))
        settled(measured, CPU_QUERY, cpu(measured), 5, running)
        assert place(cluster, "free") == names[5]
        assert place(cluster, "limited", LIMITS) == names[0]  # the idlest of those that keep the limit
        explained = cluster.must(
            "explain", "--name", cluster.name, *options, "--pod", "default/free", "--format", "json"
        )
        assert json.loads(explained)["node"] == names[5]
        assert json.loads(explained)["features"][0]["name"] == "cpu_used"
    with serving(cluster, tmp_path, *options) as running:
        until(lambda: fresh(running, "latency_milliseconds") and fresh(running, "cpu_used_percent"))
        until(lambda: ask(running, "/v1/suggestions", {"pod": pod("other")})["node"] == names[5])
        near = ask(running, "/v1/suggestions", {"pod": pod("near", annotations=LIMITS)})
        assert near["node"] == names[0], {k: v for k, v in near.items() if k != "scores"}


def test_hour_old_values_are_detected_as_stale(tmp_path: Path) -> None:
    with telemetry(tmp_path / "here", {}) as made:
        made.kill()
        connections = 'node_netstat_Tcp_CurrEstab{instance="%s"}'
        made.remember({connections % "old": 7.0}, 3600)
        made.remember({connections % "new": 8.0}, 5)
        made.start("--query.lookback-delta=2h")
        collector = TelemetryCollector(
            configuration({"prometheus": {"url": made.url}}), lambda: dict.fromkeys(("old", "new"), ())
        )

        async def story() -> None:
            async with collector._client:
                await collector.refresh()

        asyncio.run(story())
        values, taken = collector.store.last_values(["old", "new"])
        column = FEATURES.index("tcp_connections")
        assert values[:, column].tolist() == [7, 8]
        old, new = (collector.clock() - taken[:, column]).tolist()
        assert 3599 < old < 3660
        assert 4 < new < 60
        present = np.array([True, True])
        found = collector.store.resolve(values, taken, present, collector.clock())
        assert found.fresh[:, column].tolist() == [False, True]
        assert found.values[:, column].tolist() == [8, 8]  # the median of what is not stale


def page_configurations() -> list[dict[str, object]]:
    """The configurations of the page on labels."""
    page = (DEPLOY.parent / "docs" / "how-to" / "telemetry-labels.md").read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def test_nodes_are_found_by_address_and_by_the_joins_of_the_page(tmp_path: Path) -> None:
    """As kube-prometheus-stack scrapes: `instance` is an address with a port; a join finds nodes without addresses."""
    instances = {"worker-0": "10.0.0.1", "worker-1": "[fd00::1]"}
    exporters = {}
    for i, (name, address) in enumerate(instances.items()):
        instance, bare = f"{address}:9100", address.strip("[]")
        info = {
            f'node_uname_info{{instance="{instance}",nodename="{name}.example.com"}}': 1.0,
            f'kube_node_info{{node="{name}",internal_ip="{bare}"}}': 1.0,
        }
        exporters[instance] = Node(connections=10.0 * (i + 1), memory=1e9 * (i + 1), series=info)
    with telemetry(tmp_path / "here", exporters) as made:
        until(lambda: len(made.ask(CPU_QUERY)) == 2)
        by_address = {name: (address.strip("[]"),) for name, address in instances.items()}
        joins = page_configurations()
        assert len(joins) == 2
        for document, nodes in (({}, by_address), *((join, dict.fromkeys(instances, ())) for join in joins)):
            content = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
            collector = TelemetryCollector(
                configuration(content | {"prometheus": {"url": made.url}}), lambda nodes=nodes: nodes
            )
            asyncio.run(collector.query_once())
            values, _ = collector.store.last_values(list(instances))
            measured = dict(zip(FEATURES, values.T.tolist(), strict=False))
            assert measured["tcp_connections"] == [10, 20]
            assert measured["memory_available_bytes"] == [1e9, 2e9]
            assert all(0 <= cpu <= 100 for cpu in measured["cpu_used_percent"])


def test_the_server_takes_the_manifests(control_plane: LocalCluster) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "steersman-telemetry"}}
    create(control_plane, namespace)
    try:
        text = control_plane.kubectl("kustomize", str(DEPLOY / "prometheus"))
        objects = list(yaml.safe_load_all(text))
        kinds = Counter(each["kind"] for each in objects)
        assert (kinds["DaemonSet"], kinds["Deployment"], kinds["ConfigMap"]) == (1, 1, 1)
        apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
        assert len(control_plane.kubectl(*apply, stdin=text).splitlines()) == len(objects)
    finally:
        control_plane.kubectl("delete", "namespace", "steersman-telemetry", "--wait=false")
    monitors = yaml.safe_load_all(control_plane.kubectl("kustomize", str(DEPLOY / "prometheus" / "service-monitors")))
    assert {each["kind"] for each in monitors} == {"ServiceMonitor"}


class Slow(BaseHTTPRequestHandler):
    """Users who answer after 30 ms."""

    def do_GET(self) -> None:
        time.sleep(0.03)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_a_machine_and_its_probe_are_measured(tmp_path: Path) -> None:
    users = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=users.serve_forever, daemon=True).start()
    port = free_port()
    target = f"rome=http://127.0.0.1:{users.server_port}/"
    command = [STEERSMAN, "probe", "--target", target, "--interval", "0.2", "--port", str(port)]
    probe = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with telemetry(tmp_path / "here", {}, machine="machine", targets={"probed": port}) as made:
            collector = TelemetryCollector(
                configuration({"prometheus": {"url": made.url}}), lambda: dict.fromkeys(("machine", "probed"), ())
            )

            async def complete() -> None:
                async with collector._client:
                    for _ in range(60):
                        await asyncio.sleep(0.5)
                        await collector.refresh()
                        values, _ = collector.store.last_values(["machine", "probed"])
                        if (values[0, [0, 1, 2, 3, 4]] >= 0).all() and values[1, -1] >= 0:
                            return
                raise AssertionError(values)

            asyncio.run(complete())
            values, taken = collector.store.last_values(["machine", "probed"])
            machine = dict(zip(FEATURES, values[0].tolist(), strict=False))
            assert 0 <= machine["cpu_used_percent"] <= 100
            assert 0 < machine["filesystem_used_percent"] < 100
            total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
            assert 0 < machine["memory_available_bytes"] < total
            assert machine["tcp_connections"] >= 1
            assert 30 <= values[1, -1] < 300
            assert (collector.clock() - taken[0, :5] < 10).all()
            assert collector.problem == ""
    finally:
        probe.terminate()
        assert probe.wait(20) == 143
        users.shutdown()
        users.server_close()
