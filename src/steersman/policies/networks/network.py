"""Networks of policy files: those of steersman are computed by the core, those of packages by what they bring."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError, input_error
from steersman.core.handles import PolicyHandle
from steersman.policies.features import View
from steersman.policies.networks.layers import Array, Flags

Floats = npt.NDArray[np.floating]


class Network(Protocol):
    """Score nodes for a pod."""

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Floats:
        """Return [N] scores, which are read where the mask is true.

        Args:
            nodes: [N, Fn] features of each node; a masked row of zeros is not a node.
            pod: [Fp].
            context: [Fc].
            mask: [N] where the pod may run.
            groups: [N, 2] index of the node's rack and server, -1: none.
        """


class CoreNetwork:
    """The network of a policy file, computed by the core: see `core/src/networks.rs`.

    Args:
        file: its name, of which errors speak.
        content: its bytes.

    Raises:
        InputError: it is of another network, or an array is missing, of another shape, or unknown.
    """

    def __init__(self, file: str, content: bytes) -> None:
        self._arguments = file, content
        try:
            self._handle = PolicyHandle("", content)
        except SteersmanError as error:
            raise input_error(file, str(error)) from None

    def __reduce__(self) -> tuple[type[CoreNetwork], tuple[str, bytes]]:
        return CoreNetwork, self._arguments

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Floats:
        """Return [N] scores, -inf where the mask forbids, see `Network`."""
        return self._handle.scores(nodes, pod, context, mask.view(np.int8), groups.astype(np.int64))


def joint_size(view: View) -> int:
    """Return the number of features of a node, the pod and the cluster together."""
    return len(view.node) + len(view.pod) + len(view.context)
