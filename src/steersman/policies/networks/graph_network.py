"""Inference of the graph network with NumPy alone: attention between the pod, the nodes, their racks and their servers.

`steersman.agents.networks.graph_network` defines what it computes and the names of its arrays, and trains it with
PyTorch Geometric; inference needs neither. Edges are sorted by target, so that the softmax over the edges into a vertex
is a reduction over a contiguous range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.policies.features import View
from steersman.policies.networks.layers import (
    EPSILON,
    Array,
    Arrays,
    Flags,
    Shapes,
    check_arrays,
    head_shapes,
    masked_scores,
    normalise_rows,
    present,
)

RELATIONS = 6  # kinds of edges: pod to node and back, rack to node and back, server to node and back

MAX_HEADS = 4
SLOPE = np.float32(0.2)  # negative slope of the leaky ReLU of attention

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Edges:
    """L edges, sorted by target; every vertex has at least one incoming edge."""

    # `source`, `target`: [L] vertices.
    source: Integers
    target: Integers
    kind: Integers  # [L] one of the `RELATIONS`
    first: Integers  # [V] the first edge into each vertex


@dataclass(frozen=True, eq=False, slots=True)
class Attention:
    """One layer: relu(norm(W_res h_i + b + sum_j a_ij W_src h_j)), GATv2."""

    # `source`, `target`: weight [inputs, outputs] and bias [outputs] of an edge's source and target.
    source: tuple[Array, Array]
    target: tuple[Array, Array]
    residual: Array  # [inputs, outputs]
    relation: Array  # [6, outputs] embedding of the kind of edge
    attend: Array  # [heads, outputs / heads]
    bias: Array  # [outputs]
    norm: tuple[Array, Array] | None  # scale and shift [outputs] of layer or batch normalisation, None without
    running: tuple[Array, Array] | None  # mean and variance [outputs] of batch normalisation, None without

    def apply(self, vertices: Array, edges: Edges) -> Array:
        """Map vertices [V, inputs] to [V, outputs]."""
        heads, width = self.attend.shape
        brought = (vertices @ self.source[0] + self.source[1])[edges.source]
        met = (vertices @ self.target[0] + self.target[1])[edges.target]
        met += brought
        met += self.relation[edges.kind]
        # Leaky ReLU: max(x, 0.2 x).
        np.maximum(met, SLOPE * met, out=met)
        logits = np.einsum("lhw,hw->lh", met.reshape(-1, heads, width), self.attend)
        logits -= np.maximum.reduceat(logits, edges.first)[edges.target]
        share = np.exp(logits)
        share /= np.add.reduceat(share, edges.first)[edges.target]
        brought *= np.repeat(share, width, axis=1)
        rows = np.add.reduceat(brought, edges.first)
        rows += vertices @ self.residual
        rows += self.bias
        return self._finish(rows)

    def _finish(self, rows: Array) -> Array:
        if self.running is not None:
            rows -= self.running[0]
            rows /= np.sqrt(self.running[1] + EPSILON)
        elif self.norm is not None:
            normalise_rows(rows)
        if self.norm is not None:
            rows *= self.norm[0]
            rows += self.norm[1]
        return np.maximum(rows, np.float32(0.0), out=rows)


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """The whole network."""

    # `node`, `pod`: weight [inputs, width] and bias [width] of the initial embedding of vertices.
    node: tuple[Array, Array]
    pod: tuple[Array, Array]
    group: Array  # [2, width] embeddings of racks and servers, added to the mean of their nodes
    layers: tuple[Attention, ...]  # layers of attention
    head: tuple[Array, Array]  # weight [2 outputs] and bias [1] over [node, pod]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        here = present(nodes, mask)
        # Without a feasible node no score is needed; without any node `groups.max` would fail.
        if not mask.any():
            return masked_scores(mask, np.zeros(0, dtype=np.float32))
        own = np.maximum(nodes[here] @ self.node[0] + self.node[1], np.float32(0.0))
        one = np.maximum(np.concatenate([pod, context]) @ self.pod[0] + self.pod[1], np.float32(0.0))
        vertices, edges = self._graph(one, own, groups[here].astype(np.int64))
        for layer in self.layers:
            vertices = layer.apply(vertices, edges)
        width = vertices.shape[1]
        rows = vertices[1 : 1 + len(own)][mask[here]]
        return masked_scores(mask, rows @ self.head[0][:width] + (vertices[0] @ self.head[0][width:] + self.head[1]))

    def _graph(self, pod: Array, nodes: Array, groups: Integers) -> tuple[Array, Edges]:
        """Return vertices [V, width] (the pod, nodes, racks, servers) and edges both ways between them."""
        count = len(nodes)
        own = np.arange(1, 1 + count)
        vertices, pairs, total = [pod[None], nodes], [(np.zeros(count, dtype=np.int64), own)], 1 + count
        # A server's number counts within its rack.
        keys = (
            groups[:, 0],
            np.where(groups[:, 1] >= 0, (groups[:, 0] + 1) * (groups[:, 1].max() + 2) + groups[:, 1], -1),
        )
        for start, key in zip(self.group, keys, strict=True):
            members = np.flatnonzero(key >= 0)
            distinct, group, size = np.unique(key[members], return_inverse=True, return_counts=True)
            order = np.argsort(group, kind="stable")
            first = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
            if len(distinct):
                vertices.append(
                    np.add.reduceat(nodes[members[order]], first) / size[:, None].astype(np.float32) + start
                )
            pairs.append((group + total, own[members]))
            total += len(distinct)
        return np.concatenate(vertices), _edges(pairs, total)


def _edges(pairs: list[tuple[Integers, Integers]], vertices: int) -> Edges:
    source = np.concatenate([end for pair in pairs for end in pair])
    target = np.concatenate([end for pair in pairs for end in pair[::-1]])
    kind = np.repeat(np.arange(RELATIONS), np.repeat([len(pair[0]) for pair in pairs], 2))
    order = np.argsort(target, kind="stable")
    # Every vertex has an edge, so each start is that of a range that is not empty.
    first = np.searchsorted(target[order], np.arange(vertices))
    return Edges(source[order], target[order], kind[order], first)


def open_graph(file: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays) -> Graph:
    """Return the network of its arrays. Raises InputError: one is missing, of another shape, or unknown."""
    check_arrays(file, _shapes(view, hidden, normalisation), arrays)
    single = {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}

    def linear(name: str) -> tuple[Array, Array]:
        return np.ascontiguousarray(single[f"{name}.weight"].T), single[f"{name}.bias"]

    def layer(i: int) -> Attention:
        name = f"attention.{i}"
        norm = single.get(f"norm.{i}.weight"), single.get(f"norm.{i}.bias")
        running = single.get(f"norm.{i}.running_mean"), single.get(f"norm.{i}.running_var")
        return Attention(
            source=linear(f"{name}.lin_l"),
            target=linear(f"{name}.lin_r"),
            residual=np.ascontiguousarray(single[f"{name}.res.weight"].T),
            relation=np.ascontiguousarray(single[f"{name}.lin_edge.weight"].T),
            attend=single[f"{name}.att"][0],
            bias=single[f"{name}.bias"],
            norm=None if norm[0] is None or norm[1] is None else (norm[0], norm[1]),
            running=None if running[0] is None or running[1] is None else (running[0], running[1]),
        )

    return Graph(
        node=linear("node"),
        pod=linear("pod"),
        group=single["kind"],
        layers=tuple(layer(i) for i in range(len(hidden))),
        head=(single["head.weight"][0], single["head.bias"]),
    )


def _shapes(view: View, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    first = hidden[0]
    shapes: Shapes = {
        "node.weight": (first, len(view.node)),
        "node.bias": (first,),
        "pod.weight": (first, len(view.pod) + len(view.context)),
        "pod.bias": (first,),
        "kind": (2, first),
    }
    norm = {"none": (), "layer": ("weight", "bias"), "batch": ("weight", "bias", "running_mean", "running_var")}
    for i, (inputs, outputs) in enumerate(zip((first, *hidden[:-1]), hidden, strict=True)):
        heads = next(h for h in range(MAX_HEADS, 0, -1) if outputs % h == 0)
        layer = f"attention.{i}"
        shapes[f"{layer}.att"] = (1, heads, outputs // heads)
        shapes[f"{layer}.bias"] = shapes[f"{layer}.lin_l.bias"] = shapes[f"{layer}.lin_r.bias"] = (outputs,)
        for part in ("lin_l", "lin_r", "res"):
            shapes[f"{layer}.{part}.weight"] = (outputs, inputs)
        shapes[f"{layer}.lin_edge.weight"] = (outputs, RELATIONS)
        for part in norm[normalisation]:
            shapes[f"norm.{i}.{part}"] = (outputs,)
    return shapes | head_shapes(2 * hidden[-1])
