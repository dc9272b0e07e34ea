"""Policies beside the built-in ones: one that was prepared elsewhere, and networks with random weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from tests.bounds.clusters import SHAPES, workload
from tests.support.weights import fgd_weights

from steersman.cluster.model import ProfileRules
from steersman.policies.base import Policy, default_member
from steersman.policies.features import GPU, VIEWS
from steersman.policies.files.policy_file import Card, prepare_policy, write_policy
from steersman.policies.kinds import stock_tuned
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.linear import LinearPolicy
from steersman.policies.node_scores.kube_arrays import HOSTNAME
from steersman.policies.node_scores.kube_minors import MINORS
from steersman.policies.node_scores.kube_profile import (
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    DefaultSpread,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.registry import policy_path, resolve

FILES = ("prepared", "mlp", "cluster", "gpu", "telemetry")
PROFILES = {
    "ratio": KubeProfile(
        fit=ScoringStrategy(REQUESTED_TO_CAPACITY, (("cpu", 1), ("nvidia.com/gpu", 5)), ((0, 100), (40, 20), (70, 90))),
        balanced=("cpu", "memory", "nvidia.com/gpu"),
        ignores_existing=True,
    ),
    "most": KubeProfile(
        fit=ScoringStrategy(MOST_ALLOCATED, (("nvidia.com/gpu", 5), ("ephemeral-storage", 1), ("absent", 1))),
        default_spread=(DefaultSpread(1, HOSTNAME, hard=False),),
        minor=MINORS["1.35"],
        rules=ProfileRules(frozenset({"InterPodAffinity", "PodTopologySpread"}), hard_affinity_weight=0),
    ),
}


def policy_of(name: str, folder: Path) -> Policy:
    """A policy by name: a built-in one, one of `PROFILES`, or one of `FILES`, which are written into the folder."""
    if name not in (*FILES, *PROFILES):
        policy = resolve(name)
        # A choice among members, or configurations, takes hundreds of runs, which are slow here.
        return default_member(policy) if (tuned := stock_tuned(policy)) is None else tuned.today
    if name in PROFILES:
        return KubeSchedulerPolicy(profile=PROFILES[name])
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
