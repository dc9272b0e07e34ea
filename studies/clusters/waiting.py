"""Waiting time with departures: a policy trained for it, against kube-scheduler's default and the best packers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import SimulationTask
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.policies.base import Policy
from steersman.policies.portfolios import RULES
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.pod_kinds import kinds_of
from steersman.simulation.run import Execution, Simulator
from steersman.training.run import TrainingLimits
from steersman.training.search.evolve import EvolutionPlan
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import SEEDS, Desk, Json, Progress, Say, desk, train_plan, workloads

NAME = "waiting"
MINUTES = 15
DATA = ("openb",)
WORKLOAD = "default"
LOADS = (0.9, 1.0, 1.1)
BASELINES = ("kube-default", "fgd")
POLICIES = (*BASELINES, "best-fit", "gpu-packing", RULES, PACKAGED_POLICY)
LEARNED = "learned"
BOUND = "bound"
EVERY = "mean with the warm start"

PARTS, QUICK_PARTS = 4, 24
"""Trained is on every fourth node and pod: an episode takes a tenth of the time, which buys more candidates."""
TRAINING_LOADS = (1.0, 1.1)
"""For loads of the evaluation. An episode's own load differs by 0.05 or so with its seed."""
TRAINING_SEEDS = (1, 2)
VALIDATION_SEEDS = (5001, 5002, 5003, 5004, 5005, 5006)
CONFIG = EvolutionConfig(population=16, episodes=4, step=0.2, loss_weight=0.0, memory=0.9)
GENERATIONS = 60
VALIDATE_EVERY = 10

KINDS = ("no GPU", "a share", "one GPU", "several GPUs")
HOUR = 3600.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "workload": WORKLOAD,
        "policies": POLICIES,
        "loads": LOADS,
        "seeds": SEEDS[:3] if quick else SEEDS,
        "training_seeds": TRAINING_SEEDS[:2] if quick else TRAINING_SEEDS,
        "training_loads": TRAINING_LOADS[:1] if quick else TRAINING_LOADS,
        "training": _plan(TRAINING_LOADS[0], TRAINING_SEEDS[0], quick).options(),
        "generations": 2 if quick else GENERATIONS,
        "parts": QUICK_PARTS if quick else PARTS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train for every load with every seed, and play all policies at every load."""
    at, asked = desk(NAME, quick, say), options(quick)
    policies: dict[str, Policy] = {name: resolve(name) for name in POLICIES}
    standings: Json = {}
    limits = TrainingLimits(asked["generations"], validate_every=2 if quick else VALIDATE_EVERY)
    for load in asked["training_loads"]:
        for seed in asked["training_seeds"]:
            plan = _plan(load, seed, quick)
            file, standings[plan.name] = train_plan(at, plan.name, plan, limits)
            policies[plan.name] = resolve(str(file))
    simulator = Simulator(workloads((WORKLOAD,), quick)[0])
    values: Json = {}
    for load in LOADS:
        play = partial(_play, at, simulator, policies, load, asked["seeds"])
        values[str(load)] = at.once(f"load-{load}", {**asked, "load": load, "standings": standings}, play)
    compared = {load: _compare(result) for load, result in values.items()}
    return {**asked, "standings": standings, "values": values, "comparison": compared}


def thinned(workload: Workload, parts: int) -> Workload:
    """Every `parts`-th node, and every `parts`-th pod in the order of GPUs and duration.

    Few pods do most of the work, so that a sample in any other order would be another workload.
    """

    def size(i: int) -> tuple[int, int, float]:
        pod = workload.pods[i]
        return pod.requests.gpu_count, pod.requests.gpu_milli, _duration(pod)

    kept = sorted(sorted(range(len(workload.pods)), key=size)[parts // 2 :: parts])
    return replace(
        workload,
        name=f"{workload.name}-every-{parts}th",
        nodes=workload.nodes[parts // 2 :: parts],
        pods=tuple(workload.pods[i] for i in kept),
    )


def _duration(pod: Pod) -> float:
    return 0.0 if pod.deletion_time is None else pod.deletion_time - (pod.creation_time or 0.0)


def _plan(load: float, seed: int, quick: bool) -> EvolutionPlan:
    (workload,) = workloads((WORKLOAD,), quick=False)
    return EvolutionPlan(
        name=f"{LEARNED}-{load:g}-{seed}",
        training=(thinned(workload, QUICK_PARTS if quick else PARTS),),
        validation=workloads((WORKLOAD,), quick),
        task=SimulationTask("waiting-time", "timed", load=load),
        config=replace(CONFIG, population=4, episodes=1) if quick else CONFIG,
        seed=seed,
        validation_seeds=VALIDATION_SEEDS[:1] if quick else VALIDATION_SEEDS,
    )


def _play(at: Desk, simulator: Simulator, policies: dict[str, Policy], load: float, seeds: list[int]) -> Json:
    """By policy, a value a seed of what `_figures` says; the bound is a policy without figures but the mean."""
    progress, done = Progress(at.say, f"load {load}, runs"), 0
    result: dict[str, dict[str, list[float]]] = {name: {} for name in policies} | {BOUND: {"mean": [], EVERY: []}}
    pods = simulator.workload.pods
    demand = np.array([pod.requests.gpu_total_milli for pod in pods], dtype=np.int64)
    kind = _kinds(simulator.workload)
    members = {name: simulator.member(policy, protocol="timed", load=load).policy for name, policy in policies.items()}
    for seed in seeds:
        plan = schedule(simulator.workload, "timed", seed=seed, ratio=1.0, load=load)
        for name, policy in members.items():
            wait = _waits(simulator, plan, policy, seed)
            for figure, value in _figures(wait, demand[plan.pods], kind[plan.pods], plan.warm).items():
                result[name].setdefault(figure, []).append(value)
            done += 1
            progress(done, len(seeds) * len(policies))
        capacity = GPU_MILLI * sum(node.gpu_count for node in simulator.workload.nodes)
        result[BOUND]["mean"].append(least_mean_wait(without_warm_start(plan), demand, capacity))
        result[BOUND][EVERY].append(least_mean_wait(plan, demand, capacity))
    return dict(result)


def _kinds(workload: Workload) -> Ints:
    """[P] the number in `KINDS` of each pod."""
    requests = [(pod.requests.gpu_total_milli, pod.requests.gpu_count) for pod in workload.pods]
    demand, devices = np.array(requests, dtype=np.int64).T
    return kinds_of(demand, devices)


def _waits(simulator: Simulator, plan: Schedule, policy: Policy, seed: int) -> Floats:
    """Return [A] seconds from arrival to binding; NaN for pods that fit on no node."""
    execution = Execution(simulator, plan, policy, seed, record=False)
    execution.finish(None)
    record = execution.record()
    numbers = record.numbers
    bound = numbers[:, event_arrays.OUTCOME] == event_arrays.BOUND
    wait = np.full(len(plan.pods), np.nan)
    arrival = numbers[bound, event_arrays.ARRIVAL]
    wait[arrival] = record.time[bound] - plan.time[arrival]
    return wait


def _figures(wait: Floats, demand: Ints, kind: Ints, warm: int) -> dict[str, float]:
    """Of the bound pods: the mean wait and its parts by kind, which add up; weighted by GPU; percentiles; who waits.

    The first `warm` pods run when the arrivals begin: they count in one figure alone.
    """
    every = float(wait[np.isfinite(wait)].mean())
    wait, demand, kind = wait[warm:], demand[warm:], kind[warm:]
    bound = np.isfinite(wait)
    wait, demand, kind = wait[bound], demand[bound], kind[bound]
    parts = np.bincount(kind, weights=wait, minlength=len(KINDS)) / len(wait)
    return {
        "mean": float(wait.mean()),
        EVERY: every,
        "median": float(np.median(wait)),
        "p95": float(np.percentile(wait, 95)),
        "max": float(wait.max()),
        "weighted_by_gpu": float((wait * demand).sum() / demand.sum()),
        "delayed_percent": 100.0 * float((wait > 0).mean()),
        "several_gpus_delayed_percent": 100.0 * float((wait[kind == 3] > 0).mean()) if (kind == 3).any() else 0.0,
        **{f"from {name}": float(part) for name, part in zip(KINDS, parts, strict=True)},
    }


def without_warm_start(plan: Schedule) -> Schedule:
    """Return the arrivals without the pods that run when they begin: if those took no room, nobody would wait more."""
    first = plan.warm
    return replace(plan, pods=plan.pods[first:], time=plan.time[first:], duration=plan.duration[first:], warm=0)


def least_mean_wait(plan: Schedule, demand: Ints, capacity: int) -> float:
    """Return a bound: no scheduler's pods wait less on average, even if all GPUs were one.

    The pods that would be running at a moment had nobody waited are all still there, running or waiting, if anybody
    did. So at least as many wait as have to be taken away, the largest first, for the rest to fit.

    Args:
        plan: the arrivals.
        demand: [P] GPU milli by pod of the workload.
        capacity: GPU milli of the cluster.
    """
    wanted, (sizes, size) = demand[plan.pods], np.unique(demand[plan.pods], return_inverse=True)
    moment = np.concatenate([plan.time, plan.time + plan.duration])
    order = np.argsort(moment, kind="stable")
    step = np.concatenate([np.ones(len(wanted), dtype=np.int64), -np.ones(len(wanted), dtype=np.int64)])[order]
    size = np.concatenate([size, size])[order]
    length = np.diff(moment[order], append=moment[order][-1])
    over = np.cumsum(step * sizes[size]) - capacity
    waiting = np.zeros(len(over), dtype=np.int64)
    for v in range(len(sizes) - 1, -1, -1):
        if sizes[v] == 0:
            continue
        there = np.cumsum(np.where(size == v, step, 0))
        taken = np.minimum(there, np.maximum(0, -(-over // sizes[v])))
        waiting += taken
        over = over - taken * sizes[v]
    return float((waiting * length)[np.isfinite(length)].sum() / len(wanted))


def _compare(values: Json) -> Json:
    """Of every policy: each figure's spread over seeds, and paired differences of the mean wait to the baselines."""
    return {
        policy: {
            "figures": {figure: tables.spread(each) for figure, each in figures.items()},
            **{
                f"difference to {baseline}": tables.difference(figures["mean"], values[baseline]["mean"])
                for baseline in BASELINES
            },
        }
        for policy, figures in values.items()
    }


def section(result: Json) -> str:
    """Return the page of docs/results."""
    rows = []
    for load, comparison in result["comparison"].items():
        for policy, each in comparison.items():
            name = f"**{policy}**" if policy.startswith(f"{LEARNED}-{float(load):g}-") else policy
            figures = {figure: value["mean"] for figure, value in each["figures"].items()}
            cells = [f"{load}, {name}", tables.number(figures["mean"] / HOUR)]
            cells += [tables.interval(tables.divided(each[f"difference to {b}"], HOUR)) for b in BASELINES]
            if policy == BOUND:
                rows.append([*cells, "–", "–", "–", "–", tables.number(figures[EVERY] / HOUR)])
                continue
            several = 100.0 * figures["from several GPUs"] / figures["mean"] if figures["mean"] else 0.0
            cells += [tables.number(figures["delayed_percent"], 1), tables.number(figures["p95"] / HOUR)]
            cells += [tables.number(several, 0), tables.number(figures["weighted_by_gpu"] / HOUR)]
            rows.append([*cells, tables.number(figures[EVERY] / HOUR)])
    minutes = [standing["seconds"] / 60 for standing in result["standings"].values()]
    return "\n".join(
        [
            "## Policies trained for waiting time",
            "",
            f"Protocol `timed` on `{result['workload']}`. `{LEARNED}-LOAD-SEED` were trained by evolution on every "
            f"{result['parts']}th node and pod at one load, for the logarithm of the mean wait: "
            f"{result['generations']} generations, {np.mean(minutes):.0f} minutes each. Bold: trained at that load. "
            f"Means over seeds {tables.seeds_text(result['seeds'])}, which none saw; differences are paired by seed, "
            "with 95 % intervals; below 0: its pods wait less. Waits count the pods that arrive after the "
            "start, as in training; the last column also counts the pods of the warm start, which all arrive at once. "
            "Few long pods do most of the work, so it matters which pods wait. Two columns show the share of all "
            "waiting by pods of several GPUs (0.9 % of the pods), and the mean wait weighted by GPUs. No scheduler "
            "is below the bound, in which all GPUs are one and the largest pods wait.",
            "",
            tables.markdown(
                [
                    "load, policy",
                    "mean wait, h",
                    *(f"difference to `{baseline}`, h" for baseline in BASELINES),
                    "pods that waited, %",
                    "95 % wait at most, h",
                    "of all waiting, several GPUs, %",
                    "mean by GPUs, h",
                    "mean wait with the warm start, h",
                ],
                rows,
            ),
        ]
    )
