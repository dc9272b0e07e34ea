"""Policy files of small networks with random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import FeatureCounts
from steersman.policies.features import View
from steersman.policies.policy_file import Card, write_policy


def network_card(
    view: View, network: str = "mlp", hidden: tuple[int, ...] = (8,), normalisation: str = "none", **more: object
) -> Card:
    """Return the card of a network that gradients trained; `more` are further fields, or other values of these."""
    fields = {"network": network, "hidden": () if network == "linear" else hidden, "normalisation": normalisation}
    fields |= {"view": view.name, "view_version": view.version}
    return Card(**{"name": "n", "objective": "balance", "algorithm": "dqn"} | fields | more)  # type: ignore[arg-type]


def shake(network: torch.nn.Module, by: float = 0.3, seed: int = 2) -> None:
    """Change weights at random: those of a new network hardly tell nodes apart."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)


def sizes(view: View) -> FeatureCounts:
    """Return how many features a view has."""
    return FeatureCounts(len(view.node), len(view.pod), len(view.context))


def network_file(folder: Path, view: View, name: str = "mlp") -> str:
    """Write a network on a view, and return its file."""
    network = build(name, sizes(view), (8,), 0.0, "none", seed=1)
    shake(network)
    file = folder / f"{name}-{view.name}.safetensors"
    write_policy(file, network_card(view, name), export(network.eval(), fold=name != "gnn"))
    return str(file)
