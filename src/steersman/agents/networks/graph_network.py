"""A graph network: attention between the pod, the nodes, their racks and their servers, by PyTorch Geometric.

Vertices: the pod, each present node, each rack, each server (a server's number counts within its rack). Edges go both
ways between a pod and every node, a node and its rack, a node and its server. Racks and servers start as the mean of
their nodes, so even one layer passes information from a node to its neighbours.

Each layer is GATv2 (Brody, Alon, Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022):

    a_ij = softmax over j of  a . leakyrelu(W_dst h_i + W_src h_j + W_edge e_ij)
    h_i' = relu(norm(W_res h_i + sum_j a_ij W_src h_j))

for each of up to four heads, concatenated; e_ij is the one-hot kind of the edge. A node's embedding
is [h_n, h_pod].
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from steersman.agents.networks.score_networks import Body, normalisation_layer, presence
from steersman.agents.networks.spec import NetworkConfig
from steersman.agents.networks.tensors import Tensors
from steersman.core.extras import require_extra

RELATIONS = 6  # pod to node and back, rack to node and back, server to node and back
OF_USE_AT_LAST = (0, 1, 2, 4)  # relations of the last layer: embeddings of racks and servers are not read after it
MAX_HEADS = 4


@cache
def _geometric() -> Any:
    """Return PyTorch Geometric's layers, imported when a graph network is first built."""
    require_extra("the network 'gnn'", "graph", "torch_geometric")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its modules use what torch deprecates
        return importlib.import_module("torch_geometric.nn.conv")


class GraphBody(Body):
    """The embedding of nodes in the graph of a cluster; `spec.hidden` are the widths of the attention layers."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        sizes, first = spec.sizes, spec.hidden[0]
        self.node = nn.Linear(sizes.node, first)
        self.pod = nn.Linear(sizes.pod + sizes.context, first)
        self.kind = nn.Parameter(torch.zeros(2, first))  # what racks and servers are, beside the mean of their nodes
        layer = _geometric().GATv2Conv
        self.attention = nn.ModuleList()
        self.norm = nn.ModuleList()
        for inputs, outputs in zip((first, *spec.hidden[:-1]), spec.hidden, strict=True):
            heads = next(h for h in range(MAX_HEADS, 0, -1) if outputs % h == 0)
            self.attention.append(
                layer(
                    inputs,
                    outputs // heads,
                    heads=heads,
                    dropout=spec.dropout,
                    edge_dim=RELATIONS,
                    add_self_loops=False,
                    residual=True,
                )
            )
            self.norm.append(normalisation_layer(spec.normalisation, outputs))
        self.dropout = nn.Dropout(spec.dropout)
        self.width = 2 * spec.hidden[-1]

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        """Return [M, 2 hidden[-1]] for the feasible nodes (batch [M], node [M])."""
        here = presence(observation) > 0
        b, n = here.nonzero(as_tuple=True)
        pods = functional.relu(self.pod(torch.cat([observation["pod"], observation["context"]], dim=-1)))
        nodes = functional.relu(self.node(observation["nodes"][b, n]))
        rack, server = _group_keys(observation["groups"], b, n)
        vertices, ways = self._graph(pods, nodes, b, rack, server)
        layers = [*zip(self.attention, self.norm, strict=True)]
        for i, (attention, norm) in enumerate(layers):
            # Edges are the same in all layers but the last, so they are joined twice at most.
            if i in (0, len(layers) - 1):
                edges, kinds = _joined(ways, range(RELATIONS) if i < len(layers) - 1 else OF_USE_AT_LAST)
            vertices = self.dropout(functional.relu(norm(attention(vertices, edges, kinds))))
        place = torch.zeros_like(here, dtype=torch.int64)
        place[b, n] = torch.arange(len(b), device=b.device) + len(pods)
        return torch.cat([vertices[place[batch, node]], vertices[batch]], dim=-1)

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return the first layers: one of the nodes, one of the pod and the context."""
        return [(self.node, slice(0, self.node.in_features)), (self.pod, slice(self.node.in_features, None))]

    def _graph(
        self, pods: Tensor, nodes: Tensor, b: Tensor, rack: Tensor, server: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return vertices [V, width] (pods, nodes, racks, servers) and, for each relation, its edges [2, L] from-to."""
        own = torch.arange(len(nodes), device=b.device) + len(pods)
        vertices, pairs = [pods, nodes], [(b, own)]
        for kind, key in zip(self.kind, (rack, server), strict=True):
            members = (key >= 0).nonzero().squeeze(1)
            groups, group = torch.unique(key[members], return_inverse=True)
            count = torch.bincount(group, minlength=len(groups)).unsqueeze(1)
            mean = nodes.new_zeros(len(groups), nodes.shape[1]).index_add(0, group, nodes[members]) / count
            # Vertices of earlier groups come before this one's.
            pairs.append((group + sum(len(part) for part in vertices), own[members]))
            vertices.append(mean + kind)
        # Each pair of ends gives two relations: from, to; and back.
        return torch.cat(vertices), [way for pair in pairs for way in (torch.stack(pair), torch.stack(pair[::-1]))]


def _joined(ways: Sequence[Tensor], relations: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return the edges [2, L] of some relations, and their kinds [L, 6], one-hot."""
    chosen = list(relations)
    lengths = torch.tensor([ways[relation].shape[1] for relation in chosen], device=ways[0].device)
    kinds = torch.tensor(chosen, device=ways[0].device).repeat_interleave(lengths)
    return torch.cat([ways[relation] for relation in chosen], dim=1), functional.one_hot(kinds, RELATIONS).float()


def _group_keys(groups: Tensor, b: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return [P] numbers of each node's rack and server in its batch, -1 for none. Servers count within racks."""
    rack, server = groups[b, n].unbind(-1)
    # Numbers run from -1 to max, so max + 2 values: keys of different observations cannot meet.
    racks = int(groups[..., 0].amax()) + 2 if groups.numel() else 1
    servers = int(groups[..., 1].amax()) + 1 if groups.numel() else 1
    rack_key = b * racks + rack + 1
    return torch.where(rack >= 0, rack_key, -1), torch.where(server >= 0, rack_key * max(servers, 1) + server, -1)
