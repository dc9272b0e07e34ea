"""Compile the kernels that a platform wheel brings: `python -m release.kernels FOLDER`.

Users' commands run here once, on small inputs. Whatever they compile, or find compiled for any processor in the user's
cache, is packaged (`steersman.core.compiled.PACKAGED`), so that the first command after an installation compiles
nothing. The cache keeps it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from steersman.core.cache import cache_root
from steersman.core.compiled import PORTABLE
from steersman.policies.kube_scheduler import STOCK_TUNED
from steersman.policies.registry import BUILT_IN

SMALL = ("--workload", "default-small")
EXERCISES = Path(__file__).with_name("exercises.py")


def commands() -> Iterator[list[str]]:
    """Return the arguments of Python for every command that is run."""
    yield [str(EXERCISES)]
    for arguments in (
        *(
            ("simulate", *SMALL, "--policy", policy, "--protocol", protocol, "--output", f"{policy}-{protocol}")
            for policy in ("steersman", "kube-default", "random", "most-even")
            for protocol in ("arrivals", "inflation", "timed")
        ),
        ("evaluate", *SMALL, "--policy", *(each for each in BUILT_IN if each != STOCK_TUNED), "--seeds", "2",
         "--output", "compared"),
        ("evaluate", "--protocol", "timed", *SMALL, "--policy", "fgd", "steersman", "--seeds", "2",
         "--output", "timed"),
        ("evaluate", "--protocol", "deployments", "--policy", "kube-default", "most-even", "--seeds", "2",
         "--output", "deployments"),
        ("evaluate", "--protocol", "latency", "--policy", "kube-default", "p0", "--seeds", "2", "--output", "latency"),
        ("train", *SMALL, "--iterations", "2", "--output", "trained"),
        ("fit", "policy", *SMALL, "--generations", "2", "--output", "fitted.safetensors"),
        ("workload", "random", "--count", "2", "--nodes", "5-8", "--output", "generated"),
    ):  # fmt: skip
        yield ["-m", "steersman", *arguments]


def compile_kernels(folder: Path) -> None:
    """Run all commands, and write the machine code that they used for any processor of this architecture."""
    known = cache_root() / "kernels"
    known.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        kernels = Path(work) / "kernels"
        kernels.mkdir()
        for file in known.iterdir():
            with suppress(FileNotFoundError):  # others write to the cache, too
                shutil.copy2(file, kernels)
        began = time.time()
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
        folder.mkdir(parents=True)
        for file in kernels.iterdir():
            # Reading sets the time, too.
            if file.stat().st_mtime >= began:
                shutil.copyfile(file, folder / file.name)
                shutil.copyfile(file, known / file.name)
    files = list(folder.iterdir())
    print(f"{len(files)} kernels, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB: {folder}")


if __name__ == "__main__":
    compile_kernels(Path(sys.argv[1]))
