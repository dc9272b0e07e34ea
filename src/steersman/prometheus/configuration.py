"""Configuration of telemetry: which queries Prometheus answers and what they mean, as YAML with defaults.

The defaults are the queries of Matranga's thesis, and for latencies that of `steersman probe`. Each feature has two:
one for the value, and one for the time of its newest sample, since Prometheus answers with the time of evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from steersman.cluster.model import METRICS
from steersman.core.config.file import check_ranges, convert, read_document
from steersman.core.errors import InputError

KIND = "TelemetryConfiguration"
LATENCY_FEATURE = "latency_milliseconds"
"""Feature with a value for each node and each group of users."""
FEATURES = (*(name for name, _ in METRICS), LATENCY_FEATURE)
"""Names of all features, in the order of `cluster.model.METRICS`; latency is the last."""

WhenStale = Literal["last", "impute", "neutral"]
"""What replaces a stale or missing value.

`last`: the last value whatever its age; `impute`: the median of the other nodes' values; `neutral`: nothing, so that
the node neither attracts nor repels."""


class ServerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Address and limits of Prometheus.

    Attributes:
        url: of its web server, with a path if it has one.
        token_file: file of a bearer token, read before every query.
        ca_file: certificates that sign its own; "": those of the system.
        timeout_seconds: timeout of a query.
        max_body_bytes: larger responses are refused.
    """

    url: str = "http://127.0.0.1:9090"
    token_file: str = ""
    ca_file: str = ""
    timeout_seconds: float = 5.0
    max_body_bytes: int = 64 << 20


class NodeMapping(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """How the node of a series is found.

    Attributes:
        label: label of the series that names the node.
        pattern: regular expression that matches its whole value; the first group names the node.
        names: from the group to the node's name, for those that are neither its name nor an address or a host name.
    """

    label: str = "instance"
    pattern: str = "(.+?)(?::[0-9]+)?"
    names: dict[str, str] = {}


class FeatureQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Queries of one feature of nodes.

    Attributes:
        query: value for each node, in the unit of the feature's name; "": not queried.
        sampled_at: time of the newest sample behind the value, seconds since 1970, for each node. A node without it has
            no new value.
        when_stale: see `WhenStale`.
        max_age_seconds: age from which a value is stale; 0: that of the whole configuration.
        node_label: label that names the node, if it differs from that of `NodeMapping`.
        user_label: of the latency: label that names the users; series without it are for users called "".
    """

    query: str = ""
    sampled_at: str = ""
    when_stale: WhenStale = "impute"
    max_age_seconds: float = 0.0
    node_label: str = ""
    user_label: str = ""


class Assumptions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Assumed values of what nobody measures, to decide which nodes keep a limit with the pod on them.

    Attributes:
        service_milliseconds: service time of a request on an idle node.
        link_bytes_per_second: bandwidth of a node.
        pod_link_share: largest share of it that a pod is assumed to use before its traffic is measured.
    """

    service_milliseconds: float = 2.0
    link_bytes_per_second: float = 125e6
    pod_link_share: float = 0.02


DEFAULT_FEATURES: Mapping[str, FeatureQuery] = {
    "cpu_used_percent": FeatureQuery(
        query='100 - avg by (instance) (irate(node_cpu_seconds_total{mode="idle"}[1m])) * 100',
        sampled_at='max by (instance) (timestamp(node_cpu_seconds_total{mode="idle"}))',
    ),
    "memory_available_bytes": FeatureQuery(
        query="node_memory_MemAvailable_bytes", sampled_at="timestamp(node_memory_MemAvailable_bytes)"
    ),
    "filesystem_used_percent": FeatureQuery(
        query='100 - 100 * max by (instance) (node_filesystem_avail_bytes{mountpoint="/"}'
        ' / node_filesystem_size_bytes{mountpoint="/"})',
        sampled_at='max by (instance) (timestamp(node_filesystem_avail_bytes{mountpoint="/"}))',
        when_stale="last",
    ),
    "network_received_bytes_per_second": FeatureQuery(
        query='sum by (instance) (rate(node_network_receive_bytes_total{device!="lo"}[5m]))',
        sampled_at='max by (instance) (timestamp(node_network_receive_bytes_total{device!="lo"}))',
    ),
    "tcp_connections": FeatureQuery(
        query="node_netstat_Tcp_CurrEstab", sampled_at="timestamp(node_netstat_Tcp_CurrEstab)"
    ),
    "running_pods": FeatureQuery(
        query="count by (node) (kube_pod_info)",
        sampled_at="max by (node) (timestamp(kube_pod_info))",
        when_stale="last",
        node_label="node",
    ),
    LATENCY_FEATURE: FeatureQuery(
        query="steersman_probe_latency_milliseconds",
        sampled_at="timestamp(steersman_probe_latency_milliseconds)",
        when_stale="neutral",
        user_label="user",
    ),
}


class Configuration(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Configuration of telemetry.

    Attributes:
        prometheus: address and limits.
        refresh_seconds: interval between rounds of queries.
        max_age_seconds: age from which a value is stale.
        cpu_window_seconds: time over which the CPU metric is an average; with `irate`, the scrape interval.
        nodes: how the node of a series is found.
        features: differences from `DEFAULT_FEATURES` by name; `read_configuration` fills in the others.
        assumptions: assumed values.
    """

    prometheus: ServerConfig = ServerConfig()
    refresh_seconds: float = 15.0
    max_age_seconds: float = 120.0
    cpu_window_seconds: float = 15.0
    nodes: NodeMapping = NodeMapping()
    features: dict[str, FeatureQuery] = msgspec.field(default_factory=lambda: dict(DEFAULT_FEATURES))
    assumptions: Assumptions = Assumptions()

    def max_age(self, feature: str) -> float:
        """Return the age from which a feature's values are stale, seconds."""
        return self.features[feature].max_age_seconds or self.max_age_seconds

    def node_label(self, feature: str) -> str:
        """Return the label that names the node of a feature's series."""
        return self.features[feature].node_label or self.nodes.label


def read_configuration(path: Path) -> Configuration:
    return configuration(read_document(path, KIND), path)


def configuration(document: Mapping[str, Any], source: Path | str = "configuration") -> Configuration:
    """Return the configuration of a mapping, with defaults. Raises InputError: as `read_configuration`."""
    content = dict(document)
    content["features"] = _with_defaults(content.get("features"), source)
    configuration = convert(content, Configuration, source)
    _check(configuration, source)
    return configuration


def _with_defaults(given: object, source: Path | str) -> dict[str, FeatureQuery]:
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InputError(source, "", "features", "is not a mapping from names of features to their settings")
    if unknown := [name for name in given if name not in FEATURES]:
        raise InputError(source, "", f"features.{unknown[0]}", f"is unknown; expected {', '.join(FEATURES)}")
    queries: dict[str, FeatureQuery] = {}
    for name, default in DEFAULT_FEATURES.items():
        stated = given.get(name)
        if stated is not None and not isinstance(stated, dict):
            raise InputError(
                source, "", f"features.{name}", "is not a mapping; expected query, sampledAt and whenStale"
            )
        if stated and stated.get("query") and not stated.get("sampledAt"):
            problem = "is missing; a query needs one for the time of its newest sample, such as timestamp(metric)"
            raise InputError(source, "", f"features.{name}.sampledAt", problem)
        queries[name] = convert(msgspec.to_builtins(default) | (stated or {}), FeatureQuery, source, f"features.{name}")
    return queries


def _check(configuration: Configuration, source: Path | str) -> None:
    """Raise InputError: a value is out of range, or no regular expression or address."""
    server = configuration.prometheus
    # Without a password, which would appear in logs.
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", server.url):
        problem = "is not an address; expected one such as http://prometheus:9090, without a password"
        raise InputError(source, "", "prometheus.url", problem)
    ranges = [
        ("prometheus.timeoutSeconds", server.timeout_seconds, 0.1, 300),
        ("prometheus.maxBodyBytes", server.max_body_bytes, 1 << 10, 1 << 30),
        ("refreshSeconds", configuration.refresh_seconds, 0.1, 3600),
        ("maxAgeSeconds", configuration.max_age_seconds, 1, 86_400),
        ("cpuWindowSeconds", configuration.cpu_window_seconds, 0.1, 3600),
        ("assumptions.serviceMilliseconds", configuration.assumptions.service_milliseconds, 0, 10_000),
        ("assumptions.linkBytesPerSecond", configuration.assumptions.link_bytes_per_second, 1, 1e15),
        ("assumptions.podLinkShare", configuration.assumptions.pod_link_share, 0, 1),
    ]
    for name, feature in configuration.features.items():
        ranges.append((f"features.{name}.maxAgeSeconds", feature.max_age_seconds, 0, 86_400))
        if feature.user_label and name != LATENCY_FEATURE:
            raise InputError(source, "", f"features.{name}.userLabel", f"is for {LATENCY_FEATURE} alone")
    check_ranges(ranges, source)
    _check_pattern(configuration.nodes.pattern, source)


def _check_pattern(pattern: str, source: Path | str) -> None:
    field = "nodes.pattern"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InputError(source, "", field, f"is not a regular expression: {error}") from None
    if groups < 1:
        raise InputError(source, "", field, "has no group; expected one that names the node, such as (.+?)(?::[0-9]+)?")
