"""Settings of the simulated telemetry as the core reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.workloads.generators.latency_settings import LatencySettings


def described_settings(settings: LatencySettings) -> dict[str, npt.NDArray[np.generic]]:
    """Return checked settings as the compiled core reads them, see `core/src/latency_settings.rs`."""
    return {
        f"settings.{name}": np.array(value) if isinstance(value, int) else np.array([value])
        for name, value in settings._asdict().items()
    }
