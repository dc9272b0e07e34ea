"""Transitions that agents learn from: replay buffers, rollouts, recordings.

A recording holds transitions of some policy in an environment, stored to learn from without it. A package adds files of
another form by an entry point of the group `steersman.recordings` that leads to a `RecordingFormat`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from steersman.agents.base import Step
from steersman.agents.networks.tensors import Actions, Arrays, sample_candidates, take
from steersman.core.errors import InputError, SteersmanError
from steersman.core.extensions import Registry


class ReplayBuffer:
    """A ring of `size` entries, each an equally shaped set of named arrays.

    Memory is `size` times an entry's bytes: of a transition with K candidates of 60 features, about 2 x 260 K bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0  # number of entries ever added
        self._arrays: Arrays = {}

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(self, entries: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add entries [B, ...]; they replace the oldest."""
        if not self._arrays:
            self._arrays = {name: np.zeros((self.size, *a.shape[1:]), a.dtype) for name, a in entries.items()}
        length = len(next(iter(entries.values())))
        # Of more entries than fit, only the last `size`, so that no place is written twice.
        kept = np.arange(max(0, length - self.size), length)
        place = (self.count + kept) % self.size
        for name, array in self._arrays.items():
            if entries[name].shape[1:] != array.shape[1:]:
                raise SteersmanError(
                    f"transitions differ in {name!r}: {entries[name].shape[1:]} after {array.shape[1:]}; "
                    "with --candidates of fewer than the nodes, clusters of all sizes can be mixed"
                )
            array[place] = entries[name][kept]
        self.count += length

    def sample(self, count: int, rng: np.random.Generator) -> Arrays:
        """Return `count` entries, drawn uniformly with replacement."""
        index = rng.integers(0, len(self), count)
        return {name: array[index] for name, array in self._arrays.items()}

    def arrays(self) -> Arrays:
        """Return the entries and `count`, for a checkpoint."""
        return {name: array[: len(self)] for name, array in self._arrays.items()} | {"count": np.array(self.count)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self._arrays, self.count = {}, 0
        entries = {name: array for name, array in arrays.items() if name != "count"}
        if entries:
            # Entries were saved from place 0 on, so each returns to its place; the count then says which is the oldest.
            self.add(entries)
        self.count = int(arrays["count"])


def flatten(prefix: str, observation: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return an observation's arrays under names with a prefix, to be stored beside others."""
    return {f"{prefix}.{name}": array for name, array in observation.items()}


def unflatten(prefix: str, entries: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the observation that was stored under `prefix`."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in entries.items() if name.startswith(start)}


Values = Callable[[Arrays], npt.NDArray[np.float32]]  # a critic: observations [B, ...] to values [B]


@dataclass(frozen=True, slots=True)
class Rollout:
    """T decisions in each of E environments, flattened to B = T E in that order."""

    observation: Arrays  # [B, ...]
    rows: Actions  # int64 [B] the rows that were chosen
    values: npt.NDArray[np.float32]  # float32 [B] the critic's values
    advantages: npt.NDArray[np.float32]  # float32 [B]
    targets: npt.NDArray[np.float32]  # float32 [B] targets of the critic


def rollout(steps: Sequence[Step], critic: Values, gamma: float, gae_lambda: float) -> Rollout:
    """Return consecutive steps with values and advantages by a critic."""
    shape = len(steps), len(steps[0].rows)
    observation = {name: np.concatenate([s.before[name] for s in steps]) for name in steps[0].before}
    terminated = np.stack([s.terminated for s in steps])
    truncated = np.stack([s.truncated for s in steps])
    values = critic(observation).reshape(shape)
    # The next observation is the next decision's, except where an episode was cut off and at the end of the rollout.
    following = np.concatenate([values[1:], np.zeros((1, shape[1]), np.float32)])
    # `apart`: where V(s_t+1) is not the value of the next row and has to be computed from `after`.
    apart = truncated.copy()
    apart[-1] |= ~terminated[-1]
    if apart.any():
        ends = [take(s.after, rows) for s, rows in zip(steps, apart, strict=True) if rows.any()]
        following[apart] = critic({name: np.concatenate([end[name] for end in ends]) for name in ends[0]})
    rewards = np.stack([s.reward for s in steps])
    advantages = generalised_advantages(rewards, values, following, terminated, truncated, gamma, gae_lambda)
    rows = np.concatenate([s.rows for s in steps])
    return Rollout(observation, rows, values.ravel(), advantages.ravel(), (advantages + values).ravel())


def generalised_advantages(
    rewards: npt.NDArray[np.float32],  # r_t
    values: npt.NDArray[np.float32],  # V(s_t)
    following: npt.NDArray[np.float32],  # V(s_t+1), of the observation before any reset
    terminated: npt.NDArray[np.bool_],  # where the episode has ended
    truncated: npt.NDArray[np.bool_],  # where it was cut off
    gamma: float,  # from 0 to 1
    gae_lambda: float,  # lambda, from 0 (one step, little variance) to 1 (to the end, no bias)
) -> npt.NDArray[np.float32]:
    """Return generalised advantage estimates (Schulman et al., ICLR 2016), all arrays [T, E].

        d_t = r_t + gamma V(s_t+1) - V(s_t),    A_t = d_t + gamma gae_lambda A_t+1

    After a terminated episode nothing follows, so V(s_t+1) counts as zero. After a truncated one V(s_t+1) counts, but
    the sum ends, for the next row belongs to another episode.
    """
    # TD residual d_t.
    delta = rewards + gamma * np.where(terminated, 0.0, following) - values
    # The factor gamma lambda of A_t+1, 0 at the last step of an episode.
    keep = gamma * gae_lambda * ~(terminated | truncated)
    advantages = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    # Backwards, since A_t needs A_t+1; beyond the rollout's end it counts as 0.
    for t in range(len(rewards) - 1, -1, -1):
        running = delta[t] + keep[t] * running
        advantages[t] = running
    return advantages


CHUNK = 256
_KEYS = {"actions", "rewards", "terminated", "truncated"}
_PARTS = ("nodes", "pod", "context", "mask", "groups")
_NEEDED = _KEYS | {f"{side}.{part}" for side in ("before", "after") for part in _PARTS}


def check_file(file: Path) -> None:
    """Check that a file is a recording, without reading its arrays. Raises InputError: it is not."""
    other = _other_format(file)
    if other is not None:
        other.check(file)
        return
    with _opened(file):
        pass


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Yield the archive of a recording. Raises InputError: an array is missing, or it is another file."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            for name in sorted(_NEEDED - set(archive.files)):
                raise InputError(file, "", name, "is missing; a recording has it")
            yield archive
    except FileNotFoundError as error:
        raise InputError(file, "", "", "there is no such file") from error
    except (OSError, EOFError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            file, "", "", "not a recording; expected an .npz file of transitions, or AAML's .csv"
        ) from error


@dataclass(frozen=True, slots=True)
class Recording:
    """Transitions [B, ...] as an environment gives them, of all nodes."""

    before: Arrays  # observations
    actions: Actions  # int64 [B] node slots
    rewards: npt.NDArray[np.float32]  # float32 [B]
    terminated: npt.NDArray[np.bool_]  # bool [B]
    truncated: npt.NDArray[np.bool_]  # bool [B]
    after: Arrays  # next observations, before any reset; undefined where `terminated`

    def __len__(self) -> int:
        return len(self.actions)

    def check(self, file: Path, space: spaces.Space[Any], candidates: int) -> None:
        """Check that an agent in an environment can learn from it.

        Args:
            file: where it was loaded from.
            space: the environment's `single_observation_space`.
            candidates: nodes in the agent's sample; transitions of fewer nodes, or with 0, must be of as many nodes.

        Raises:
            InputError: it was made with another view, or on a cluster of another size.
        """
        assert isinstance(space, spaces.Dict)
        for part in ("nodes", "pod", "context"):
            recorded, expected = self.before[part].shape[-1], (space[part].shape or ())[-1]
            if recorded != expected:
                raise InputError(
                    file, "", f"before.{part}", f"has {recorded} features, expected {expected}: it is of another view"
                )
        recorded, expected = self.before["mask"].shape[1], (space["mask"].shape or ())[0]
        # A random sample of candidates brings both clusters to the same number of rows.
        if recorded != expected and not 0 < candidates < min(recorded, expected):
            raise InputError(
                file,
                "",
                "before.nodes",
                f"has {recorded} nodes, expected {expected}; fewer --candidates than both allow it",
            )

    def steps(self, candidates: int, rng: np.random.Generator) -> Iterator[Step]:
        """Yield steps as an agent with so many candidates has them, `CHUNK` transitions at a time."""
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            # The recorded node must be in the sample; the observation after it has no such node.
            seen = sample_candidates(take(self.before, part), candidates, rng, self.actions[part])
            after = sample_candidates(take(self.after, part), candidates, rng)
            yield Step(
                seen.observation,
                seen.to_rows(self.actions[part]),
                self.rewards[part],
                self.terminated[part],
                self.truncated[part],
                after.observation,
            )

    @classmethod
    def load(cls, file: Path) -> Recording:
        """Read a recording of `steersman workload record`, or of a registered format.

        Raises:
            InputError: the file is missing, is not a recording, or its arrays do not match.
        """
        other = _other_format(file)
        if other is not None:
            return other.load(file)
        with _opened(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
        for name in sorted(_NEEDED):
            if arrays[name].shape[:1] != arrays["actions"].shape:
                raise InputError(file, "", name, f"{arrays[name].shape} entries for {arrays['actions'].shape} actions")
        fits = arrays["before.mask"][np.arange(len(arrays["actions"])), arrays["actions"]] > 0
        if not fits.all():
            raise InputError(file, f"transition {int(fits.argmin())}", "actions", "its mask forbids this node")
        own = {name: arrays[name] for name in _KEYS}
        return cls(before=unflatten("before", arrays), after=unflatten("after", arrays), **own)


@dataclass(frozen=True, slots=True)
class RecordingFormat:
    """A form of recordings beside archives of arrays."""

    name: str  # of the form
    suffixes: tuple[str, ...]  # of its files
    check: Callable[[Path], object]  # checks that a file is one, without making transitions of it; raises InputError
    load: Callable[[Path], Recording]  # reads a file; raises InputError


RECORDING_FORMATS: Registry[RecordingFormat] = Registry("format of recordings", "steersman.recordings", RecordingFormat)


def _other_format(file: Path) -> RecordingFormat | None:
    return next((each for each in RECORDING_FORMATS.usable() if file.name.endswith(each.suffixes)), None)
