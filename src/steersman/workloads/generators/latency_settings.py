"""Parameters of the simulated telemetry: settings that a user may change, and assumptions about nodes."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from steersman.core.config.fields import Option
from steersman.core.errors import UsageError

MAX_ZONES = 8
MAX_NODES = 1000
MAX_PODS = 100_000

# What is assumed of applications and nodes is in `core/src/latency_settings.rs`; here is what others need.
WEB, CACHE, WORKER = range(3)
CACHE_MEMORY = 4096 << 20  # bytes that the smallest cache requests
SYSTEM_CPU = (100.0, 400.0)  # milli-CPU of a node without pods
NODE_FILESYSTEM = 100 << 30

ASSUMED_SERVICE, ASSUMED_LINK, ASSUMED_POD_LINK = 2.0, 125e6, 0.15
"""What a scheduler may assume where it has no measurement: milliseconds in which an idle node serves a request, bytes
per second of a node's link, and the most of it that one pod takes."""


class LatencySettings(NamedTuple):
    """Settings that a user may change."""

    nodes: int = 12  # nodes of the cluster, 2 or more
    max_nodes: int = 16  # rows of every array of nodes, `nodes` or more; a reset may ask for that many nodes
    zones: Annotated[int, Option("Zones of nodes and users.")] = 3
    pods: Annotated[int, Option("Pods of an episode.")] = 400
    load: float = 0.6  # CPU requested by running pods over allocatable CPU, on average
    lifetime: Annotated[float, Option("Mean lifetime of a Deployment in seconds (exponential, at least 30 s).")] = 900.0
    replicas: int = 8  # the most pods of a Deployment (uniform from 1); they arrive together
    swing: Annotated[
        float, Option("Amplitude of the daily load as a share (a sine), with another phase in each zone.")
    ] = 0.4
    period: Annotated[float, Option("Period of that sine in seconds.")] = 3600.0
    load_noise: Annotated[
        float, Option("Standard deviation of the random part of that load (first order autoregressive, 5 minutes).")
    ] = 0.1
    scrape_interval: Annotated[
        float, Option("Seconds between two samples of a node. Prometheus spreads nodes over it.")
    ] = 15.0
    missed: Annotated[float, Option("Probability that a node cannot be scraped; it lasts 4 scrapes on average.")] = 0.01
    noise: Annotated[float, Option("Relative error of a sample (standard deviation).")] = 0.03
    distance: Annotated[float, Option("Milliseconds along one side of the unit square of zones.")] = 90.0
    service: Annotated[
        float, Option("Service time in milliseconds; a node's use r adds r / (1 - r) times as much.")
    ] = 2.0
    copies: Annotated[
        int,
        Option(
            "Deployments that are created one after the other, all alike, and deleted together, again and again, as in "
            "Matranga's thesis; 0: each comes and goes by itself."
        ),
    ] = 0
    copy_interval: Annotated[float, Option("With --copies: seconds from one to the next.")] = 5.0
    copy_pause: Annotated[
        float, Option("With --copies: seconds from the last one to their deletion, and from that to the next ones.")
    ] = 60.0
    warmup: Annotated[float, Option("Seconds before metrics of an episode count; the cluster starts empty.")] = 900.0


LIMITS: dict[str, tuple[float, float]] = {
    "nodes": (2, MAX_NODES),
    "max_nodes": (2, MAX_NODES),
    "zones": (1, MAX_ZONES),
    "pods": (1, MAX_PODS),
    "load": (0.01, 2.0),
    "lifetime": (60.0, 1e6),
    "replicas": (1, 100),
    "swing": (0.0, 0.9),
    "period": (60.0, 1e6),
    "load_noise": (0.0, 0.3),
    "scrape_interval": (1.0, 300.0),
    "missed": (0.0, 0.9),
    "noise": (0.0, 0.5),
    "distance": (0.0, 1000.0),
    "service": (0.0, 100.0),
    "copies": (0, 10_000),
    "copy_interval": (0.0, 1e4),
    "copy_pause": (1.0, 1e6),
    "warmup": (0.0, 1e6),
}


def checked(settings: LatencySettings) -> LatencySettings:
    """Return the settings with the types of their defaults. Raises UsageError: one is out of range."""
    values = {}
    for name, default in LatencySettings()._asdict().items():
        value = getattr(settings, name)
        low, high = LIMITS[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high or type(default)(value) != value:
            kind = "a whole number" if isinstance(default, int) else "a number"
            raise UsageError(f"setting {name!r}: {value!r} is out of range; expected {kind} from {low:g} to {high:g}")
        values[name] = type(default)(value)
    typed = LatencySettings(**values)
    if typed.nodes > typed.max_nodes:
        raise UsageError(f"setting 'nodes': {typed.nodes} are more than 'max_nodes', {typed.max_nodes}")
    return typed
