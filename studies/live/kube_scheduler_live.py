"""The forecast of `fit scheduler` on a real control plane: kube-scheduler's default against what was found.

Clusters are generated, of 200 unequal nodes whose GPUs are offered as nvidia.com/gpu. Pods come until they have
requested 1.3 times the GPUs, so that in the end nothing more fits. Forecast and runs use draws that the search did not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, PLUGIN_GPUS, Node, Pod
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.core.errors import SteersmanError
from steersman.live.local_cluster.control_plane import build
from steersman.live.local_cluster.nodes import prepared
from steersman.policies.base import Policy
from steersman.policies.kube_scheduler.arguments import API_VERSION
from steersman.policies.kube_scheduler.configuration import KIND, profiles_of
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED, KubeSchedulerPolicy
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule, draw
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.yaml_documents import read_documents, write_documents
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk
from studies.live.cluster import state_dir
from studies.live.filled_cluster import BACKLOG, QUIET_SECONDS, fill

NAME = "kube_scheduler_live"
MINUTES = 35
CLUSTER = "kube-scheduler-live"
GPU = "nvidia.com/gpu"
ARMS = (KUBE_DEFAULT, STOCK_TUNED)
FORECAST_SEED = 1_800_000_000
"""First seed of the draws of the forecast; those of the search and of its validation are others."""
LIVE_SEED = 1_700_000_000
"""First seed of the draws that are played."""
PART = 50
"""Draws of the forecast that a worker simulates at once."""
PERCENTS = (2.5, 97.5)
WIDTH = 120
ROUNDING = 1e-6
"""Points by which percentages that are computed in two ways may differ."""

Floats = npt.NDArray[np.float64]


def options(quick: bool = False) -> Json:
    """Return what the result depends on.

    `clusters`: the first ones of whole GPUs and nodes of several types for which the search shows a gain.
    """
    return {
        "clusters": (4,) if quick else (4, 10, 11, 13),
        "nodes": 30 if quick else 200,
        "ratio": 1.3,
        "forecasts": PART if quick else 400,
        "replays": 10 if quick else 100,
        "draws": 1 if quick else 5,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Search for configurations and write the forecasts, then play every draw with both configurations."""
    at, asked = desk(NAME, quick, say), options(quick)
    forecasts = {seed: _forecast(at, asked, seed) for seed in asked["clusters"]}
    state_dir(at.folder / "clusters")
    values: list[Json] = []
    progress, total = Progress(say, "draws"), len(forecasts) * asked["draws"]
    for seed, forecast in forecasts.items():
        draws: list[Json] = []
        for k in range(asked["draws"]):
            runs = {}
            for arm in ARMS:
                depends = {**forecast["asked"], "draw": k, "arm": arm}
                runs[arm] = at.once(f"run-{seed}-{k}-{arm}", depends, partial(_play, at, depends))
            draws.append(_compared(workload_of(seed, asked["nodes"]), runs, forecast["replays"][k]))
            progress(len(values) * asked["draws"] + len(draws), total)
        kept = {name: forecast[name] for name in ("fit", "gain", "written")}
        values.append({"cluster": seed, **kept, "draws": draws})
    version = build.version_of(build.find_minor(None))
    return {**asked, "kubernetes": version, "values": values}


def _forecast(at: Desk, asked: Json, seed: int) -> Json:
    """Return the configuration found for a cluster, the interval of its gain, and simulations of the played draws."""
    depends = {"cluster": seed, "nodes": asked["nodes"], "ratio": asked["ratio"]}
    found = at.once(f"fit-{seed}", depends, partial(_fit, at, depends))
    depends["configuration"] = found["configuration"]
    parts = {
        f"forecast-{seed}-{first}": {**depends, "first": first, "count": min(PART, asked["forecasts"] - first)}
        for first in range(0, asked["forecasts"], PART)
    }
    drawn = at.each(parts, _simulated_draws, Progress(at.say, f"cluster {seed}, forecast"))
    parts = {f"replays-{seed}-{k}": {**depends, "draw": k, "replays": asked["replays"]} for k in range(asked["draws"])}
    replayed = at.each(parts, _replays, Progress(at.say, f"cluster {seed}, replays of the draws"))
    gain = _interval(np.concatenate([each["gains"] for each in drawn.values()]))
    # Its time shows that it was there before the first run.
    written = at.once(f"written-{seed}", {**depends, "gain": gain}, lambda: {"written": _now()})["written"]
    replays = list(replayed.values())
    return {"asked": depends, "fit": found, "gain": gain, "written": written, "replays": replays}


@cache
def workload_of(seed: int, nodes: int) -> Workload:
    """Return a generated cluster as kube-scheduler can count it.

    GPUs are offered and requested as nvidia.com/gpu, and a pod that insists on a model selects it by the label of
    NVIDIA's GPU feature discovery.

    Raises:
        SteersmanError: pods request shares of GPUs, which kube-scheduler does not know.
    """
    drawn = random_cluster(seed, distribution=Distribution.VALIDATION, nodes=(nodes, nodes))
    offering = [replace(node, gpu_resources=(GPU,)) if node.gpu_count else node for node in drawn.nodes]
    return Workload(drawn.name, tuple(prepared(offering)), tuple(map(_whole_gpu_pod, drawn.pods)))


def _whole_gpu_pod(pod: Pod) -> Pod:
    requests, constraints = pod.requests, pod.constraints
    if requests.gpu_count:
        if requests.gpu_milli != GPU_MILLI:
            raise SteersmanError(f"pod {pod.name} requests a share of a GPU; kube-scheduler counts whole ones")
        requests = replace(requests, gpu_resource=GPU)
    selected = tuple((PLUGIN_GPUS[GPU], model) for model in constraints.gpu_models)
    constraints = replace(constraints, gpu_models=(), node_selector=constraints.node_selector + selected)
    pod_class = replace(pod.pod_class, requests=requests, constraints=constraints)
    return replace(pod, pod_class=pod_class, creation_time=None, deletion_time=None)


def _fit(at: Desk, asked: Json) -> Json:
    """Run `steersman fit scheduler` on files of the cluster; return the configuration that it wrote."""
    workload, folder = workload_of(asked["cluster"], asked["nodes"]), at.folder / f"fit-{asked['cluster']}"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.yaml" for name in ("nodes", "pods", "scheduler")}
    write_documents(files["nodes"], map(node_to_object, workload.nodes))
    write_documents(files["pods"], map(pod_to_object, workload.pods))
    files["scheduler"].unlink(missing_ok=True)
    command = [sys.executable, "-m", "steersman", "fit", "scheduler", "--ratio", str(asked["ratio"])]
    command += ["--nodes", str(files["nodes"]), "--pods", str(files["pods"]), "--output", str(files["scheduler"])]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode or not files["scheduler"].exists():
        raise SteersmanError(f"fit scheduler wrote no configuration: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    (document,) = read_documents(files["scheduler"])
    return {
        "configuration": document.content,
        "gain": next(each["gain"] for each in told["policies"] if each["policy"] == STOCK_TUNED),
        "draws": told["draws"],
        "types": len(set(map(_type_of, workload.nodes))),
        "gpus": workload.gpu_capacity // GPU_MILLI,
    }


def configuration_of_arm(asked: Json, arm: str) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration of an arm; the default one says nothing."""
    if arm == STOCK_TUNED:
        return dict(asked["configuration"])
    return {"apiVersion": API_VERSION, "kind": KIND}


def policies_of(asked: Json) -> dict[str, Policy]:
    """Return the policies of both arms, read from their configurations."""
    return {arm: _policy(arm, configuration_of_arm(asked, arm)) for arm in ARMS}


def _policy(arm: str, configuration: Json) -> Policy:
    if "profiles" not in configuration:
        return KubeSchedulerPolicy(arm)
    (profile,) = profiles_of(configuration).values()
    return KubeSchedulerPolicy(arm, profile)


def _arrivals(simulator: Simulator, asked: Json, seed: int) -> Schedule:
    return draw(simulator.workload, "inflation", seed, asked["ratio"], None)


def _simulated_draws(asked: Json) -> Json:
    """Return the gain in each of some draws of the forecast."""
    simulator = Simulator(workload_of(asked["cluster"], asked["nodes"]))
    policies, gains = policies_of(asked), []
    for k in range(asked["first"], asked["first"] + asked["count"]):
        plan = _arrivals(simulator, asked, FORECAST_SEED + k)
        left = [simulator.play(policies[arm], plan, 2 * k + i).cost("inflation") for i, arm in enumerate(ARMS)]
        gains.append(left[0] - left[1])
    return {"gains": gains}


def _interval(gains: Floats) -> Json:
    """Return where 95 % of single draws lie, and the mean of all."""
    low, high = np.percentile(gains, PERCENTS)
    return {"mean": float(np.mean(gains)), "low": float(low), "high": float(high)}


def _replays(asked: Json) -> Json:
    """Return the allocation of a draw under both configurations, simulated with other orders of nodes and other ties.

    Also how far two simulations differ from each other: pods that only one of them binds, and pods that both bind to
    nodes of different types.
    """
    simulator = Simulator(workload_of(asked["cluster"], asked["nodes"]))
    plan = _arrivals(simulator, asked, LIVE_SEED + asked["draw"])
    result: Json = {}
    for i, (arm, policy) in enumerate(policies_of(asked).items()):
        allocated, placed = [], []
        for seed in range(asked["replays"]):
            random = np.random.default_rng((asked["draw"], i, seed))
            other = replace(plan, nodes=random.permutation(plan.nodes))
            execution = simulator.play(policy, other, seed * len(ARMS) + i)
            allocated.append(100.0 - execution.cost("inflation"))
            placed.append(_placed(execution, other))
        workload = simulator.workload
        pairs = [differences(workload, one, two) for one, two in zip(placed[::2], placed[1::2], strict=True)]
        result[arm] = {"allocated": allocated, "differences": np.mean(pairs, axis=0)}
        result[arm]["example"] = placed[0]
    return result


def _placed(execution: Execution, plan: Schedule) -> list[int]:
    """Return the index of the node of each arrival, -1 for none."""
    numbers = execution.record().numbers
    bound = numbers[numbers[:, event_arrays.OUTCOME] == event_arrays.BOUND]
    result = np.full(len(plan.pods), -1, dtype=np.int64)
    result[bound[:, event_arrays.ARRIVAL]] = plan.nodes[bound[:, event_arrays.SLOT]]
    return list(result.tolist())


def differences(workload: Workload, one: list[int], two: list[int]) -> tuple[int, int]:
    """Return how many pods only one of two placements binds, and how many they bind to nodes of different types.

    Args:
        workload: its nodes.
        one: index of the node of each arrival, -1 for none.
        two: the same of the other placement.
    """
    types = list(map(_type_of, workload.nodes))
    fates = [(a < 0) != (b < 0) for a, b in zip(one, two, strict=True)]
    moved = [a >= 0 and b >= 0 and types[a] != types[b] for a, b in zip(one, two, strict=True)]
    return sum(fates), sum(moved)


def _type_of(node: Node) -> tuple[int, int, int, str]:
    return node.cpu_milli, node.memory_bytes, node.gpu_count, node.gpu_model


def _play(at: Desk, asked: Json) -> Json:
    """Return what a real kube-scheduler makes of a draw."""
    workload, arm = workload_of(asked["cluster"], asked["nodes"]), asked["arm"]
    plan, began = _arrivals(Simulator(workload), asked, LIVE_SEED + asked["draw"]), _now()
    pods = [workload.pods[i] for i in plan.pods.tolist()]
    folder = at.folder / f"run-{asked['cluster']}-{asked['draw']}-{arm}"
    filled = fill(CLUSTER, workload.nodes, pods, configuration_of_arm(asked, arm), folder, at.say)
    index = {node.name: i for i, node in enumerate(workload.nodes)}
    placed = [index[node] if node else -1 for node in filled.nodes]
    gpus = sum(pod.requests.gpu_count for pod, node in zip(pods, placed, strict=True) if node >= 0)
    allocated = 100.0 * GPU_MILLI * gpus / workload.gpu_capacity
    at.say(f"cluster {asked['cluster']}, draw {asked['draw']}, {arm}: {allocated:.2f} % of the GPUs allocated")
    return {
        "began": began,
        "pods": len(pods),
        "bound": sum(node >= 0 for node in placed),
        "allocated": allocated,
        "seconds": filled.seconds,
        "problems": filled.problems,
        "fitting": filled.fitting,
        "placed": placed,
    }


def _compared(workload: Workload, runs: Json, replayed: Json) -> Json:
    """Return the figures of a draw beside those of its simulations, without single pods."""
    result: Json = {"gain": _gain(runs, "allocated"), "simulated": _interval(_gain(replayed, "allocated")), "arms": {}}
    for arm, run_of in runs.items():
        result["arms"][arm] = {
            **{name: value for name, value in run_of.items() if name != "placed"},
            "simulated": _interval(np.array(replayed[arm]["allocated"])),
            "differences": differences(workload, run_of["placed"], replayed[arm]["example"]),
            "between_simulations": replayed[arm]["differences"],
        }
    return result


def _gain(arms: Json, name: str) -> Any:
    """Return what the tuned configuration has beyond the default one."""
    return np.asarray(arms[STOCK_TUNED][name]) - np.asarray(arms[KUBE_DEFAULT][name])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _allocated(value: Json, arm: str) -> float:
    """Return the percent of GPUs that an arm allocated, the mean of the draws of a cluster."""
    return float(np.mean([draw_of["arms"][arm]["allocated"] for draw_of in value["draws"]]))


def _inside(interval: Json, value: float, slack: float = 0.0) -> bool:
    return bool(interval["low"] - slack <= value <= interval["high"] + slack)


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    hits = [_inside(value["gain"], draw_of["gain"]) for value in result["values"] for draw_of in value["draws"]]
    return (
        f"An unmodified kube-scheduler with the edited file gained what was forecast in {sum(hits)} of {len(hits)} "
        f"draws on {len(result['values'])} clusters of {result['nodes']} nodes."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    values = result["values"]
    draws = [draw_of for value in values for draw_of in value["draws"]]
    runs = [each for draw_of in draws for each in draw_of["arms"].values()]
    hits = [_inside(value["gain"], draw_of["gain"]) for value in values for draw_of in value["draws"]]
    own = [_inside(draw_of["simulated"], draw_of["gain"], ROUNDING) for draw_of in draws]
    paragraphs = [
        f"""etcd, kube-apiserver, kube-controller-manager and an unmodified kube-scheduler {result["kubernetes"]}, with
{result["nodes"]} nodes of KWOK. The clusters are generated: the first {len(values)} in which all pods request whole
GPUs, nodes are of several types, and `steersman fit scheduler` shows a gain. GPUs are offered as `{GPU}`. In
each of {result["draws"]} draws pods come to an empty cluster until they have requested {result["ratio"]:g} times its
GPUs: once with kube-scheduler's default, once with the configuration that the command wrote, to which only the
connection was added. A pod is created when fewer than {BACKLOG} wait for their first attempt. A run ends when every
pod was bound or refused and nothing has changed for {QUIET_SECONDS:g} s.""",
        f"""The forecasts were written by {max(value["written"] for value in values)}; the first run began at
{min(each["began"] for each in runs)}. A forecast is where 95 % of {result["forecasts"]} simulated draws lie, of
which no run plays one. In the first cluster {sum(hits[: result["draws"]])} of {result["draws"]} gains lie in it, in
all of them {sum(hits)} of {len(hits)}. Problems (pods lost or moved, nodes beyond what they offer):
{sum(len(each["problems"]) for each in runs)}. Refused pods for which there was room in the end:
{sum(each["fitting"] for each in runs)}.""",
        _gain_table(values),
        f"""The same draws were simulated {result["replays"]} times each, with other orders of nodes and other random
choices among equal scores; the means of their gains are in brackets above. {sum(own)} of {len(own)} gains lie
where 95 % of the simulations of their own draw lie. The table shows the GPUs allocated live minus the mean of the
simulations, in points. The last columns count pods that fare otherwise in a run than in a simulation, and in brackets
those in which two simulations differ, means of the draws.""",
        _comparison_table(values),
    ]
    filled = [
        each if each.startswith("|") else textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in paragraphs
    ]
    return "\n\n".join(["## The forecast of `fit scheduler` on a real control plane", *filled])


def _gain_table(values: list[Json]) -> str:
    rows = []
    for value in values:
        gains = [each["gain"] for each in value["draws"]]
        rows.append(
            [
                f"{value['cluster']}: {value['fit']['gpus']:,} GPUs, {value['fit']['types']} types of nodes",
                f"{_allocated(value, KUBE_DEFAULT):.1f} %",
                tables.interval(value["gain"], 1),
                f"{np.mean(gains):+.1f}",
                ", ".join(f"{each['gain']:.1f} ({each['simulated']['mean']:.1f})" for each in value["draws"]),
                f"{sum(_inside(value['gain'], gain) for gain in gains)} of {len(gains)}",
            ]
        )
    header = ["cluster", "default", "forecast of the gain, points", "gain", "each draw (simulated)", "in the forecast"]
    return tables.markdown(header, rows)


def _comparison_table(values: list[Json]) -> str:
    rows = []
    for value in values:
        for arm in ARMS:
            runs = [draw_of["arms"][arm] for draw_of in value["draws"]]
            beyond = [each["allocated"] - each["simulated"]["mean"] for each in runs]
            within = [_inside(each["simulated"], each["allocated"], ROUNDING) for each in runs]
            live = np.mean([each["differences"] for each in runs], axis=0)
            usual = np.mean([each["between_simulations"] for each in runs], axis=0)
            rows.append(
                [
                    f"{value['cluster']}, `{arm}`",
                    f"{np.mean([each['pods'] for each in runs]):.0f}",
                    ", ".join(f"{round(points, 2) + 0.0:+.2f}" for points in beyond),
                    f"{sum(within)} of {len(within)}",
                    *(f"{live[i]:.1f} ({usual[i]:.1f})" for i in range(2)),
                ]
            )
    header = ["cluster", "pods", "live minus simulated", "within 95 % of simulations", "bound in one alone"]
    return tables.markdown([*header, "on another type of node"], rows)
