"""Networks by name: the class that learns, and the function that opens a network from a policy file.

An installed package adds a network by an entry point of the group `steersman.networks` that leads to a `NetworkSpec`.
Nothing is imported before a network is used. Policy files name registered networks only, so that opening a file imports
nothing that was not installed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steersman.core.extensions import Registry, import_object


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A registered network.

    Attributes:
        name: as `--network` and policy files have it.
        body: `module:Class` of its `agents.networks.score_networks.Body`, made from a
            `agents.networks.spec.NetworkConfig`.
        opener: `module:function` that makes a `policies.networks.numpy_networks.Network` of the arrays of a policy
            file; it has the arguments file, view, hidden, normalisation and arrays, see
            `policies.networks.numpy_networks.open_network`.
        help: text of `--help` after the name.
        has_layers: whether it has hidden layers, and so --hidden, --dropout and --normalisation.
        folds_batch_norm: whether batch normalisation can be multiplied into the weights of its layers.
    """

    name: str
    body: str
    opener: str
    help: str = ""
    has_layers: bool = True
    folds_batch_norm: bool = True

    def load_body(self) -> Any:
        """Import the class of its body. Raises SteersmanError: it cannot be imported."""
        return import_object("network", self.body)

    def load_opener(self) -> Any:
        """Import its opener. Raises SteersmanError: it cannot be imported."""
        return import_object("network", self.opener)


BUILT_IN = (
    NetworkSpec(
        "linear",
        "steersman.agents.networks.score_networks:LinearBody",
        "steersman.policies.networks.numpy_networks:open_linear",
        has_layers=False,
    ),
    NetworkSpec(
        "mlp", "steersman.agents.networks.score_networks:MlpBody", "steersman.policies.networks.numpy_networks:open_mlp"
    ),
    NetworkSpec(
        "deepsets",
        "steersman.agents.networks.score_networks:DeepSetsBody",
        "steersman.policies.networks.numpy_networks:open_deepsets",
        help="(nodes seen together)",
    ),
    NetworkSpec(
        "gnn",
        "steersman.agents.networks.graph_network:GraphBody",
        "steersman.policies.networks.graph_network:open_graph",
        help="(nodes, racks, servers)",
        folds_batch_norm=False,
    ),
)
NETWORKS = tuple(spec.name for spec in BUILT_IN)


REGISTRY: Registry[NetworkSpec] = Registry(
    "network", "steersman.networks", NetworkSpec, {spec.name: spec for spec in BUILT_IN}
)
network_specs, network_names, find_network = REGISTRY.usable, REGISTRY.names, REGISTRY.find
