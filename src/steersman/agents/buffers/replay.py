"""A replay buffer: the last transitions, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.agents.networks.tensors import Arrays
from steersman.core.errors import SteersmanError


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
