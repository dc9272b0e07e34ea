"""Simulated exporters of a local cluster, a process: `python -m steersman.live.local_cluster.telemetry.exporter FILE`.

It watches nodes and pods and shows, for each node that KWOK simulates, what it would use by the pods bound to it
(`envs.latency`). Prometheus asks `/targets` which nodes there are, and each node's metrics at a path of its own.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.decoding import decode_node, decode_pod
from steersman.cluster.objects.fields import FieldError, node_from_json, pod_from_json
from steersman.core.errors import SteersmanError
from steersman.envs.latency import LiveModel, NodeSample, Truth
from steersman.kubernetes import config
from steersman.kubernetes.cache.cluster_cache import UNFINISHED
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.local_cluster.nodes import KWOK_KEY
from steersman.live.local_cluster.nodes import NODES as NODES_PATH
from steersman.live.runtime.http_server import ListenAddress, Probes, WebServer
from steersman.live.runtime.tasks import BackgroundTasks, run
from steersman.workloads.generators.latency_settings import LatencySettings

USERS = "users"  # name of the only users, in the label `user` of latencies
PREFIX = "steersman_simulated_"
TRUTH_GAUGES = {
    "empty_nodes": "Nodes without pods.",
    "used_nodes": "Nodes with pods.",
    "cpu_use_deviation_percent": "Standard deviation over nodes of the share of CPU used.",
    "connections_maximum": "Established TCP connections of the node that has most.",
    "limited_pods": "Bound pods with limits of latency.",
    "soft_limits_kept": "Bound pods within their soft limit.",
    "hard_limits_broken": "Bound pods beyond their hard limit.",
}
TRUTH_COUNTERS = {
    "placed": "Pods bound.",
    "placed_limited": "Pods with limits of latency bound.",
    "placed_within_soft": "Pods within their soft limit when they were bound.",
    "placed_beyond_hard": "Pods beyond their hard limit when they were bound.",
    "placed_beyond_hard_avoidably": "Those of them that another node could have kept within it.",
}
"""Metrics of the true state, by field of `Truth`."""
PODS_PATH = "/api/v1/pods"
HASH_LABEL = "pod-template-hash"  # label of a Deployment's pods; the name of their ReplicaSet ends in its value

log = structlog.get_logger("exporter")


class PodInfo(NamedTuple):
    """A bound pod, as kube-state-metrics shows it."""

    namespace: str
    pod: str
    node: str


class NodeCollector(Collector):
    """Metrics of one node, from one sample."""

    def __init__(self, sample: NodeSample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, see prometheus_client."""
        sample = self._sample
        cpu = CounterMetricFamily(
            "node_cpu_seconds", "Seconds; one CPU stands for all of the node's.", labels=("cpu", "mode")
        )
        cpu.add_metric(("0", "idle"), sample.idle_seconds)
        cpu.add_metric(("0", "user"), sample.used_seconds)
        yield cpu
        yield GaugeMetricFamily("node_memory_MemAvailable_bytes", "Memory available.", value=sample.memory_available)
        yield GaugeMetricFamily("node_memory_MemTotal_bytes", "Memory in all.", value=sample.memory_total)
        for name, value in (("avail", sample.filesystem_available), ("size", sample.filesystem_size)):
            family = GaugeMetricFamily(f"node_filesystem_{name}_bytes", "Filesystem.", labels=("device", "mountpoint"))
            family.add_metric(("simulated", "/"), value)
            yield family
        network = CounterMetricFamily("node_network_receive_bytes", "Bytes received.", labels=("device",))
        network.add_metric(("eth0",), sample.network_received)
        yield network
        yield GaugeMetricFamily("node_netstat_Tcp_CurrEstab", "Established connections.", value=sample.connections)
        if not math.isnan(sample.latency):
            latency = GaugeMetricFamily(
                "steersman_probe_latency_milliseconds", "Round trip from this node to users.", labels=("user",)
            )
            latency.add_metric((USERS,), sample.latency)
            yield latency


class ClusterCollector(Collector):
    """Metrics of the cluster: where pods are, and the truth."""

    def __init__(self, pods: Callable[[], Iterable[PodInfo]], truth: Callable[[], Truth]) -> None:
        self._pods, self._truth = pods, truth

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, see prometheus_client."""
        info = GaugeMetricFamily("kube_pod_info", "Where a pod is.", labels=PodInfo._fields)
        for pod in self._pods():
            info.add_metric(pod, 1.0)
        yield info
        truth = self._truth()
        for name, text in TRUTH_GAUGES.items():
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=getattr(truth, name))
        for name, text in TRUTH_COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=getattr(truth, name))


class ExporterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the process."""

    # `kubeconfig`, `context`: the cluster.
    kubeconfig: str
    context: str
    port: int  # to listen on, at 127.0.0.1
    seed: int = 0  # of the model
    settings: dict[str, Any] = {}  # of the model, by name; others are the defaults of `steersman/Latency-v0`


class SimulatedExporters:
    """What is exported: the model, fed by watches."""

    def __init__(self, model: LiveModel) -> None:
        self.model = model
        self.placements: dict[str, PodInfo] = {}
        self.nodes, self.pods = _Nodes(self), _Pods(self)
        self._began = time.monotonic()

    def now(self) -> float:
        """Return seconds since the model began."""
        return time.monotonic() - self._began

    def truth(self) -> Truth:
        """Return the true state now."""
        return self.model.truth(self.now())

    def routes(self, port: int) -> web.Application:
        """Return the application: targets of Prometheus and the metrics of each node."""

        async def targets(_: web.Request) -> web.Response:
            return web.json_response(
                [
                    {
                        "targets": [f"127.0.0.1:{port}"],
                        "labels": {"__metrics_path__": f"/nodes/{name}/metrics", "instance": name},
                    }
                    for name in self.model.node_names
                ]
            )

        async def node(request: web.Request) -> web.Response:
            sample = self.model.scrape(request.match_info["node"], self.now())
            if sample is None:
                return web.Response(status=503, text="cannot be reached\n")
            registry = CollectorRegistry()
            registry.register(NodeCollector(sample))
            return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app = web.Application()
        app.router.add_get("/targets", targets)
        app.router.add_get("/nodes/{node}/metrics", node)
        return app


class _Nodes:
    """Handler of the watch of nodes."""

    def __init__(self, exporters: SimulatedExporters) -> None:
        self._exporters = exporters
        self._nodes: dict[str, Node] = {}

    def keep(self, keys: Set[str]) -> None:
        for name in self._nodes.keys() - keys:
            self._remove(name)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        metadata = named_object(obj).metadata
        if kind == "DELETED" or KWOK_KEY not in (metadata.annotations or {}):
            self._remove(metadata.name)
            return
        try:
            node = decode_node(node_from_json(obj))
        except FieldError as error:
            log.warning("the node is not shown", node=metadata.name, error=str(error))
            self._remove(metadata.name)
            return
        known = self._nodes.get(node.name)
        # Every heartbeat changes the node; only its capacity matters to the model.
        if known is None or _capacity(known) != _capacity(node):
            self._exporters.model.put_node(node, self._exporters.now())
        self._nodes[node.name] = node

    def _remove(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._exporters.model.remove_node(name, self._exporters.now())


class _Pods:
    """Handler of the watch of pods that have not finished."""

    def __init__(self, exporters: SimulatedExporters) -> None:
        self._exporters = exporters

    def keep(self, keys: Set[str]) -> None:
        for key in self._exporters.placements.keys() - keys:
            self._remove(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        head = pod_from_json(obj)
        if kind == "DELETED" or head.finished:
            self._remove(head.key)
            return
        node, placements = head.node, self._exporters.placements
        if not node or (head.key in placements and placements[head.key].node == node):
            return
        self._remove(head.key)  # another pod of that name
        try:
            pod = decode_pod(head)
        except FieldError as error:
            log.warning("the pod uses nothing", pod=head.key, error=str(error))
            return
        owner = f"{pod.namespace}/{deployment_of(pod)}"
        self._exporters.model.bind(head.key, pod, owner, node, self._exporters.now())
        placements[head.key] = PodInfo(pod.namespace, pod.name, node)

    def _remove(self, key: str) -> None:
        if self._exporters.placements.pop(key, None) is not None:
            self._exporters.model.unbind(key, self._exporters.now())


def deployment_of(pod: Pod) -> str:
    """Return the name of a pod's Deployment, else of its other owner, else its own."""
    owner = pod.owner.rpartition("/")[2] or pod.name
    return owner.removesuffix(f"-{pod.labels.get(HASH_LABEL, '')}")


def _capacity(node: Node) -> tuple[int, int, int]:
    return node.cpu_milli, node.memory_bytes, node.pods


async def export(options: ExporterConfig) -> None:
    model = LiveModel(LatencySettings()._replace(**options.settings), options.seed)
    exporters, registry = SimulatedExporters(model), CollectorRegistry()
    registry.register(ClusterCollector(lambda: exporters.placements.values(), exporters.truth))
    async with Client(config.load(Path(options.kubeconfig), options.context)) as client:
        nodes = Reflector(client, NODES_PATH, exporters.nodes)
        pods = Reflector(client, PODS_PATH, exporters.pods, {"fieldSelector": UNFINISHED})
        ready = {
            each.resource: lambda each=each: "" if each.synced.is_set() else "not listed yet" for each in (nodes, pods)
        }
        server = WebServer(
            registry, Probes(ready=ready), ListenAddress(port=options.port), exporters.routes(options.port)
        )
        async with server, BackgroundTasks(nodes.run(), pods.run()):
            await asyncio.Event().wait()


def main(file: str) -> int:
    """Run with the options of a JSON file; return the exit status."""
    try:
        run(export(msgspec.json.decode(Path(file).read_bytes(), type=ExporterConfig)))
    except SteersmanError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
