"""Measures that are not steersman's, in one file."""

import numpy as np

from steersman.simulation.event_arrays import GPU_TAKEN, NOW_WAITING
from steersman.simulation.measures import Measure, MeasurePlot

TAKEN_GPUS = Measure(
    "taken_gpus",
    "GPUs",
    function=lambda record: record.numbers[:, GPU_TAKEN] / 1000,
    plot=MeasurePlot("taken-gpus", "GPUs taken", "Whole GPUs that pods hold."),
)
FAILS = Measure("fails", function=lambda record: record.numbers[:, NOW_WAITING] / "two")
TOO_FEW = Measure("too-few", function=lambda _: np.zeros(1))
NO_MEASURE = "a text"
