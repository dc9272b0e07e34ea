"""Recordings: transitions of some policy in an environment, stored to learn from without it.

A package adds files of another form by an entry point of the group `steersman.recordings` that leads to a
`RecordingFormat`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from steersman.agents.base import Step
from steersman.agents.buffers.replay import unflatten
from steersman.agents.networks.tensors import Actions, Arrays, sample_candidates, take
from steersman.core.errors import InputError
from steersman.core.extensions import Registry

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
