"""Compile the kernels that a platform wheel brings: `python -m release.kernels FOLDER`.

Users' commands run here once, on small inputs, with an empty cache. Whatever they compile is packaged
(`steersman.core.compiled.PACKAGED`), so that the first command after an installation compiles nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from steersman.core.compiled import PORTABLE
from steersman.policies.registry import BUILT_IN

SMALL = ("--workload", "default-small")
EXERCISES = Path(__file__).with_name("exercises.py")


def commands() -> Iterator[list[str]]:
    """Return the arguments of Python for every command that is run."""
    for name in ("policies", "environments"):
        yield [str(EXERCISES), name]
    for arguments in (
        *(
            ("simulate", *SMALL, "--policy", policy, "--protocol", protocol, "--output", f"{policy}-{protocol}")
            for policy in ("steersman", "kube-default", "random", "most-even")
            for protocol in ("arrivals", "inflation", "timed")
        ),
        ("evaluate", *SMALL, "--policy", *BUILT_IN, "--seeds", "2", "--output", "compared"),
        ("evaluate", "--protocol", "timed", *SMALL, "--policy", "fgd", "steersman", "--seeds", "2",
         "--output", "timed"),
        ("evaluate", "--protocol", "deployments", "--policy", "kube-default", "most-even", "--seeds", "2",
         "--output", "deployments"),
        ("evaluate", "--protocol", "latency", "--policy", "kube-default", "p0", "--seeds", "2", "--output", "latency"),
        ("train", *SMALL, "--iterations", "2", "--output", "trained"),
        ("policy", "fit", *SMALL, "--seconds", "2", "--output", "fitted.safetensors"),
        ("workload", "random", "--count", "2", "--nodes", "5-8", "--output", "generated"),
    ):  # fmt: skip
        yield ["-m", "steersman", *arguments]


def compile_kernels(folder: Path) -> None:
    """Run all commands, and write the machine code that they compiled for any processor of this architecture."""
    with tempfile.TemporaryDirectory() as work:
        name, features = PORTABLE
        environment = os.environ | {
            "STEERSMAN_CACHE_DIR": work, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features
        }  # fmt: skip
        for arguments in commands():
            print(f"kernels of: {' '.join(arguments)}", file=sys.stderr, flush=True)
            subprocess.run(
                [sys.executable, *arguments], cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL
            )
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(work) / "kernels", folder)
    files = list(folder.iterdir())
    print(f"{len(files)} kernels, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB: {folder}")


if __name__ == "__main__":
    compile_kernels(Path(sys.argv[1]))
