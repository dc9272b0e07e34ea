"""Observations for networks, as tensors, sampled, stacked and packed; and nodes drawn by their scores, a softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Arrays = dict[str, npt.NDArray[Any]]
"""An observation: `nodes` float32 [E, N, Fn], `pod` [E, Fp], `context` [E, Fc], `mask` int8 [E, N], `groups` [E, N, 2].

`weight` float32 [E, N] may be there too: how many nodes a row stands for (0: none), where rows are a sample."""
Tensors = dict[str, Tensor]  # the same with `mask` bool and `groups` int64

Actions = npt.NDArray[np.int64]

FEASIBLE_SHARE = 0.75  # share of feasible candidates; the others represent the rest of the cluster


def log_probabilities(scores: Tensor) -> Tensor:
    """Return [B, N] the log softmax of scores; masked ones are so low that their probability is exactly zero."""
    return torch.log_softmax(scores, dim=-1)


def entropy(log_probability: Tensor, mask: Tensor) -> Tensor:
    """Return [B] the entropy -sum p log p over the feasible nodes, in nats."""
    term = log_probability.exp() * log_probability
    return -torch.where(mask, term, torch.zeros_like(term)).sum(-1)


def draw(scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], rng: np.random.Generator) -> Actions:
    """Return [E] rows drawn from the softmax over the feasible nodes, by the Gumbel-max trick (Gumbel, 1954)."""
    noisy = scores.astype(np.float64) + rng.gumbel(size=scores.shape)
    rows: Actions = np.where(mask, noisy, -np.inf).argmax(1)
    return rows


def as_tensors(observation: Mapping[str, npt.NDArray[Any]], device: torch.device) -> Tensors:
    """Return a copy of the observation on `device`."""
    tensors = {
        name: torch.tensor(observation[name], dtype=torch.float32, device=device)
        for name in ("nodes", "pod", "context", "weight")
        if name in observation
    }
    tensors["mask"] = torch.tensor(observation["mask"], dtype=torch.bool, device=device)
    tensors["groups"] = torch.tensor(observation["groups"], dtype=torch.int64, device=device)
    return tensors


def take(observation: Mapping[str, npt.NDArray[Any]], index: Any) -> Arrays:
    """Return copies of the observations at `index` of the first axis: environments may reuse their buffers."""
    return {name: np.array(array[index]) for name, array in observation.items()}


def stack(observations: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Arrays:
    """Return single observations, stacked along a new first axis."""
    return {name: np.stack([one[name] for one in observations]) for name in observations[0]}


def replace_rows(observation: Arrays, rows: npt.NDArray[np.bool_], other: Arrays) -> Arrays:
    """Return `observation` with the entries [E] at `rows` from `other`, whose first axis counts those rows alone."""
    replaced = {name: array.copy() for name, array in observation.items()}
    for name, array in replaced.items():
        array[rows] = other[name]
    return replaced


@dataclass(frozen=True, slots=True)
class CandidateSample:
    """The observation that an agent acts on: some of the nodes, and their slots."""

    observation: Arrays  # as an environment gives it, with K rows for nodes (and their `weight`) if they are a sample
    slots: Actions | None  # int64 [E, K] the node slot of each row, or None if the rows are the slots

    def to_slots(self, rows: Actions) -> Actions:
        """Return node slots [E] of the chosen rows [E]."""
        return rows if self.slots is None else self.slots[np.arange(len(rows)), rows]

    def to_rows(self, slots: Actions) -> Actions:
        """Return rows [E] of the node slots [E], which must be in the sample."""
        return slots if self.slots is None else (self.slots == slots[:, None]).argmax(1)

    def offers(self, slots: Actions) -> bool:
        """Return whether all node slots [E] are in the sample, as feasible nodes."""
        mask = self.observation["mask"] > 0
        row_slots = np.arange(mask.shape[1]) if self.slots is None else self.slots
        return bool(((row_slots == slots[:, None]) & mask).any(1).all())


def sample_candidates(
    observation: Mapping[str, npt.NDArray[Any]],  # [E, ...] of N nodes
    candidates: int,  # K, number of nodes to keep
    rng: np.random.Generator,  # draws the sample
    include: Actions | None = None,  # int64 [E] feasible slots that must be in it (the action of a teacher), or None
) -> CandidateSample:
    """Return a random subset of the nodes, so that learning on clusters of thousands stays small: 0 keeps all.

    As kube-scheduler scores a sample of a large cluster's nodes, so does the agent while it learns: it decides among
    the candidates and learns from them alone. Up to three quarters are feasible nodes, the others represent the
    remainder of the cluster; if there are too few of one sort, the other fills up. `weight` is the number of nodes that
    each row stands for, so that means over the rows are means over the cluster.
    """
    if candidates <= 0 or candidates >= observation["mask"].shape[1]:
        return CandidateSample({name: np.array(array) for name, array in observation.items()}, None)
    feasible = observation["mask"] > 0
    present = feasible | (observation["nodes"] != 0).any(-1)
    keys = rng.random(feasible.shape)
    if include is not None:
        keys[np.arange(len(keys)), include] = -1.0
    # Keys below 1 for feasible nodes in random order, from 2 for the others, from 4 for empty rows.
    order = np.argsort(keys + 2.0 * ~feasible + 2.0 * ~present, axis=1)
    n_feasible, n_present = feasible.sum(1), present.sum(1)
    n_other = n_present - n_feasible
    share = max(1, int(FEASIBLE_SHARE * candidates))
    kept_feasible = np.minimum(n_feasible, np.maximum(share, candidates - n_other))
    kept_other = np.minimum(n_other, candidates - kept_feasible)
    row = np.arange(candidates)[None, :]
    # The first places of `order` are feasible nodes; the others follow after all feasible ones, hence the gap.
    is_feasible = row < kept_feasible[:, None]
    is_other = ~is_feasible & (row < (kept_feasible + kept_other)[:, None])
    skipped = (n_feasible - kept_feasible)[:, None]  # none where the cluster has fewer than K nodes
    slots = np.take_along_axis(order, np.where(is_feasible, row, row + skipped), 1)
    weight = np.where(is_feasible, (n_feasible / np.maximum(kept_feasible, 1))[:, None], 0.0)
    weight = np.where(is_other, (n_other / np.maximum(kept_other, 1))[:, None], weight)
    copies = np.arange(len(slots))[:, None]
    reduced: Arrays = {name: np.array(observation[name]) for name in ("pod", "context")}
    for name in ("nodes", "mask", "groups"):
        reduced[name] = observation[name][copies, slots]
    reduced["mask"] = reduced["mask"] * is_feasible.astype(np.int8)
    reduced["weight"] = weight.astype(np.float32)
    return CandidateSample(reduced, slots.astype(np.int64))


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    """Return arrays as tensors that share no memory with them, so that a checkpoint can be read without pickle."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def unpack(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
