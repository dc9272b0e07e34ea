"""Networks by name: the class that learns, and the function that opens a network from a policy file.

An installed package adds a network by an entry point of the group `steersman.networks` that leads to a `NetworkSpec`.
Nothing is imported before a network is used. Policy files name registered networks only, so that opening a file imports
nothing that was not installed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steersman.core.extensions import Registry, import_object

NORMALISATIONS = ("none", "layer", "batch")


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A registered network.

    Attributes:
        name: as `--network` and policy files have it.
        body: `module:Class` of its `agents.networks.score_networks.Body`, made from a
            `agents.networks.spec.NetworkConfig`.
        opener: `module:function` that makes a `policies.network_policy.Network` of a policy file; "" where the core
            does. Its arguments are the file's name, its view, the outputs of each hidden layer, the normalisation
            (`none`, `layer` or `batch`, which is folded into the weights where that can be), and the arrays by name.
        help: text of `--help` after the name.
        has_layers: whether it has hidden layers, and so --hidden, --dropout and --normalisation.
        folds_batch_norm: whether batch normalisation can be multiplied into the weights of its layers.
    """

    name: str
    body: str
    opener: str = ""
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
    NetworkSpec("linear", "steersman.agents.networks.score_networks:LinearBody", has_layers=False),
    NetworkSpec("mlp", "steersman.agents.networks.score_networks:MlpBody"),
    NetworkSpec("deepsets", "steersman.agents.networks.score_networks:DeepSetsBody", help="(nodes seen together)"),
    NetworkSpec(
        "gnn",
        "steersman.agents.networks.graph_network:GraphBody",
        help="(nodes, racks, servers)",
        folds_batch_norm=False,
    ),
)
NETWORKS = tuple(spec.name for spec in BUILT_IN)


REGISTRY: Registry[NetworkSpec] = Registry(
    "network", "steersman.networks", NetworkSpec, {spec.name: spec for spec in BUILT_IN}
)
network_specs, network_names, find_network = REGISTRY.usable, REGISTRY.names, REGISTRY.find
