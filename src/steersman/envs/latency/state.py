"""The true state of the simulated cluster with telemetry, in arrays (`SimulatorState`).

Dimensions and flat arrays are those of `policies.node_metrics.arrays`. Policies are given `scheduler_view` alone and
cannot read the true state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import PODS, ClassArrays, NodeArrays
from steersman.cluster.node_metrics import AGE_LIMIT, LATENCY
from steersman.policies.node_metrics.arrays import POD, SchedulerView
from steersman.workloads.generators.latency_settings import (
    ASSUMED_LINK,
    ASSUMED_POD_LINK,
    ASSUMED_SERVICE,
    LatencySettings,
)

# Columns of `SimulatorState.pod_use` and `node_use` at load 1: milli-CPU, connections, received bytes per second;
# then what does not depend on load: bytes of memory and of the filesystem.
USE_CPU, USE_CONNECTIONS, USE_NETWORK, USE_MEMORY, USE_FILESYSTEM = range(5)
USES = 5
# Columns of `SimulatorState.counter` and, after the time, of `SimulatorState.ring`.
CPU_SECONDS, NETWORK_BYTES, REQUEST_SECONDS, COUNTERS = range(4)
RING = 21  # samples kept of a counter: 5 minutes at 15 seconds
# Columns of `SimulatorState.clock`.
NOW, NEXT_LOAD = range(2)
# Columns of `SimulatorState.cursor`.
LEFT, SCRAPED = range(2)
# Columns of `SimulatorState.sampled`: the node's metrics, and the probe of latencies.
NODE_SAMPLE, PROBE_SAMPLE = range(2)
# Streams of random numbers.
CLUSTER, WORKLOAD, LOAD, MEASURING = range(4)
STREAMS = 4
NEVER = -1e9

# Columns of `SimulatorState.total`, sums over an episode. Of samples, every 15 seconds after the warm-up: how many,
# nodes without and with pods, standard deviation of the share of CPU used, connections of the node with most, pods with
# limits, those within the soft one, those beyond the hard one, nodes whose pods want more CPU than there is. `PEAK` is
# a maximum.
SAMPLES, EMPTY, USED, DEVIATION, MOST_CONNECTIONS, PEAK, LIMITED_NOW, SOFT_NOW, HARD_NOW, SATURATED = range(10)
# Of placements after the warm-up: pods placed and refused, with limits, within the soft one, beyond the hard one, and
# beyond it though some node could have met it.
PLACED, REFUSED, LIMITED, SOFT_MET, HARD_BROKEN, HARD_AVOIDABLE = range(10, 16)
TOTALS = 16


class SimulatorState(NamedTuple):
    """The true state, and what is needed to continue."""

    scheduler_view: SchedulerView  # what policies are given
    rng: npt.NDArray[np.uint64]  # [E, 4] uint64, columns CLUSTER..
    clock: npt.NDArray[np.float64]  # [E, 2] seconds, columns NOW, NEXT_LOAD
    cursor: npt.NDArray[np.int64]  # [E, 2] int64: pods that have left, scrapes done
    arrival: npt.NDArray[np.float64]  # [E, P] seconds, ascending
    leave: npt.NDArray[np.float64]  # [E, P] seconds
    order: npt.NDArray[np.int64]  # [E, P] int64 pods by when they leave
    # [E, P] int64 node of a pod, -1 before it is placed, after it left, and if it was dropped
    slot: npt.NDArray[np.int64]
    pod_use: npt.NDArray[np.int64]  # [E, P, 5] int64 what a pod uses, columns USE_CPU..
    # [E, N, Z + 1, 5] int64 the same summed over a node's pods, by the zone of their users; last: none
    node_use: npt.NDArray[np.int64]
    load: npt.NDArray[np.float64]  # [E, Z + 1] float64 by which use is multiplied now; last: 1
    load_noise: npt.NDArray[np.float64]  # [E, Z] float64 the random part of it
    phase: npt.NDArray[np.float64]  # [E, Z] float64 radians
    system: npt.NDArray[np.float64]  # [E, N] float64 milli-CPU of a node without pods
    distance: npt.NDArray[np.float64]  # [E, Z, Z] float64 milliseconds from nodes to users
    # [E, N] float64 seconds within the scrape interval, ascending in the order of `turn`
    offset: npt.NDArray[np.float64]
    turn: npt.NDArray[np.int64]  # [E, N] int64 nodes in the order of their scrapes
    # [E, N, 3] float64, columns CPU_SECONDS (milli), NETWORK_BYTES, REQUEST_SECONDS (milli)
    counter: npt.NDArray[np.float64]
    counted: npt.NDArray[np.float64]  # [E, N] seconds: time of the last update of the counters
    ring: npt.NDArray[np.float64]  # [E, N, 21, 4] float64 the last samples of the counters: time, then the counters
    rings: npt.NDArray[np.int64]  # [E, N] int64 samples taken
    # [E, N, M] float64 the last samples of the other metrics, NaN: the last scrape failed
    gauge: npt.NDArray[np.float64]
    gauge_pods: npt.NDArray[np.int64]  # [E, N] int64 pods when the connections were last counted
    # [E, N, 2] seconds, columns NODE_SAMPLE, PROBE_SAMPLE: when a scrape last succeeded
    sampled: npt.NDArray[np.float64]
    down: npt.NDArray[np.int64]  # [E, N] int64 scrapes that will still fail
    total: npt.NDArray[np.float64]  # [E, 16] float64, columns SAMPLES..


def new_simulator_state(settings: LatencySettings, environments: int) -> SimulatorState:
    """Return the arrays of `environments` clusters of checked settings; `generator.start` begins an episode in each."""
    e, n, p, z = environments, settings.max_nodes, settings.pods, settings.zones
    metrics = LATENCY + z
    integers, floats = np.int64, np.float64
    view = SchedulerView(
        nodes=NodeArrays(
            allocatable=np.zeros((e * n, PODS + 1), integers),
            free=np.zeros((e * n, PODS + 1), integers),
            nonzero=np.zeros((e * n, 2), integers),
            gpu_count=np.zeros(e * n, integers),
            gpu_free=np.zeros((e * n, 0), integers),
            gpu_model=np.zeros(e * n, integers),
            gpu_kinds=np.zeros((e * n, 1), integers),
        ),
        pods=ClassArrays(
            request=np.zeros((e * p, PODS + 1), integers),
            nonzero=np.zeros((e * p, 2), integers),
            gpu_count=np.zeros(e * p, integers),
            gpu_milli=np.zeros(e * p, integers),
            gpu_column=np.zeros(e * p, integers),
            constraint=np.zeros(e * p, integers),
            allowed=np.ones((1, e * n), np.bool_),
        ),
        counts=np.zeros((e, POD + 1), integers),
        measured=np.full((e, n, metrics), np.nan),
        age=np.full((e, n, metrics), AGE_LIMIT),
        since=np.zeros((e, n, 2), floats),
        siblings=np.zeros((e, n), integers),
        zone=np.zeros((e, n), integers),
        user=np.full((e, p), -1, integers),
        limit=np.full((e, p, 2), np.inf),
        replica=np.zeros((e, p, 2), integers),
        assumed=np.tile([ASSUMED_SERVICE, ASSUMED_LINK, ASSUMED_POD_LINK], (e, 1)),
        nearest=np.full((e, max(n, z)), np.nan),
    )
    return SimulatorState(
        scheduler_view=view,
        rng=np.zeros((e, STREAMS), np.uint64),
        clock=np.zeros((e, NEXT_LOAD + 1)),
        cursor=np.zeros((e, SCRAPED + 1), integers),
        arrival=np.zeros((e, p)),
        leave=np.zeros((e, p)),
        order=np.zeros((e, p), integers),
        slot=np.full((e, p), -1, integers),
        pod_use=np.zeros((e, p, USES), integers),
        node_use=np.zeros((e, n, z + 1, USES), integers),
        load=np.ones((e, z + 1)),
        load_noise=np.zeros((e, z)),
        phase=np.zeros((e, z)),
        system=np.zeros((e, n)),
        distance=np.zeros((e, z, z)),
        offset=np.zeros((e, n)),
        turn=np.zeros((e, n), integers),
        counter=np.zeros((e, n, COUNTERS)),
        counted=np.zeros((e, n)),
        ring=np.zeros((e, n, RING, COUNTERS + 1)),
        rings=np.zeros((e, n), integers),
        gauge=np.full((e, n, metrics), np.nan),
        gauge_pods=np.zeros((e, n), integers),
        sampled=np.full((e, n, PROBE_SAMPLE + 1), NEVER),
        down=np.zeros((e, n), integers),
        total=np.zeros((e, TOTALS)),
    )
