"""Requests for scores as JSON: a v1 Pod, and the v1 Nodes that it fits on with what is free on each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.free_resources import FREE_KEY, free_annotation
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.state import ClusterState


class RequestEncoder:
    """Encoder of requests about one cluster; a node is encoded again after it changed.

    Args:
        state: the cluster's state.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes: list[Node | None] = []
        self._encoded: list[bytes] = []
        self._seen: tuple[npt.NDArray[np.int64], ...] = ()

    def encode(self, pod: Pod, slots: Iterable[int]) -> bytes:
        """Return the body of a request: `{"pod": <v1.Pod>, "nodes": [<v1.Node>...]}`, nodes in the order of `slots`."""
        self._follow()
        # A pod of a snapshot may name devices of the node that it ran on.
        body = msgspec.json.encode(pod_to_object(replace(pod, gpu_devices=())))
        nodes = b",".join([self._encoded[slot] for slot in slots])
        return b'{"pod":' + body + b',"nodes":[' + nodes + b"]}"

    def _follow(self) -> None:
        state, arrays = self._state, self._state.arrays
        now = (arrays.allocatable, arrays.free, arrays.nonzero, arrays.gpu_free, arrays.gpu_kinds)
        if len(self._encoded) != len(state.nodes) or [a.shape for a in now] != [a.shape for a in self._seen]:
            self._nodes, self._encoded = [None] * len(state.nodes), [b""] * len(state.nodes)
            changed = np.ones(len(state.nodes), dtype=np.bool_)
        else:
            changed = np.zeros(len(state.nodes), dtype=np.bool_)
            for array, seen in zip(now, self._seen, strict=True):
                changed |= (array != seen).any(axis=1)
        for slot, node in enumerate(state.nodes):
            if node is not None and (changed[slot] or node is not self._nodes[slot]):
                self._nodes[slot], self._encoded[slot] = node, self._node(node, slot)
        # Copies, since kernels change the arrays in place.
        self._seen = tuple(array.copy() for array in now)

    def _node(self, node: Node, slot: int) -> bytes:
        manifest = node_to_object(node)
        manifest["metadata"]["annotations"] = {FREE_KEY: free_annotation(self._state, slot)}
        return msgspec.json.encode(manifest)
