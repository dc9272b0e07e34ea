"""Exchange of the policy in use by one that was learned beside it, if held-back decisions show that it is better.

On each held-back decision both policies choose a node in the state that was observed, and the difference of the rewards
of their choices is taken. The candidate replaces the policy if the 95 % interval of the mean difference is above zero.
Every held-back decision serves one test, so that testing again and again does not find a difference by chance alone.
The reward is that of the decision itself: what later decisions lose or gain by it is not seen.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import structlog

from steersman.apps.learner.bindings import TEST_BLOCK, ObservedBinding
from steersman.core.atomic_files import keep_copy, replacing
from steersman.core.errors import SteersmanError
from steersman.core.statistics import mean_interval
from steersman.policies.files.policy_file import open_policy, read_policy
from steersman.policies.kinds import observing_policy
from steersman.policies.observations.kernels import ObservationArrays
from steersman.training.run import POLICY

EXCHANGES = "exchanges.csv"
CANDIDATE = "candidate.safetensors"
PREVIOUS = "previous"
"""Folder of the policies that were replaced, numbered."""
COLUMNS = ("time", "result", "held_back", "reward", "reward_of_candidate", "difference", "low", "high", "policy")
EXCHANGED, KEPT, UNDONE = "exchanged", "kept", "undone"
MIN_BLOCKS = 20
"""Blocks of `TEST_BLOCK` decisions that a test needs."""

log = structlog.get_logger("learning")


class PolicyExchange:
    """The policy in use, and the decisions that are held back to test candidates on.

    Args:
        folder: of the run; holds the policy in use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._held_back = folder, list[ObservedBinding]()
        self._digest = digest_of(folder / POLICY)

    def hold_back(self, binding: ObservedBinding) -> None:
        """Keep a decision for the next test."""
        self._held_back.append(binding)

    @property
    def is_due(self) -> bool:
        """Whether there are enough decisions for a test."""
        return len(self._held_back) >= MIN_BLOCKS * TEST_BLOCK

    def was_replaced(self) -> bool:
        """Return whether somebody else replaced the policy in use since the last call, such as `undo`."""
        now = digest_of(self._folder / POLICY)
        before, self._digest = self._digest, now
        return now != before

    def test(self, save: Callable[[Path], None]) -> bool:
        """Test a candidate and use it if it is better; return whether it is used.

        Args:
            save: writes the candidate to a file.

        Raises:
            SteersmanError: a file cannot be read or written; the policy in use stays.
        """
        bindings, self._held_back = self._held_back, []
        candidate, active = self._folder / CANDIDATE, self._folder / POLICY
        save(candidate)
        active_rewards, candidate_rewards = _rewards(active, bindings), _rewards(candidate, bindings)
        differences = candidate_rewards - active_rewards
        # The interval assumes independent values; means of blocks nearly are, neighbouring decisions are not.
        blocks = differences[: len(differences) // TEST_BLOCK * TEST_BLOCK].reshape(-1, TEST_BLOCK).mean(axis=1)
        low, high = (round(limit, 6) for limit in mean_interval(blocks))
        is_better = low > 0.0  # as it is logged: less than that is no gain
        if is_better:
            _replace(self._folder, candidate)
            self._digest = digest_of(active)
        figures = {
            "held_back": len(bindings),
            "reward": round(float(active_rewards.mean()), 6),
            "reward_of_candidate": round(float(candidate_rewards.mean()), 6),
            "difference": round(float(blocks.mean()), 6),
            "low": low,
            "high": high,
        }
        outcome = EXCHANGED if is_better else KEPT
        _append(self._folder, {"result": outcome, **figures, "policy": digest_of(active)})
        message = "the learned policy is better and replaces the one in use" if is_better else "the policy is kept"
        log.info(message, **figures)
        return is_better


def undo(folder: Path) -> str:
    """Put the policy that was replaced last back, and return the name of its file.

    Raises:
        SteersmanError: no policy was replaced in that folder, or a file cannot be written.
    """
    replaced = _replaced(folder)
    if not (folder / POLICY).exists() or not replaced:
        raise SteersmanError(f"{folder}: no policy was replaced there, so there is nothing to undo")
    last = replaced[-1]
    # Raises before anything is changed if the file cannot be read.
    read_policy(last)
    try:
        keep_copy(folder / POLICY)
        os.replace(last, folder / POLICY)
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot be written: {error.strerror}") from None
    _append(folder, {"result": UNDONE, "policy": digest_of(folder / POLICY)})
    return last.name


def digest_of(file: Path) -> str:
    """Return a short digest of a policy file, as the metric `steersman_policy_info` has it; "" if there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else ""


def _replaced(folder: Path) -> list[Path]:
    return sorted((folder / PREVIOUS).glob("*.safetensors"))


def _replace(folder: Path, candidate: Path) -> None:
    active = folder / POLICY
    number = max((int(file.stem) for file in _replaced(folder) if file.stem.isdigit()), default=0) + 1
    try:
        (folder / PREVIOUS).mkdir(exist_ok=True)
        # A copy, so that the file in use exists at every moment.
        with replacing(folder / PREVIOUS / f"{number:04}.safetensors") as part:
            shutil.copy2(active, part)
        os.replace(candidate, active)
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot be written: {error.strerror}; the policy in use stays") from None


def _rewards(file: Path, bindings: list[ObservedBinding]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    policy = observing_policy(open_policy(file, read_policy(file)[0].name))
    assert policy is not None
    rewards = np.empty(len(bindings))
    for i, binding in enumerate(bindings):
        parts, known = binding.observation, binding.rewards
        assert known is not None
        nodes = np.ascontiguousarray(parts["nodes"])
        arrays = ObservationArrays(nodes, nodes.reshape(-1), parts["pod"], parts["context"], parts["mask"])
        rewards[i] = known[policy.choose(arrays, parts["groups"])]
    return rewards


def _append(folder: Path, row: dict[str, object]) -> None:
    file = folder / EXCHANGES
    try:
        is_new = not file.exists()
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **row})
    except OSError as error:
        raise SteersmanError(f"{file}: cannot be written: {error.strerror}") from None
