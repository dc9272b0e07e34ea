"""Imitation: learn to choose as a teacher does, any policy or a recording of one.

The scores of the feasible nodes are logits, and the teacher's choices are the labels (cross-entropy). A learner that
only ever observes the teacher's states does not know what to do after its own mistakes; so the learner takes an
increasing share of the decisions itself while the teacher labels them (Ross, Gordon, Bagnell, "A Reduction of Imitation
Learning and Structured Prediction to No-Regret Online Learning", AISTATS 2011: DAgger).

Nodes with equal features cannot be distinguished, and whichever of them the teacher took counts as the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv

from steersman.agents.base import Adam, Agent, Metrics, Teacher
from steersman.agents.buffers import Recording, ReplayBuffer, flatten, unflatten
from steersman.agents.configs import ImitationConfig
from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.agents.networks.tensors import Actions, Arrays, as_tensors, log_probabilities, pack, unpack
from steersman.core.errors import UsageError


class Imitation(Agent):
    """Imitation of a teacher, or of a recording: then nothing is stepped, and `steps` counts decisions learned from.

    Raises:
        UsageError: there is neither a teacher nor a recording, or both.
    """

    algorithm = "imitation"
    config: ImitationConfig

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ScoreNetwork,
        config: ImitationConfig,
        seed: int,
        device: str | torch.device = "cpu",
        teacher: Teacher | None = None,
        recording: Recording | None = None,
    ) -> None:
        if (teacher is None) == (recording is None):
            raise UsageError("imitation needs a teacher or a recording, one of them")
        self.asks_teacher = teacher is not None
        super().__init__(env, network, config, seed, device, teacher)
        self.optimiser = Adam(self.network.parameters(), lr=config.learning_rate)
        self.parts |= {"optimiser": self.optimiser}
        self.recording = recording
        # A recording is kept whole; an empty one would make a ring of no entries.
        self.replay = ReplayBuffer(config.replay_size if recording is None else max(1, len(recording)))
        self.teacher_share = config.initial_teacher_share
        self.steps_since_update = 0  # decisions since the last gradient step
        if recording is not None:
            for step in recording.steps(config.candidates, self.rng):
                self._remember(step.before, step.rows)

    def _iterate(self) -> Metrics:
        if self.recording is not None:
            self.steps += self.config.batch_size
            return self._update()
        # Plays on until the buffer holds a batch, however small `update_every` is.
        while self.steps_since_update < self.config.update_every or len(self.replay) < self.config.batch_size:
            self._play()
            self.steps_since_update += self.env.num_envs
        seen = []
        while self.steps_since_update >= self.config.update_every:
            self.steps_since_update -= self.config.update_every
            seen.append(self._update())
        return {name: float(np.mean([one[name] for one in seen])) for name in seen[0]}

    def _play(self) -> None:
        """Take one decision in each environment, the teacher's or the learner's; the teacher's is stored."""
        observation, labels = self.sample.observation, self.teacher_actions()
        self._remember(observation, labels)
        # DAgger: the label is the teacher's in either case, the step is the mixture's (beta = `teacher_share`).
        own = self.scores(observation).argmax(1)
        self.step(np.where(self.rng.random(len(own)) < self.teacher_share, labels, own))

    def _remember(self, observation: Arrays, rows: Actions) -> None:
        self.replay.add(flatten("before", observation) | {"row": rows})

    def _update(self) -> Metrics:
        self.network.train()
        batch = self.replay.sample(self.config.batch_size, self.rng)
        observation = as_tensors(unflatten("before", batch), self.device)
        row = torch.tensor(batch["row"], device=self.device).unsqueeze(1)
        scores = self.network(observation)
        loss = self.learn(-log_probabilities(scores).gather(1, row).mean(), self.optimiser, self.config.max_grad_norm)

        nodes, copies = observation["nodes"], torch.arange(len(row), device=self.device)
        chosen = nodes[copies, scores.detach().argmax(1)]
        agreement = (chosen == nodes[copies, row.squeeze(1)]).all(1).float().mean()
        self.teacher_share = max(self.config.minimum_teacher_share, self.teacher_share * self.config.teacher_decay)
        return {"loss": loss, "agreement": float(agreement), "teacher_share": self.teacher_share}

    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        rows: Actions = scores.argmax(1)
        return rows

    def _more_state(self) -> dict[str, Any]:
        # The recording is read again at a resume, so its entries need not be in the checkpoint.
        replay = {} if self.recording is not None else self.replay.arrays()
        return {"numbers": [self.teacher_share, self.steps_since_update], "replay": pack(replay)}

    def _load_more_state(self, state: Mapping[str, Any]) -> None:
        self.teacher_share, self.steps_since_update = state["numbers"]
        if self.recording is None:
            self.replay.restore(unpack(state["replay"]))
