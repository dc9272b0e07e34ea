"""Compile the kernels of an image into `$STEERSMAN_CACHE_DIR`, so that no command compiles them at its start."""

from __future__ import annotations

import tempfile
from pathlib import Path

from steersman.apps.runtime.policy_manager import warm_up
from steersman.apps.service.process import choose_by_scores
from steersman.cli.main import main
from steersman.policies.registry import resolve

LIVE = ("steersman", "fgd", "kube-default", "p0")
"""Policies of each kind that `schedule` and `serve` decide by."""
SIMULATED = ("steersman", "fgd", "kube-default", "rules")
COMMANDS = (
    "simulate --workload default-small --policy {} --protocol arrivals --output {}",
    "simulate --workload default-small --policy {} --protocol inflation --output {}",
)


def compile_all() -> None:
    """Compile what live policies and simulations run."""
    for name in LIVE:
        warm_up(resolve(name), telemetry=True)
        warm_up(resolve(name), choose_by_scores, telemetry=True)
    with tempfile.TemporaryDirectory() as folder:
        for policy in SIMULATED:
            for number, command in enumerate(COMMANDS):
                assert main(command.format(policy, Path(folder) / f"{policy}-{number}").split()) == 0


if __name__ == "__main__":
    compile_all()
