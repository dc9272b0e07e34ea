"""PPO of a stock library in steersman's environments: `python train.py deployments|inflation [SEED]`.

Needs `pip install sb3-contrib` next to steersman. README.md says why it is set up like this, and what it reaches.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

import steersman  # noqa: F401  # registers the environments

TASKS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "deployments": ("steersman/Deployments-v0", {"nodes": 10}, "least-allocated", 12_288),
    "inflation": (
        "steersman/Inflation-v0",
        {"workload": "default-small", "view": "gpu", "objective": "fragmentation"},
        "fgd",
        24_576,
    ),
}
"""By name: environment, its options, the best rule, and decisions to learn from."""
SEEDS = range(1000, 1040)
"""Of episodes to compare in, which are not those of training."""


class NodeScores(BaseFeaturesExtractor):
    """One network that scores every node by its features and those of pod and cluster: [B, N]."""

    def __init__(self, space: gymnasium.spaces.Dict, width: int = 32) -> None:
        super().__init__(space, space["nodes"].shape[0])
        inputs = sum(space[key].shape[-1] for key in ("nodes", "pod", "context"))
        self.score = nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return scores, [B, N]."""
        nodes = observation["nodes"]
        others = torch.cat([observation["pod"], observation["context"]], dim=-1)
        others = others.unsqueeze(1).expand(-1, nodes.shape[1], -1)
        scores: torch.Tensor = self.score(torch.cat([nodes, others], dim=-1)).squeeze(-1)
        return scores


def train(task: str, decisions: int | None = None, seed: int = 1) -> MaskablePPO:
    """Return a trained agent."""
    name, options, _, usual = TASKS[task]
    torch.set_num_threads(1)
    model = MaskablePPO(
        "MultiInputPolicy",
        gymnasium.make(name, **options),
        gamma=0.0,
        n_steps=1024 if task == "deployments" else 2048,
        batch_size=256,
        n_epochs=10 if task == "deployments" else 5,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": NodeScores,
            "share_features_extractor": False,
            "net_arch": {"pi": [], "vf": [32]},
        },
    )
    # A node's score is its logit: the layer between them, which would mix nodes, is the identity.
    with torch.no_grad():
        model.policy.action_net.weight.copy_(torch.eye(model.action_space.n))
        model.policy.action_net.bias.zero_()
    model.policy.action_net.requires_grad_(False)
    return model.learn(decisions or usual)


def play(task: str, model: MaskablePPO | None = None) -> np.ndarray:
    """Return the reward of each episode of `SEEDS`, by the best rule or an agent."""
    name, options, rule, _ = TASKS[task]
    env, totals = gymnasium.make(name, **options), []
    for seed in SEEDS:
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            if model is None:
                action = env.unwrapped.heuristic(rule)
            else:
                masks = env.unwrapped.action_masks()
                action = int(model.predict(observation, action_masks=masks, deterministic=True)[0])
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    return np.array(totals)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "deployments"
    if chosen not in TASKS:
        sys.exit(f"error: no task {chosen!r}; there are {', '.join(TASKS)}")
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    ruled, learned = play(chosen), play(chosen, train(chosen, seed=first))
    gain = learned - ruled
    error = 2.02 * gain.std(ddof=1) / np.sqrt(len(gain))  # Student's t, 95 %
    low, high = gain.mean() - error, gain.mean() + error
    print(f"{TASKS[chosen][2]}: {ruled.mean():.2f} an episode")
    print(f"MaskablePPO: {learned.mean():.2f}, {gain.mean():+.2f} (95 % interval {low:.2f} to {high:.2f})")
