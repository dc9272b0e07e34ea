"""How fast the simulator is: one run, its growth with the cluster, starting up, and the whole published experiment."""

from __future__ import annotations

import csv
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
from tests.support.compiled_core import both_begun
from tests.support.recorded_core import RecordingCore

from steersman.core import library
from steersman.core.library import Core, NativeCore
from steersman.core.portable import PortableCore
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.result import Protocol
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded, embedded_names
from steersman.workloads.workload import Workload

Result = dict[str, float | str]

PUBLISHED_POLICIES = ("random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
UNPUBLISHED = ("cpu072", "cpu235")


def _timed_run(simulator: Simulator, policy: str, seed: int, protocol: Protocol = "inflation") -> tuple[float, int]:
    """Seconds of the event loop alone, and its decisions."""
    plan = schedule(simulator.workload, protocol, seed=seed, ratio=1.3, load=None)
    execution = Execution(simulator, plan, resolve(policy), seed, record=False)
    begin = time.perf_counter()
    execution.finish(None)
    return time.perf_counter() - begin, len(plan.pods)


def _rescoring_run(simulator: Simulator, seed: int, decisions: int) -> float:
    """Seconds for the first decisions when every decision scores every node anew, by the same compiled kernels."""
    plan = schedule(simulator.workload, "inflation", seed=seed, ratio=1.3, load=None)
    execution = Execution(simulator, plan, resolve("fgd"), seed, record=False)
    begin = time.perf_counter()
    for until in range(1, decisions + 1):
        execution.cluster.table.log_position[:] = -1
        execution.advance(until)
    return time.perf_counter() - begin


def fgd_run() -> Result:
    """One FGD run of `default` (1,213 nodes), against scoring all nodes anew for every pod."""
    simulator = Simulator(embedded("default"))
    _timed_run(simulator, "fgd", 42)
    pairs = []
    for seed in range(42, 49):
        seconds, decisions = _timed_run(simulator, "fgd", seed)
        whole = time.perf_counter()
        simulator.run("fgd", seed=seed)
        pairs.append((seconds, decisions, time.perf_counter() - whole, _rescoring_run(simulator, seed, 2000) / 2000))
    per_decision = median(seconds / decisions for seconds, decisions, _, _ in pairs)
    return {
        "decisions": pairs[0][1],
        "seconds_event_loop": round(median(p[0] for p in pairs), 4),
        "seconds_with_inflation_and_metrics": round(median(p[2] for p in pairs), 4),
        "microseconds_per_decision": round(per_decision * 1e6, 2),
        "rescoring_all_nodes_over_score_table": round(median(p[3] * p[1] / p[0] for p in pairs), 1),
    }


def core_run() -> Result:
    """One FGD run of `default` by the compiled core, native and portable, against the event loop of Numba's kernels."""
    simulator, policy = Simulator(embedded("default")), resolve("fgd")
    plan = schedule(simulator.workload, "inflation", seed=42, ratio=1.3, load=None)
    asked = RecordingCore(NativeCore())
    with patch.object(library, "_load", lambda: asked):
        both_begun(simulator, plan, policy, 42)
        gc.collect()
    (description,) = (call.before for call in asked.calls if call.name == "engine_new")
    portable = PortableCore(library.MODULE)

    def seconds(work: Callable[[], object]) -> float:
        begin = time.thread_time()  # of the processor, so that other processes do not count
        work()
        return time.thread_time() - begin

    def by_core(core: Core) -> float:
        number = core.call("engine_new", description)
        taken = seconds(lambda: core.call("engine_advance", (number, 1 << 31)))
        assert core.call("engine_count", (number,)) == len(plan.pods)
        core.call("forget", (number,))
        return taken

    def by_kernels() -> float:
        execution = Execution(simulator, plan, policy, 42, record=False)
        return seconds(lambda: execution.finish(None))

    runs = [(by_kernels(), by_core(asked.core), by_core(portable)) for _ in range(22)][1:]
    kernels, native, compiled = (median(each) for each in zip(*runs, strict=True))
    return {
        "decisions": len(plan.pods),
        "seconds_kernels": round(kernels, 4),
        "seconds_native": round(native, 4),
        "seconds_portable": round(compiled, 4),
        "native_over_kernels": round(median(b / a for a, b, _ in runs), 2),
        "portable_over_native": round(median(c / b for _, b, c in runs), 2),
    }


def _drawn(nodes: int, pods: int) -> Workload:
    """Return a cluster and pods drawn from the openb trace."""
    base, random = embedded("default"), np.random.default_rng(1)
    of_nodes = random.integers(0, len(base.nodes), nodes).tolist()
    of_pods = random.integers(0, len(base.pods), pods).tolist()
    return Workload(
        f"{nodes} nodes",
        tuple(replace(base.nodes[i], name=f"node-{k:06d}") for k, i in enumerate(of_nodes)),
        tuple(replace(base.pods[i], name=f"pod-{k:07d}") for k, i in enumerate(of_pods)),
    )


def growth() -> Result:
    """FGD on ten and a hundred times the nodes: what a decision costs more, and the memory of the largest process."""
    result: Result = {}
    cost = {}
    for nodes in (1_000, 10_000, 100_000):
        simulator = Simulator(_drawn(nodes, nodes * 10))
        seconds, decisions = _timed_run(simulator, "fgd", 1, "arrivals")
        cost[nodes] = seconds / decisions
        result[f"microseconds_per_decision_{nodes}_nodes"] = round(cost[nodes] * 1e6, 2)
    result["ratio_10000_over_1000_nodes"] = round(cost[10_000] / cost[1_000], 2)
    result["ratio_100000_over_10000_nodes"] = round(cost[100_000] / cost[10_000], 2)
    result["peak_memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    return result


_FIRST_RUN = """
import json, time
begin = time.perf_counter()
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
simulator = Simulator(embedded("default"))
simulator.run("fgd")
print(json.dumps(time.perf_counter() - begin))
"""


def start() -> Result:
    """Measure a process up to the end of its first FGD run: with an empty kernel cache, then with a filled one."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "STEERSMAN_CACHE_DIR": cache}

        def process() -> float:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", _FIRST_RUN], env=environment, check=True, capture_output=True)
            return time.perf_counter() - begin

        cold = process()
        warm = median(process() for _ in range(5))
    return {
        "seconds_first_process": round(cold, 2),
        "seconds_process_with_cached_kernels": round(warm, 2),
        "first_over_cached": round(cold / warm, 1),
    }


def published_grid() -> Result:
    """13 workloads x 6 policies x 10 seeds by the command line on all cores, compilation included."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "STEERSMAN_CACHE_DIR": f"{folder}/cache"}
        names = [name for name in embedded_names() if name not in UNPUBLISHED]
        command = [str(Path(sys.executable).with_name("steersman")), "evaluate", "--seeds", "42-51"]
        for policy in PUBLISHED_POLICIES:
            command += ["--policy", policy]
        data = Path(__file__).parents[2] / "src" / "steersman" / "data" / "openb"
        command += ["--nodes", str(data / "openb_node_list_gpu_node.csv.gz"), "--output", f"{folder}/out"]
        command += ["--jobs", str(os.cpu_count()), "--pods"]
        command += [str(data / f"openb_pod_list_{name}.csv.gz") for name in names]
        begin = time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds = time.perf_counter() - begin
        with Path(folder, "out", "results.csv").open() as file:
            runs = len({(row["workload"], row["policy"], row["seed"]) for row in csv.DictReader(file)})
    return {"runs": runs, "seconds": round(seconds, 1), "cores": os.cpu_count() or 0}
