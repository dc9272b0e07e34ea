"""kube-scheduler with the plugin `Steersman` beside the same program without it, on the same cluster."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.servers.plugin_scheduler import configuration, free_port, plugged_scheduler, profile

from benchmarks.live.rate import NODES, SCHEDULER, STEERSMAN, compared, local_cluster, run
from steersman.policies.policy_file import write_policy
from steersman.policies.registry import packaged_portfolio, policy_path
from steersman.simulation.prepared_policy import prepare_chosen
from steersman.workloads.formats.openb import embedded

PLAIN = "kube-scheduler"
"""The same binary without a plugin in its profile."""

TIMEOUT = "50ms"
"""How long a pod waits for scores: the plugin's default."""

Beside = Callable[[Path, int], AbstractContextManager[None]]
"""What must run beside the scheduler: told of the cluster's kubeconfig and a free port."""


def plugin_native() -> dict[str, Any]:
    """Return the packaged policy, prepared for openb `default`, evaluated in the scheduler."""
    return _compared("native", lambda folder, _: {"policyFile": str(_prepared(folder)), "timeout": TIMEOUT})


def plugin_service() -> dict[str, Any]:
    """Return the same policy, asked of `steersman serve` on this machine."""
    return _compared("service", _service_args, _serving)


def plugin_breaker() -> dict[str, Any]:
    """Return a service that does not exist: the breaker is open nearly all of the time."""
    return _compared("breaker-open", _service_args)


def _service_args(_: Path, port: int) -> Mapping[str, Any]:
    return {"mode": "service", "endpoint": f"http://127.0.0.1:{port}", "timeout": TIMEOUT}


def _prepared(folder: Path) -> Path:
    file = folder / "policy.safetensors"
    if not file.exists():
        with policy_path("steersman") as shipped:
            write_policy(file, *prepare_chosen(shipped, packaged_portfolio(), embedded("default"))[:2])
    return file


@contextmanager
def _serving(kubeconfig: Path, port: int) -> Iterator[None]:
    """Run a score service inside."""
    log = kubeconfig.with_name("serve.log")
    policy = _prepared(kubeconfig.parent)
    command = [STEERSMAN, "serve", "--kubeconfig", kubeconfig, "--port", str(port), "--policy", policy, "--unchecked"]
    with log.open("w") as stream:
        process = subprocess.Popen([str(part) for part in command], stdout=stream, stderr=stream)
        try:
            while not _ready(port):
                assert process.poll() is None, log.read_text()
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:
        return False


def _compared(
    mode: str, args: Callable[[Path, int], Mapping[str, Any]], beside: Beside = lambda *_: nullcontext()
) -> dict[str, Any]:
    """Pods bound a second with the plugin and without it, alternately, each started on 3,000 waiting pods."""
    program = plugged_scheduler()
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, _):
        port = free_port()

        def attempt(name: str, args: Mapping[str, Any] | None, beside: Beside) -> tuple[float, float]:
            file = Path(folder, f"{name}.json")
            file.write_text(json.dumps(configuration(kubeconfig, [profile(args, name=SCHEDULER)])))
            with beside(kubeconfig, port):
                return run(kubeconfig, [str(program), f"--config={file}", "--secure-port=0"])

        with_it = partial(attempt, mode, args(Path(folder), port), beside)
        return compared({mode: with_it, PLAIN: partial(attempt, PLAIN, None, lambda *_: nullcontext())})
