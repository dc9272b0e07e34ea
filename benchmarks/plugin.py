"""kube-scheduler with the plugin `Steersman` beside the same program without it, on the same cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.e2e.plugin_build import configuration, free_port, plugged_scheduler, profile

from benchmarks.live import NODES, PAIRS, PODS, SCHEDULER, STEERSMAN, local_cluster, run
from steersman.evaluation.statistics import mean_interval
from steersman.policies.policy_file import prepare_policy, write_policy
from steersman.policies.registry import policy_path
from steersman.workloads.openb import embedded

PLAIN = "kube-scheduler"
"""The same binary without a plugin in its profile."""

Beside = Callable[[Path, int], AbstractContextManager[None]]
"""What must run beside the scheduler: told of the cluster's kubeconfig and a free port."""


def plugin_native() -> dict[str, Any]:
    """The policy that comes with the package, prepared for openb `default`, evaluated in the scheduler."""
    return _compared("native", lambda folder, _: {"policyFile": str(_prepared(folder))})


def plugin_service() -> dict[str, Any]:
    """The same policy, asked of `steersman serve` on this machine."""
    return _compared("service", _service_args, _serving)


def plugin_breaker() -> dict[str, Any]:
    """A service that is not there: the breaker is open nearly all of the time."""
    return _compared("breaker-open", _service_args)


def _service_args(_: Path, port: int) -> Mapping[str, Any]:
    return {"mode": "service", "endpoint": f"http://127.0.0.1:{port}"}


def _prepared(folder: Path) -> Path:
    file = folder / "policy.safetensors"
    if not file.exists():
        with policy_path("steersman") as shipped:
            write_policy(file, *prepare_policy(shipped, embedded("default")))
    return file


@contextmanager
def _serving(kubeconfig: Path, port: int) -> Iterator[None]:
    """A score service, while it is needed."""
    log = kubeconfig.with_name("serve.log")
    policy = _prepared(kubeconfig.parent)
    command = [STEERSMAN, "serve", "--kubeconfig", kubeconfig, "--port", str(port), "--policy", policy]
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
    pairs, program = int(os.environ.get("STEERSMAN_BENCH_PAIRS", PAIRS)), plugged_scheduler()
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, _):
        port = free_port()
        profiles = {PLAIN: profile(None, name=SCHEDULER), mode: profile(args(Path(folder), port), name=SCHEDULER)}
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in profiles}
        for i in range(pairs):
            for name in sorted(profiles, reverse=bool(i % 2)):
                file = Path(folder, f"{name}.json")
                file.write_text(json.dumps(configuration(kubeconfig, [profiles[name]])))
                with beside(kubeconfig, port) if name == mode else nullcontext():
                    command = [str(program), f"--config={file}", "--secure-port=0"]
                    runs[name].append(asyncio.run(run(kubeconfig, command)))
                print(f"  pair {i + 1}: {name} {runs[name][-1][0]:.0f} pods/s", flush=True)
    ratios = np.array([rate for rate, _ in runs[mode]]) / np.array([rate for rate, _ in runs[PLAIN]])
    return {
        "nodes": NODES,
        "pods": PODS,
        "pairs": pairs,
        "ratio_median": round(float(np.median(ratios)), 3),
        "ratio_interval": [round(end, 3) for end in mean_interval(ratios)] if pairs > 1 else None,
        "ratios": [round(float(ratio), 3) for ratio in ratios],
        **{f"{name}_pods_per_second": _median(found, 0) for name, found in runs.items()},
        **{f"{name}_cpu_ms_per_pod": _median(found, 1) for name, found in runs.items()},
    }


def _median(found: list[tuple[float, float]], which: int) -> float:
    return round(float(np.median([each[which] for each in found])), 3)
