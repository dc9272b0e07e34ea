"""A Ray cluster on loopback for tests, and what tests let its workers do.

`python -m tests.support.ray_cluster` starts one, says its address and the token to use it, and ends with its input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from steersman.core import engines
from steersman.core.engines import ON_LOOPBACK

ROOT = Path(__file__).parents[2]
WORKERS = 2
WORKER = "ray::_Actor"


@contextmanager
def ray_cluster() -> Iterator[tuple[int, dict[str, str]]]:
    """Run a cluster of two workers; yield the process that started it, and the environment of commands that use it."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.support.ray_cluster"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        address, token = starter.stdout.readline().split()
        use = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, **ON_LOOPBACK}
        yield starter.pid, environment | use
        starter.stdin.close()


def workers() -> list[str]:
    """Return the names of workers' processes on this machine."""
    names = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [name for name in names if name.startswith(WORKER)]


def head(starter: int) -> psutil.Process:
    """Return the head's process of a cluster."""
    (found,) = [each for each in psutil.Process(starter).children() if each.name() == "gcs_server"]
    return found


def doubling(prepared: Path) -> Callable[[int], tuple[int, int]]:
    """Prepare a worker, and note that in a folder; a task is doubled, with the worker's process."""
    (prepared / str(os.getpid())).touch()
    return partial(_double, prepared)


def _double(prepared: Path, task: int) -> tuple[int, int]:
    if task < 0:
        raise ValueError(f"no double of {task}")
    if task == 7 and len(list(prepared.iterdir())) <= WORKERS:
        os.kill(os.getpid(), 9)
    if task == 13:
        os.kill(os.getpid(), 9)
    return 2 * task, os.getpid()


def main() -> None:
    """Run a cluster until standard input ends."""
    with engines.use_engine("ray", WORKERS):
        assert engines._cluster is not None
        print(engines._cluster.address, os.environ["RAY_AUTH_TOKEN"], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
