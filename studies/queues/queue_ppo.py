"""PPO over the queue: attention over the waiting jobs gives each a score, and the next one is drawn by them.

The score of a job is that of a linear order, with the sign of a preference, plus the output of a network that begins at
0; the linear part begins as a known order. The critic knows the window: what is left to arrive, and what shortest
first has cost by now and will cost from here. What comes does not depend on the choices, so that a baseline may know it
and nothing becomes biased (Mao et al., "Variance Reduction for Reinforcement Learning in Input-Driven Environments",
2019). The reward is the growth of the cost between two choices with the other sign, and with `gamma` 1 its sum is the
cost of the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from steersman.orders.scores import LINEAR
from studies.queues import pool

TERMS = tuple(name for name in LINEAR if name != "spread")
"""Terms of the linear part; the spread of estimates is 0 where run times are known."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PPOConfig:
    """Options of a training.

    Attributes:
        start: the linear order of the start, weights of `TERMS`.
        sharpness: length of the weights that `start` is scaled to: the larger, the less is explored.
        decisions: when the training ends.
        envs: E, windows that are played at once.
        rollout: T, decisions in each of them between two updates.
        rows: M, waiting jobs that the network sees.
        width: units of a layer.
        layers: layers of attention; 0: each job is scored for itself.
        heads: of attention.
        gamma: discount.
        gae_lambda: decay of generalised advantages.
        clip_range: of the ratio of probabilities.
        learning_rate: at the start; it falls to 0.
        epochs: how often a decision is learned from.
        batch_size: decisions of a gradient step.
        max_grad_norm: longest gradient.
        target_kl: divergence from the policy that played after which a rollout is not learned from again.
        pooled: see `pool.reference_of`.
        validate_every: decisions between two validations.
        seed: of everything.
    """

    start: tuple[float, ...]
    sharpness: float = 15.0
    decisions: int = 20_000_000
    envs: int = 512
    rollout: int = 128
    rows: int = 128
    width: int = 64
    layers: int = 2
    heads: int = 4
    gamma: float = 1.0
    gae_lambda: float = 0.98
    clip_range: float = 0.2
    learning_rate: float = 1e-3
    epochs: int = 3
    batch_size: int = 8192
    max_grad_norm: float = 0.5
    target_kl: float = 0.02
    pooled: float = 0.7
    validate_every: int = 1_000_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class PPOTask:
    """What is trained on.

    Attributes:
        jobs: of all traces.
        traces: [J] number of each job's trace.
        arrivals: of a window.
        starts: first jobs of windows for training.
        validation: [traces, V] first jobs of windows by which a checkpoint is chosen.
    """

    jobs: pool.Jobs
    traces: Ints
    arrivals: int
    starts: Ints
    validation: Ints


class Observed(NamedTuple):
    """Observations on the device, see `pool.Seen`."""

    jobs: Tensor
    rows: Tensor
    context: Tensor
    critic: Tensor


def observed(seen: pool.Seen, device: torch.device, *, trim: bool = False) -> Observed:
    """Return copies of observations on a device, with no more rows than there are jobs if `trim`."""
    rows = max(int(seen.rows.max()), 1) if trim else seen.jobs.shape[1]
    # A copy also on the CPU, whose tensors would share the arrays that the next step writes to.
    return Observed(*(torch.tensor(array, device=device) for array in seen._replace(jobs=seen.jobs[:, :rows])))


def is_job(o: Observed) -> Tensor:
    """Return [B, M] which rows are jobs."""
    return torch.arange(o.jobs.shape[1], device=o.jobs.device) < o.rows[:, None]


def terms(o: Observed) -> Tensor:
    """Return [B, M, 23] the inputs of a linear order, see `TERMS`."""
    e, s, t, fits, d = o.jobs.unbind(-1)
    free, queue = o.context[:, None, 0], o.context[:, None, 1]
    linear = [e, s, t, e * e, s * s, t * t, e * s, e * t, s * t, fits, fits * e, fits * s]
    linear += [free * e, free * s, queue * e, queue * s]
    linear += [d, d * d, d * e, d * s, d * free, d * queue, d * t]
    return torch.stack(linear, -1)


class Attention(nn.Module):
    """A layer of attention among the waiting jobs, and one on each of them, both added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.units = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return [B, M, width] from the same; `mask` [B, M] says which rows are jobs."""
        batch, rows, width = x.shape
        parts = self.inputs(self.first(x)).view(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, rows, width))
        result: Tensor = x + self.units(self.second(x))
        return result


class Actor(nn.Module):
    """Scores of the waiting jobs."""

    def __init__(self, config: PPOConfig) -> None:
        super().__init__()
        start = torch.tensor(config.start, dtype=torch.float32)
        # The lowest goes first in an order; here the highest is the likeliest.
        self.linear = nn.Parameter(-config.sharpness * start / start.norm())
        self.inputs = nn.Linear(len(TERMS) + len(pool.CONTEXT), config.width)
        self.layers = nn.ModuleList(Attention(config.width, config.heads) for _ in range(config.layers))
        self.last = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width), nn.GELU())
        self.output = nn.Linear(config.width, 1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, o: Observed) -> Tensor:
        """Return [B, M] the logarithms of probabilities, -inf where there is no job."""
        mask, each = is_job(o), terms(o)
        context = o.context[:, None].expand(-1, each.shape[1], -1)
        with torch.autocast(each.device.type, torch.bfloat16, enabled=each.is_cuda):
            x = functional.gelu(self.inputs(torch.cat([each, context], -1)))
            for layer in self.layers:
                x = layer(x, mask)
            added = self.output(self.last(x)).squeeze(-1)
        scores: Tensor = each @ self.linear + added.float()
        return scores.masked_fill(~mask, -torch.inf).log_softmax(-1)


class Critic(nn.Module):
    """What a window will still cost, beyond what it costs shortest first, with the other sign."""

    def __init__(self, config: PPOConfig) -> None:
        super().__init__()
        width, known = config.width, len(pool.CONTEXT) + len(pool.CRITIC)
        self.each = nn.Sequential(nn.Linear(len(TERMS) + known, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.all = nn.Sequential(nn.Linear(2 * width + known, 2 * width), nn.GELU(), nn.Linear(2 * width, 1))

    def forward(self, o: Observed) -> Tensor:
        """Return [B] values."""
        known = torch.cat([o.context, o.critic.sign() * o.critic.abs().log1p()], -1)
        each = torch.cat([terms(o), known[:, None].expand(-1, o.jobs.shape[1], -1)], -1)
        with torch.autocast(each.device.type, torch.bfloat16, enabled=each.is_cuda):
            x = self.each(each) * is_job(o)[..., None]
            total = x.float().sum(1)
        pooled = torch.cat([total / o.rows[:, None].clamp(min=1), total / 64.0, known], -1)
        return torch.as_tensor(self.all(pooled).squeeze(-1) - o.critic[:, 3])


def advantages(rewards: Tensor, ended: Tensor, values: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Return [T, E] generalised advantages (Schulman et al., 2016).

    Args:
        rewards: [T, E].
        ended: [T, E] whether a window ended with the decision.
        values: [T + 1, E] before each decision, and after the last one.
        gamma: discount.
        gae_lambda: decay.
    """
    result = torch.zeros_like(rewards)
    last = torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        goes_on = (~ended[t]).to(rewards.dtype)
        delta = rewards[t] + gamma * goes_on * values[t + 1] - values[t]
        last = delta + gamma * gae_lambda * goes_on * last
        result[t] = last
    return result


class QueuePPO:
    """A training, which can stop and go on.

    Args:
        task: what is trained on.
        config: options.
        device: `cpu` or `cuda`.

    Attributes:
        decisions: made in training so far.
        validated: decisions and cost of each validation; the cost is the mean over traces of the logarithm of the mean
            bounded slowdown.
        best: the actor that was best in validation.
    """

    def __init__(self, task: PPOTask, config: PPOConfig, device: str = "cpu") -> None:
        self.task, self.config, self.device = task, config, torch.device(device)
        torch.manual_seed(config.seed)
        self.rng = np.random.default_rng(config.seed)
        self.actor, self.critic = Actor(config).to(self.device), Critic(config).to(self.device)
        parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, eps=1e-5)
        self.reference = pool.reference_of(task.jobs, task.traces, task.starts, task.arrivals, config.pooled)
        self.runs = pool.new_runs(config.envs, task.arrivals, config.rows)
        self.seen = pool.new_seen(config.envs, config.rows)
        self.decisions, self.seconds, self._limit = 0, 0.0, np.inf
        self.validated: list[tuple[int, float]] = []
        self.best: dict[str, Tensor] = {}
        self._begin()

    def _begin(self) -> None:
        # At different places of their windows, which otherwise would all be at the same one.
        skipped = self.rng.integers(0, self.task.arrivals // 2, self.config.envs)
        pool.begin(self.task.jobs, self.runs, self.reference, self.seen, self._drawn(), skipped)

    def _drawn(self) -> Ints:
        return self.rng.choice(self.task.starts, self.config.envs)

    def run(self, on_rollout: Callable[[dict[str, float]], None], checkpoint: Path, minutes: float = np.inf) -> None:
        """Train to the end, or for so many minutes in all; go on from the checkpoint if it is there.

        Args:
            on_rollout: called with figures, `decisions` and `seconds` after each rollout.
            checkpoint: file that is written at each validation.
            minutes: those before the checkpoint count, too.
        """
        if checkpoint.exists():
            self._restore(torch.load(checkpoint, map_location=self.device))
        self._limit = 60.0 * minutes
        began, before = time.monotonic(), self.seconds
        while True:
            is_over = self._share_done() >= 1.0
            if is_over or self.decisions >= len(self.validated) * self.config.validate_every:
                self._validate()
                torch.save(self._state(), checkpoint)
            if is_over:
                return
            figures = self.iterate()
            self.seconds = before + time.monotonic() - began
            on_rollout({**figures, "decisions": self.decisions, "seconds": self.seconds})

    def _share_done(self) -> float:
        return max(self.decisions / self.config.decisions, self.seconds / self._limit)

    def iterate(self) -> dict[str, float]:
        """Play a rollout and learn from it."""
        config, played = self.config, []
        rewards = np.zeros((config.rollout, config.envs))
        costs = np.zeros((config.rollout, config.envs))
        for t in range(config.rollout):
            o = observed(self.seen, self.device)
            with torch.no_grad():
                logarithms = self.actor(o)
                rows = torch.multinomial(logarithms.exp(), 1)
                chosen = logarithms.gather(1, rows).squeeze(1)
            played.append((o, rows.squeeze(1), chosen))
            self._step(self.runs, self.seen, rows.squeeze(1).cpu().numpy(), self._drawn(), rewards[t], costs[t])
        self.decisions += rewards.size
        figures = self._learn(played, rewards, ~np.isnan(costs))
        ended = costs[~np.isnan(costs)]
        slowdown = ended.mean() / self.task.arrivals + 1.0 if len(ended) else np.nan
        return {"slowdown": float(slowdown), **figures}

    def _step(self, runs: pool.Runs, seen: pool.Seen, rows: Ints, following: Ints, rewards: Any, costs: Any) -> None:
        pool.step(self.task.jobs, runs, self.reference, seen, rows, following, rewards, costs)

    def _learn(self, played: list[Any], rewards: Any, ended: Any) -> dict[str, float]:
        config = self.config
        with torch.no_grad():
            last = self.critic(observed(self.seen, self.device))
            values = torch.stack([*(self.critic(o) for o, _, _ in played), last])
        gained = torch.tensor(rewards, dtype=torch.float32, device=self.device)
        stopped = torch.tensor(ended, device=self.device)
        advantage = advantages(gained, stopped, values, config.gamma, config.gae_lambda)
        target = (advantage + values[:-1]).reshape(-1)
        explained = 1.0 - (target - values[:-1].reshape(-1)).var() / target.var()
        advantage = advantage.reshape(-1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        o = Observed(*(torch.cat(each) for each in zip(*(o for o, _, _ in played), strict=True)))
        rows, before = (torch.cat([each[k] for each in played]) for k in (1, 2))
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate * max(1.0 - self._share_done(), 0.02)
        seen: list[Tensor] = []
        for _ in range(config.epochs):
            order = torch.randperm(len(rows), device=self.device)
            for begin in range(0, len(rows), config.batch_size):
                index = order[begin : begin + config.batch_size]
                part = Observed(*(each[index] for each in o))
                logarithms = self.actor(part)
                change = logarithms.gather(1, rows[index, None]).squeeze(1) - before[index]
                ratio, a = change.exp(), advantage[index]
                clipped = ratio.clamp(1.0 - config.clip_range, 1.0 + config.clip_range)
                policy_loss = -torch.minimum(ratio * a, clipped * a).mean()
                value_loss = functional.mse_loss(self.critic(part), target[index])
                self.optimiser.zero_grad()
                (policy_loss + value_loss).backward()  # type: ignore[no-untyped-call]
                # Each for itself: the critic's error is large where windows are heavy.
                nn.utils.clip_grad_norm_(self.actor.parameters(), config.max_grad_norm)
                nn.utils.clip_grad_norm_(self.critic.parameters(), config.max_grad_norm)
                self.optimiser.step()
                entropy = -(logarithms.exp() * logarithms.clamp(min=-50.0)).sum(1).mean()
                seen.append(torch.stack([value_loss, entropy, (ratio - 1.0 - change).mean()]).detach())
            if float(seen[-1][2]) > config.target_kl:
                break
        value_error, spread, kl = torch.stack(seen).mean(0).tolist()
        return {"value_loss": value_error, "entropy": spread, "approx_kl": kl, "explained": float(explained)}

    def _validate(self) -> None:
        costs = [np.log(np.mean(self.slowdowns(first))) for first in self.task.validation]
        self.validated.append((self.decisions, float(np.mean(costs))))
        if self.validated[-1][1] <= min(cost for _, cost in self.validated):
            self.best = {name: value.detach().cpu().clone() for name, value in self.actor.state_dict().items()}

    def slowdowns(self, first: Ints) -> list[float]:
        """Return the mean bounded slowdown in windows, the likeliest job always next."""
        config, task, count = self.config, self.task, len(first)
        runs, seen = (
            pool.new_runs(count, task.arrivals, config.rows),
            pool.new_seen(count, config.rows),
        )
        pool.begin(task.jobs, runs, self.reference, seen, first, np.zeros(count, dtype=np.int64))
        nobody, rewards, costs = np.full(count, -1), np.zeros(count), np.zeros(count)
        total = np.zeros(count)
        while not runs.over.all():
            with torch.no_grad():
                chosen = self.actor(observed(seen, self.device, trim=True)).argmax(1)
            self._step(runs, seen, chosen.cpu().numpy(), nobody, rewards, costs)
            total = np.where(np.isnan(costs), total, costs)
        return list((total / task.arrivals + 1.0).tolist())

    def _state(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in ("actor", "critic", "optimiser")}
        numbers = {name: getattr(self, name) for name in ("decisions", "seconds", "validated", "best")}
        return {**parts, **numbers, "rng": self.rng.bit_generator.state, "torch": torch.get_rng_state()}

    def _restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, with new windows."""
        for name in ("actor", "critic", "optimiser"):
            getattr(self, name).load_state_dict(state[name])
        self.decisions, self.seconds, self.best = state["decisions"], state["seconds"], state["best"]
        self.validated = [(int(decisions), float(cost)) for decisions, cost in state["validated"]]
        self.rng.bit_generator.state = state["rng"]
        torch.set_rng_state(state["torch"].cpu())
        self._begin()
