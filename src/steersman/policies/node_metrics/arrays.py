"""Telemetry as a scheduler observes it: exact requests and measured use, in arrays (`SchedulerView`).

E environments of N node rows and P pods each; Z zones; M metrics. The arrays of `cluster.arrays` are flat: node n of
environment e is row e N + n, pod p is class e P + p. So fitting, placing and kube-scheduler's scores are the same
kernels as everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays

# Columns of `SchedulerView.since`: milli-CPU requested now minus the mean request in the window of the CPU metric; pods
# that run now minus those that ran when the connections were counted.
REQUESTED_SINCE, PODS_SINCE = range(2)

# Columns of `SchedulerView.counts`: nodes, the current pod.
NODES, POD = range(2)
# Columns of `SchedulerView.replica`: index of a pod in its Deployment, from 0, and number of replicas.
INDEX, REPLICAS = range(2)
# Columns of `SchedulerView.limit`.
SOFT, HARD = range(2)
# Columns of `SchedulerView.assumed`, see `settings.ASSUMED_SERVICE`.
SERVICE, LINK, POD_LINK = range(3)


class SchedulerView(NamedTuple):
    """What a scheduler may know: exact requests and measured use."""

    nodes: NodeArrays  # the cluster, E N rows; rows of absent nodes have no capacity
    # Every pod of the episode, E P rows. A policy may only look at the current one (`counts[e, POD]`).
    pods: ClassArrays
    counts: npt.NDArray[np.int64]  # [E, 2] int64, columns NODES, POD
    measured: npt.NDArray[np.float64]  # [E, N, M] float64, NaN where a metric is missing
    # [E, N, M] float64, seconds since the last sample of a metric, also where it is missing by now; at most 300, and
    # 300 if there never was a sample
    age: npt.NDArray[np.float64]
    since: npt.NDArray[np.float64]  # [E, N, 2] float64, columns REQUESTED_SINCE, PODS_SINCE
    siblings: npt.NDArray[np.int64]  # [E, N] int64, pods of the same Deployment on the node
    zone: npt.NDArray[np.int64]  # [E, N] int64 zone of the node
    # [E, P] int64 whose latency counts, as a column of `measured` from `LATENCY` on: in an environment the zone of
    # the pod's users, live their group, 0 for all users; -1: it has none
    user: npt.NDArray[np.int64]
    # [E, P, 2] float64 soft and hard limit of the latency to its users in milliseconds, inf: none
    limit: npt.NDArray[np.float64]
    replica: npt.NDArray[np.int64]  # [E, P, 2] int64, columns INDEX, REPLICAS
    # [E, 3] float64 assumptions where nothing is measured, columns SERVICE, LINK, POD_LINK
    assumed: npt.NDArray[np.float64]
    nearest: npt.NDArray[np.float64]  # [E, N] float64 by zone; scratch memory of `policies.node_metrics.latency_filter`
