"""Sampling nodes by their scores: the softmax over the feasible nodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from steersman.agents.networks.tensors import Actions


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
