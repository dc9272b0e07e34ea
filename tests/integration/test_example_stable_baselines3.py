"""The example with a stock library's PPO learns to be better than the best rule of its environment."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

EXAMPLE = Path(__file__).parents[2] / "examples" / "stable-baselines3" / "train.py"


def test_ppo_of_a_stock_library_beats_the_best_rule() -> None:
    example = runpy.run_path(str(EXAMPLE))
    gain = example["play"]("deployments", example["train"]("deployments")) - example["play"]("deployments")
    # Paired by episode; three standard errors of forty.
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))
