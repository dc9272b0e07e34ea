"""Writes the shared vectors (`python -m tests.contract.make`): the same every time, but for what policies become.

Policies are heuristics, what the policy `steersman` may decide by, and random weights, each with the mix of a workload.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from tests.contract.cases import FILE, FOLDER, Json, answers, open_as_said, policy_files, told
from tests.support.weights import fgd_weights

from steersman.cluster.model import GPU_MILLI, UNLIMITED
from steersman.policies.base import Policy
from steersman.policies.decision.description import VIEW_NUMBERS
from steersman.policies.features import POD_KINDS, VIEWS, View
from steersman.policies.learned_weights import RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import dense_shapes, head_shapes, joint_size
from steersman.policies.policy_file import Card, prepare_policy, write_policy
from steersman.policies.portfolios import blends
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.run import Simulator
from steersman.simulation.selection.fitting import FITTED
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import TypicalPod

SEED = 11
CLUSTERS, PODS = 60, 20
WORKLOADS = ("default", "gpuspec25")
HEURISTICS = (
    "best-fit",
    "gpu-packing",
    "gpu-clustering",
    "dot-product",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
)


class Drawn(NamedTuple):
    """A policy of random weights."""

    network: str
    view: str
    workload: str
    hidden: tuple[int, ...] = ()
    normalisation: str = "none"
    context: bool = False  # whether it sees the cluster


DRAWN = {
    "linear": Drawn("linear", "gpu", "default"),
    "mlp": Drawn("mlp", "gpu", "default", (16,)),
    "mlp-deep": Drawn("mlp", "gpu", "gpuspec25", (7, 5)),
    "cluster-linear": Drawn("linear", "cluster", "gpuspec25", context=True),
    "cluster-mlp": Drawn("mlp", "cluster", "default", (8, 6), "layer", context=True),
    "cluster-deepsets": Drawn("deepsets", "cluster", "gpuspec25", (6, 6), context=True),
    "gpu-linear": Drawn("linear", "gpu", "default", context=True),
    "gpu-mlp": Drawn("mlp", "gpu", "gpuspec25", (8,), context=True),
    "gpu-deepsets": Drawn("deepsets", "gpu", "default", (6,), "layer", context=True),
}
SHIPPED = {"steersman-default": blends()[-1].name, "steersman-gpuspec25": FITTED, "steersman-rule": "gpu-packing"}
"""What the policy `steersman` may decide by, by the name of the file."""
POLICIES: tuple[Json, ...] = (
    *({"name": f"fgd-{workload}", "local": "fgd", "file": f"steersman-{workload}"} for workload in WORKLOADS),
    *({"name": name, "local": name, "file": "steersman-default"} for name in HEURISTICS),
    *({"name": name, "file": name} for name in (*SHIPPED, *DRAWN)),
)
SIZES = (100, 190, 220, 250, 470, 500, 810, 900)  # milli of shares

Random = np.random.Generator


def random_policy(name: str, drawn: Drawn, rng: Random) -> tuple[Card, dict[str, np.ndarray]]:
    """Random weights, without a mix."""
    view = VIEWS[drawn.view]
    card = Card(
        name=name,
        view=view.name,
        view_version=view.version,
        network=drawn.network,
        hidden=drawn.hidden,
        normalisation=drawn.normalisation,
        objective="allocation",
        algorithm="random",
    )
    if drawn.context:
        return card, random_network(drawn, joint_size(view), rng)
    if not drawn.hidden:
        return card, {
            "weights": rng.normal(size=(POD_KINDS, WEIGHTS)),
            "rules": rng.normal(size=(POD_KINDS, RULE_COUNT)),
        }
    widths = (len(view.node) + len(view.pod), *drawn.hidden, 1)
    layers = tuple((rng.normal(size=(b, a)) / np.sqrt(a), rng.normal(size=b)) for a, b in pairwise(widths))
    weights = fgd_weights() + 0.01 * rng.normal(size=(POD_KINDS, WEIGHTS))
    return card, LinearPolicy(name, weights, network=layers).tensors()


def random_network(drawn: Drawn, joint: int, rng: Random) -> dict[str, np.ndarray]:
    """The arrays of a network that sees the cluster."""
    hidden, normalisation = drawn.hidden, drawn.normalisation
    shapes = {
        "linear": lambda: {"head.weight": (POD_KINDS, joint), "head.bias": (POD_KINDS,)},
        "mlp": lambda: dense_shapes("layers", joint, hidden, normalisation) | head_shapes(hidden[-1]),
        "deepsets": lambda: (
            dense_shapes("phi", joint, hidden, normalisation)
            | dense_shapes("rho", 2 * hidden[-1], hidden, normalisation)
            | head_shapes(hidden[-1])
        ),
    }[drawn.network]()
    scales = {name: 1.0 / np.sqrt(shape[-1]) if len(shape) > 1 else 1.0 for name, shape in shapes.items()}
    return {name: (rng.normal(size=shape) * scales[name]).astype(np.float32) for name, shape in shapes.items()}


def write_files(rng: Random) -> None:
    """The policy files, packed."""
    for old in FOLDER.glob("*.safetensors.gz"):
        old.unlink()
    with TemporaryDirectory() as folder:
        for (name, member), workload in zip(SHIPPED.items(), (*WORKLOADS, WORKLOADS[0]), strict=True):
            with policy_path("steersman") as shipped:
                write_prepared(Path(folder, f"{name}.safetensors"), shipped, workload, member_of(member))
        for name, drawn in DRAWN.items():
            file = Path(folder, f"{name}.safetensors")
            write_policy(file, *random_policy(name, drawn, rng))
            write_prepared(file, file, drawn.workload)


def member_of(name: str) -> Policy:
    """A member of the policy `steersman`, or the one that is fitted to a small workload."""
    policy = resolve("steersman")
    fitted = Simulator(embedded("default-small")).member(policy).policy if name == FITTED else None
    return next(each for each in (*policy.members, fitted) if each is not None and each.name == name)


def write_prepared(file: Path, policy: Path, workload: str, member: Policy | None = None) -> None:
    """Write a policy, or a member of it, with the mix of a workload, and pack it."""
    write_policy(file, *prepare_policy(policy, embedded(workload), member))
    pack(FOLDER / f"{file.name}.gz", file.read_bytes())


def pack(file: Path, content: bytes) -> None:
    """Write a compressed file; the same content gives the same bytes."""
    file.write_bytes(gzip.compress(content, 9, mtime=0))


def random_node(rng: Random, name: str, models: list[str]) -> Json:
    """A node: empty, full, or anything in between; a third have no GPU."""
    cpu, memory = int(rng.choice([16_000, 32_000, 64_000, 96_000, 128_000])), int(rng.choice([64, 131, 256])) << 30
    pods, fill = int(rng.choice([UNLIMITED, 110, 12])), rng.choice(["empty", "full", "some"], p=[0.15, 0.1, 0.75])
    count = int(rng.choice([0, 1, 2, 4, 8], p=[0.3, 0.1, 0.2, 0.2, 0.2]))
    used = {"empty": 0.0, "full": 1.0, "some": float(rng.random())}[str(fill)]
    cpu_used, memory_used = (int(total * used * rng.uniform(0.3, 1.0)) for total in (cpu, memory))
    pods_used = min(pods, int(used * 12))
    return {
        "name": name,
        "cpu": [cpu, cpu - cpu_used if rng.random() < 0.96 else -500],  # below zero: the node shrank
        "memory": [memory, memory - memory_used],
        "pods": [pods, pods - pods_used],
        "scored": [cpu_used + 100 * int(rng.integers(3)), memory_used + (200 << 20) * int(rng.integers(3))],
        "model": str(rng.choice(models)) if count and rng.random() < 0.9 else "",
        "gpu_free": [random_left(rng, used) for _ in range(count)],
        "gpu_pods": [int(rng.integers(4)) if used and rng.random() < 0.4 else 0 for _ in range(count + 1)],
        "rack": str(rng.choice(["", "a", "b"])),
    }


def random_left(rng: Random, used: float) -> int:
    """What is left of a device: all, nothing, what shares leave, or any whole number."""
    if rng.random() >= used:
        return GPU_MILLI
    if rng.random() < 0.35:
        return 0
    if rng.random() < 0.2:
        return int(rng.integers(GPU_MILLI + 1))
    left = GPU_MILLI
    for size in rng.choice(SIZES, size=3):
        left -= int(size) if size <= left else 0
    return left


def random_pod(rng: Random, models: list[str], nodes: int) -> Json:
    """A pod of any of the four kinds; now and then several parts of devices, or models that it insists on.

    `owner_pods` are [node, running pods of its owner].
    """
    kind = rng.choice(["none", "share", "one", "several", "parts"], p=[0.2, 0.4, 0.2, 0.17, 0.03])
    count, milli = {
        "none": (0, 0),
        "share": (1, int(rng.choice(SIZES))),
        "one": (1, GPU_MILLI),
        "several": (int(rng.choice([2, 4, 8])), GPU_MILLI),
        "parts": (2, int(rng.choice([250, 500]))),
    }[str(kind)]
    cpu, memory = int(rng.choice([0, 500, 2000, 3152, 4000, 8000, 11908])), int(rng.choice([0, 1, 16, 24])) << 30
    chosen = sorted(rng.choice(models, size=2, replace=False).tolist()) if count and rng.random() < 0.15 else []
    scored = [cpu or 100, memory or 200 << 20]
    owner_pods = sorted({int(n) for n in rng.integers(nodes, size=3)}) if rng.random() < 0.4 else []
    return {
        "cpu": cpu,
        "memory": memory,
        "scored": scored,
        "gpu_count": count,
        "gpu_milli": milli,
        "models": chosen,
        "peers": [[n, int(rng.integers(1, 6))] for n in owner_pods],
    }


def random_cluster(rng: Random, models: list[str]) -> Json:
    """A few nodes, pods that each come to the same state of these."""
    nodes = int(rng.integers(4, 13))
    return {
        "nodes": [random_node(rng, f"n{i}", models) for i in range(nodes)],
        "waiting": int(rng.integers(30)),
        "pods": [random_pod(rng, models, nodes) for _ in range(PODS)],
    }


def answer(cluster: Json, opened: dict[str, tuple[Policy, tuple[TypicalPod, ...]]]) -> None:
    """Write the answers of all policies into a cluster, and drop pods of which one is not clear."""
    found = {name: answers(cluster, policy, profile) for name, (policy, profile) in opened.items()}
    kept = np.all([each.clear for each in found.values()], axis=0)
    cluster["pods"] = [pod for pod, keep in zip(cluster["pods"], kept, strict=True) if keep]
    cluster["answers"] = {name: told(each, kept) for name, each in found.items()}


def view_said(view: View) -> Json:
    """What a view is, for readers in other languages."""
    bounds = [[feature.low, feature.high] for feature in view.node]
    return {"version": view.version, "node": bounds, "pod": len(view.pod), "context": len(view.context)}


def main() -> None:
    """Write everything."""
    rng = np.random.default_rng(SEED)
    write_files(rng)
    models = sorted({node.gpu_model for node in embedded(WORKLOADS[0]).nodes} - {""})
    clusters = [random_cluster(rng, models) for _ in range(CLUSTERS)]
    with policy_files() as files:
        opened = {said["name"]: open_as_said(said, files) for said in POLICIES}
        for cluster in clusters:
            answer(cluster, opened)
    views = {name: view_said(VIEWS[name]) for name in VIEW_NUMBERS}
    content = {"views": views, "policies": POLICIES, "clusters": clusters}
    pack(FILE, json.dumps(content, separators=(",", ":")).encode())
    pods = sum(len(cluster["pods"]) for cluster in clusters)
    print(f"{pods} pods on {CLUSTERS} clusters, {len(POLICIES) * pods} cases, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
