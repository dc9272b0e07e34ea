"""GPU fragmentation: how much idle GPU the typical pods cannot use, and why; see `core/src/fragmentation.rs`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import NodeArrays
from steersman.core.handles import fragments, named
from steersman.workloads.profile import ProfileArrays

CAUSES = ("lack_both", "lack_gpu", "lack_cpu", "cpu_pod_satisfied", "cpu_pod_lack_cpu", "no_access")
"""Why a typical pod cannot use idle GPU, in the order of summation: the node lacks both CPU and GPU for it, GPU alone,
CPU alone; the pod wants no GPU (with and without the CPU for it); the pod does not accept the node's GPU model."""


def fragmented_milli(profile: ProfileArrays, nodes: NodeArrays) -> npt.NDArray[np.float64]:
    """Return the GPU milli of each node that typical pods cannot use, [N]."""
    arrays = named(nodes=nodes._asdict(), profile=profile._asdict())
    return fragments(arrays, len(nodes.gpu_count))[:, 0]
