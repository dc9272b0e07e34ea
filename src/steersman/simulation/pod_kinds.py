"""Kinds of pods by the GPUs that they request: what is good for one kind may be paid for by another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI

Ints = npt.NDArray[np.int64]

KINDS = {
    "cpu_only": "no GPU",
    "gpu_share": "a share of a GPU",
    "one_gpu": "one GPU",
    "several_gpus": "several GPUs",
}
"""Titles by name in metrics."""


def kinds_of(demand: Ints, devices: Ints) -> Ints:
    """Return [A] the index in `KINDS`.

    Args:
        demand: [A] GPU milli.
        devices: [A] number of GPUs that a pod requests, or requests a share of.
    """
    one = np.where(demand < GPU_MILLI, 1, 2)
    several = (devices > 1) | (demand > GPU_MILLI)  # GPUs that are only counted are no devices
    return np.where(demand == 0, 0, np.where(several, 3, one)).astype(np.int64)


def failed_metric(kind: str) -> str:
    """Return the metric of the pods of a kind that fitted nowhere."""
    return f"pods_failed_{kind}"


def arrived_metric(kind: str) -> str:
    """Return the metric of the pods of a kind that arrived."""
    return f"pods_arrived_{kind}"


def wait_metric(kind: str) -> str:
    """Return the metric of the mean wait of the pods of a kind."""
    return f"waiting_time_mean_{kind}_seconds"
