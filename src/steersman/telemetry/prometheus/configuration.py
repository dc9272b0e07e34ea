"""What is asked of Prometheus and what its answers mean: a YAML file in Kubernetes' manner, and its defaults.

The defaults are the queries of reference C. Each feature has two: one for the value, and one for the time at which its
newest sample was taken, since Prometheus answers with the time of the question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from steersman.config_file import check_ranges, convert, read_document
from steersman.errors import InputError
from steersman.telemetry.model import METRICS

KIND = "TelemetryConfiguration"
LATENCY = "latency_milliseconds"
"""The feature that has a value for each node and each group of users."""
FEATURES = (*(name for name, _ in METRICS), LATENCY)
"""Names of all features, in the order of `telemetry.model.METRICS`; the latency to users is the last."""

WhenStale = Literal["last", "impute", "neutral"]
"""What stands for a value that is too old or missing: the last one whatever its age; the median of the other nodes'
values; nothing, so that the node neither attracts nor repels."""


class Server(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Where Prometheus is.

    Attributes:
        url: of its web server, with a path where it has one.
        token_file: holds a bearer token, read anew for every question.
        ca_file: certificates that sign its own; "": those of the system.
        timeout_seconds: for an answer.
        max_body_bytes: larger answers are refused.
    """

    url: str = "http://127.0.0.1:9090"
    token_file: str = ""
    ca_file: str = ""
    timeout_seconds: float = 5.0
    max_body_bytes: int = 64 << 20


class Nodes(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Which node a series is of.

    Attributes:
        label: of the series that tells.
        pattern: a regular expression that its whole value matches; the first group is what names the node.
        names: from what the group gave to the node's name, for those that are not the name themselves.
    """

    label: str = "instance"
    pattern: str = "(.+?)(?::[0-9]+)?"
    names: dict[str, str] = {}


class Feature(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """One feature of nodes.

    Attributes:
        query: its value for each node, in the unit of its name; "": it is not asked for.
        sampled_at: when the newest sample behind the value was taken, in seconds since 1970, for each node. A node
            without it has no new value.
        when_stale: see `WhenStale`.
        max_age_seconds: the age from which a value is stale; 0: that of the whole configuration.
        node_label: the label that tells the node, if another one than that of `Nodes`.
        user_label: of the latency: the label that names the users; series without it are for users called "".
    """

    query: str = ""
    sampled_at: str = ""
    when_stale: WhenStale = "impute"
    max_age_seconds: float = 0.0
    node_label: str = ""
    user_label: str = ""


class Assumptions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """What is assumed of what nobody measures, to tell which nodes keep a limit when the pod is there.

    Attributes:
        service_milliseconds: that a request is served in on an idle node.
        link_bytes_per_second: of a node's network.
        pod_link_share: the most of it that a pod is thought to take before its traffic is measured.
    """

    service_milliseconds: float = 2.0
    link_bytes_per_second: float = 125e6
    pod_link_share: float = 0.02


DEFAULT_FEATURES: Mapping[str, Feature] = {
    "cpu_used_percent": Feature(
        query='100 - avg by (instance) (irate(node_cpu_seconds_total{mode="idle"}[1m])) * 100',
        sampled_at='max by (instance) (timestamp(node_cpu_seconds_total{mode="idle"}))',
    ),
    "memory_available_bytes": Feature(
        query="node_memory_MemAvailable_bytes",
        sampled_at="timestamp(node_memory_MemAvailable_bytes)",
    ),
    "filesystem_used_percent": Feature(
        query='100 - 100 * max by (instance) (node_filesystem_avail_bytes{mountpoint="/"}'
        ' / node_filesystem_size_bytes{mountpoint="/"})',
        sampled_at='max by (instance) (timestamp(node_filesystem_avail_bytes{mountpoint="/"}))',
        when_stale="last",
    ),
    "network_received_bytes_per_second": Feature(
        query='sum by (instance) (rate(node_network_receive_bytes_total{device!="lo"}[5m]))',
        sampled_at='max by (instance) (timestamp(node_network_receive_bytes_total{device!="lo"}))',
    ),
    "tcp_connections": Feature(
        query="node_netstat_Tcp_CurrEstab",
        sampled_at="timestamp(node_netstat_Tcp_CurrEstab)",
    ),
    "running_pods": Feature(
        query="count by (node) (kube_pod_info)",
        sampled_at="max by (node) (timestamp(kube_pod_info))",
        when_stale="last",
        node_label="node",
    ),
    LATENCY: Feature(
        query="steersman_probe_latency_milliseconds",
        sampled_at="timestamp(steersman_probe_latency_milliseconds)",
        when_stale="neutral",
        user_label="user",
    ),
}


class Configuration(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Everything that can be configured.

    Attributes:
        prometheus: where it is.
        refresh_seconds: between two rounds of questions.
        max_age_seconds: the age from which a value is stale.
        nodes: which node a series is of.
        features: what differs from `DEFAULT_FEATURES`, by name; `read_configuration` fills in the others.
        assumptions: see there.
    """

    prometheus: Server = Server()
    refresh_seconds: float = 15.0
    max_age_seconds: float = 120.0
    nodes: Nodes = Nodes()
    features: dict[str, Feature] = msgspec.field(default_factory=lambda: dict(DEFAULT_FEATURES))
    assumptions: Assumptions = Assumptions()

    def age_limit(self, feature: str) -> float:
        """Seconds from which a feature's values are stale."""
        return self.features[feature].max_age_seconds or self.max_age_seconds

    def node_label(self, feature: str) -> str:
        """The label that tells the node of a feature's series."""
        return self.features[feature].node_label or self.nodes.label


def read_configuration(path: Path) -> Configuration:
    """Read a configuration file.

    Raises:
        InputError: it cannot be read, is no YAML, or holds something unknown or out of range.
    """
    return configuration(read_document(path, KIND), path)


def configuration(document: Mapping[str, Any], source: Path | str = "configuration") -> Configuration:
    """The configuration that a mapping holds, with defaults for what it does not say. Raises InputError: see above."""
    content = dict(document)
    content["features"] = _with_defaults(content.get("features"), source)
    made = convert(content, Configuration, source)
    _check(made, source)
    return made


def _with_defaults(given: object, source: Path | str) -> dict[str, Feature]:
    """The features of a file, each over its default."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InputError(source, "", "features", "is no mapping from names of features to their settings")
    if unknown := [name for name in given if name not in FEATURES]:
        raise InputError(source, "", f"features.{unknown[0]}", f"is unknown; {', '.join(FEATURES)} are right")
    made: dict[str, Feature] = {}
    for name, default in DEFAULT_FEATURES.items():
        mine = given.get(name)
        if mine is not None and not isinstance(mine, dict):
            raise InputError(source, "", f"features.{name}", "is no mapping; query, sampledAt and whenStale are right")
        if mine and mine.get("query") and not mine.get("sampledAt"):
            raise InputError(
                source,
                "",
                f"features.{name}.sampledAt",
                "is missing; a query needs one for the time of its newest sample, such as timestamp(metric)",
            )
        made[name] = convert(msgspec.to_builtins(default) | (mine or {}), Feature, source, f"features.{name}")
    return made


def _check(made: Configuration, source: Path | str) -> None:
    """Raise InputError: something is out of range, or no regular expression or address."""
    server = made.prometheus
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", server.url):  # no password, which logs would show
        raise InputError(
            source, "", "prometheus.url", "is no address; such as http://prometheus:9090 is right, without a password"
        )
    ranges = [
        ("prometheus.timeoutSeconds", server.timeout_seconds, 0.1, 300),
        ("prometheus.maxBodyBytes", server.max_body_bytes, 1 << 10, 1 << 30),
        ("refreshSeconds", made.refresh_seconds, 0.1, 3600),
        ("maxAgeSeconds", made.max_age_seconds, 1, 86_400),
        ("assumptions.serviceMilliseconds", made.assumptions.service_milliseconds, 0, 10_000),
        ("assumptions.linkBytesPerSecond", made.assumptions.link_bytes_per_second, 1, 1e15),
        ("assumptions.podLinkShare", made.assumptions.pod_link_share, 0, 1),
    ]
    for name, feature in made.features.items():
        ranges.append((f"features.{name}.maxAgeSeconds", feature.max_age_seconds, 0, 86_400))
        if feature.user_label and name != LATENCY:
            raise InputError(source, "", f"features.{name}.userLabel", f"is for {LATENCY} alone")
    check_ranges(ranges, source)
    _check_pattern(made.nodes.pattern, source)


def _check_pattern(pattern: str, source: Path | str) -> None:
    field = "nodes.pattern"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InputError(source, "", field, f"is no regular expression: {error}") from None
    if groups < 1:
        raise InputError(source, "", field, "has no group; one that names the node is right, such as (.+?)(?::[0-9]+)?")
