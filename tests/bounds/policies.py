"""Policies beside the built-in ones: one that was prepared elsewhere, and networks with random weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from tests.bounds.clusters import SHAPES, workload
from tests.support.weights import fgd_weights

from steersman.policies.base import Policy, default_member
from steersman.policies.features import GPU, VIEWS
from steersman.policies.files.policy_file import Card, prepare_policy, write_policy
from steersman.policies.kinds import stock_tuned
from steersman.policies.linear import LinearPolicy
from steersman.policies.registry import policy_path, resolve

FILES = ("prepared", "mlp", "cluster", "gpu", "telemetry")


def policy_of(name: str, folder: Path) -> Policy:
    """A policy by name: a built-in one, or one of `FILES`, which are written into the folder."""
    if name not in FILES:
        policy = resolve(name)
        # A choice among members, or configurations, takes hundreds of runs, which are slow here.
        return default_member(policy) if (tuned := stock_tuned(policy)) is None else tuned.today
    rng = np.random.default_rng(1)
    if name == "mlp":
        sizes = pairwise((len(GPU.node) + len(GPU.pod), 6, 4, 1))
        layers = tuple((rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in sizes)
        return LinearPolicy(name, fgd_weights(), network=layers)
    file = folder / f"{name}.safetensors"
    if name == "prepared":
        with policy_path("steersman") as shipped:
            there = workload(SHAPES["models that nobody names"], seed=5)
            write_policy(file, *prepare_policy(shipped, there, resolve("steersman").members[0]))
        return resolve(str(file))
    view = VIEWS[name]
    card = Card(
        name=name, view=view.name, view_version=view.version, network="linear", objective="balance", algorithm="ppo"
    )
    inputs = len(view.node) + len(view.pod) + len(view.context)
    weights = rng.normal(size=(4, inputs)).astype(np.float32)
    write_policy(file, card, {"head.weight": weights, "head.bias": np.zeros(4, dtype=np.float32)})
    return resolve(str(file))
