"""The four objectives of Matranga's thesis on a real control plane: learned, by rules, and by kube-scheduler."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steersman.envs.latency import LatencyOptions
from steersman.training.plans import PlanOptions, make_plan
from steersman.training.run import TrainingLimits
from steersman.workloads.generators.latency_settings import LatencySettings
from studies import tables
from studies.common import Desk, Json, Say, desk, train_plan
from studies.environments.latency import LABELS, REWARDS, TASKS
from studies.live.cluster import DEFAULT_SCHEDULER, SCHEDULER, MeasuredCluster, RunSettings, state_dir

NAME = "telemetry"
MINUTES = 180
BASELINE = "kube-default"
RULES = {"most-allocated": "ma", "least-allocated": "la", "least-connections": "lc", "latency-aware": "p0"}
"""The policy of each objective that follows its rule."""
SIZES = {
    "4": RunSettings(nodes=4),
    "50": RunSettings(nodes=50, replicas=10, cpu="500m", memory="512Mi"),
}
"""Clusters by their number of nodes."""
PLAYED: dict[str, tuple[str, ...]] = {size: tuple(RULES) for size in SIZES}
"""Objectives that are played on clusters of a size."""
RUNS = 10
ALGORITHMS: dict[str, Json] = {
    "dqn": {
        "network": "mlp",
        "hidden": (32, 32),
        "settings": {
            "gamma": 0.9,
            "minimum_epsilon": 0.02,
            "epsilon_decay": 0.9995,
            "batch_size": 256,
            "replay_size": 20_000,
            "learning_rate_decay": 0.9998,
        },
        "differences": {"least-allocated": {"gamma": 0.5}},
        "trainings": 3,
        "iterations": 8000,
        "longer": {"50": {"least-allocated": 16000, "least-connections": 16000}},
        "validate_every": 400,
        "environments": 32,
    },
    "evolution": {
        "network": "linear",
        "settings": {"population": 16, "episodes": 4, "step": 0.3},
        "differences": {},
        "trainings": 3,
        "iterations": 40,
        "validate_every": 10,
    },
}
"""How policies are trained; `differences` of settings by objective, `longer` trainings by size and objective."""
TIMES = {"scrape_interval": 1.0, "copy_interval": 0.3, "copy_pause": 4.0, "warmup": 4.0}
"""Seconds in the environment that policies are trained in: those of the runs, since ages are features."""
ENVIRONMENTS: dict[str, Json] = {
    "4": {"replicas": 2, "copies": 30, "pods": 200, **TIMES},
    "50": {"replicas": 10, "copies": 30, "pods": 600, **TIMES},
}
"""Its settings for each size, beside the number of nodes. Others are the defaults."""
COUNTED = "hard_limits_broken_avoidable"
PRECISE, WIDTH = 2, 120


class Contender(NamedTuple):
    """Who plays runs: name, `--policy` of `steersman schedule` ("": kube-scheduler's default), and which runs."""

    name: str
    policy: str
    runs: tuple[int, ...]


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "sizes": {size: SIZES[size]._asdict() for size in PLAYED},
        "objectives": {size: of[-1:] if quick else of for size, of in PLAYED.items()},
        "rewards": {task: REWARDS.get(task, task) for task in TASKS},
        "runs": 1 if quick else RUNS,
        "algorithms": {
            name: of | ({"iterations": 4, "longer": {}, "validate_every": 2, "trainings": 1} if quick else {})
            for name, of in ALGORITHMS.items()
        },
        "environments": {size: ENVIRONMENTS[size] for size in PLAYED},
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train, and play all runs on a control plane of each size."""
    at, asked = desk(NAME, quick, say), options(quick)
    policies = {size: _train(at, asked, size) for size in asked["sizes"]}
    played = {size: _play(at, asked, size, policies[size]) for size in asked["sizes"]}
    comparison = {size: _compare(asked, size, played[size]) for size in asked["sizes"]}
    return {**asked, "runs_by": played, "comparison": comparison}


def training_name(size: str, objective: str, algorithm: str, seed: int) -> str:
    """Return the name of a training, and of its policy."""
    return f"{objective}-{algorithm}-{seed}-of-{size}"


def _train(at: Desk, asked: Json, size: str) -> dict[str, Path]:
    """Train for the clusters of a size; return policy files by name."""
    nodes = asked["sizes"][size]["nodes"]
    settings = LatencySettings(nodes=nodes, max_nodes=nodes)._replace(**asked["environments"][size])
    policies = {}
    for objective in asked["objectives"][size]:
        # A live scheduler keeps hard limits whatever its policy; by default the environment does for one objective.
        keeps = None if objective == "latency-aware" else True
        source = LatencyOptions(objective=asked["rewards"][objective], settings=settings, keep_hard_limits=keeps)
        for algorithm, of in asked["algorithms"].items():
            for seed in range(1, of["trainings"] + 1):
                name = training_name(size, objective, algorithm, seed)
                more = {key: of[key] for key in ("hidden", "environments") if key in of}
                differences = of["settings"] | of["differences"].get(objective, {})
                asked_for = PlanOptions(network=of["network"], seed=seed, settings=differences, **more)
                plan = make_plan(source, name, algorithm, asked_for)
                iterations = of.get("longer", {}).get(size, {}).get(objective, of["iterations"])
                limits = TrainingLimits(iterations, validate_every=of["validate_every"])
                policies[name], _ = train_plan(at, name, plan, limits)
    return policies


def contenders(asked: Json, size: str, policies: dict[str, Path]) -> list[Contender]:
    """Return who plays. The trainings of an algorithm share the runs; kube-scheduler's serve all objectives."""
    runs = tuple(range(asked["runs"]))
    result = [Contender(BASELINE, "", runs)]
    for objective in asked["objectives"][size]:
        result.append(Contender(f"{objective}-rule", RULES[objective], runs))
        for algorithm, of in asked["algorithms"].items():
            for seed in range(1, of["trainings"] + 1):
                name = training_name(size, objective, algorithm, seed)
                result.append(Contender(name, str(policies[name]), runs[seed - 1 :: of["trainings"]]))
    return result


def _play(at: Desk, asked: Json, size: str, policies: dict[str, Path]) -> dict[str, dict[str, Json]]:
    """Play all runs on a cluster of one size, which is only started if one is missing; figures by contender and run."""
    settings = RunSettings(**asked["sizes"][size])
    state_dir(at.folder / "state")
    result: dict[str, dict[str, Json]] = {}
    with ExitStack() as stack:
        place = _Place(stack, MeasuredCluster(f"study-{size}", settings, at.folder / "logs", at.say))
        for contender in contenders(asked, size, policies):
            with place.played_by(contender) as play:
                of_runs = result.setdefault(contender.name, {})
                for number in contender.runs:
                    name, depends = f"run-{size}-{contender.name}-{number}", _depends(settings, contender)
                    of_runs[str(number)] = at.once(name, depends, partial(play, number))
            at.say(f"{size} nodes, {contender.name}: {_short(of_runs)}")
    return result


def _depends(settings: RunSettings, contender: Contender) -> Json:
    """Return what a run depends on; a policy file by when it was written."""
    is_file = os.sep in contender.policy
    written = Path(contender.policy).stat().st_mtime_ns if is_file else 0
    return {**settings._asdict(), "policy": Path(contender.policy).name if is_file else contender.policy, "of": written}


def _short(runs: dict[str, Json]) -> str:
    figures = ("empty_nodes", "cpu_use_deviation_percent", "connections_peak", "soft_limits_kept_percent", COUNTED)
    values = {name: [run[name] for run in runs.values() if run[name] is not None] for name in figures}
    return ", ".join(f"{name} {np.mean(each):.2f}" for name, each in values.items() if each)


class _Place:
    """The cluster and the scheduler, each started when the first missing run is played."""

    def __init__(self, stack: ExitStack, measured: MeasuredCluster) -> None:
        self._stack, self._measured, self._is_up = stack, measured, False

    @contextmanager
    def played_by(self, contender: Contender) -> Iterator[Any]:
        """Yield a function that plays a run with a contender's policy."""
        with ExitStack() as stack:
            ready = False

            def play(number: int) -> Json:
                nonlocal ready
                if not self._is_up:
                    self._stack.enter_context(self._measured.up())
                    self._is_up = True
                if not ready:
                    stack.enter_context(
                        self._measured.scheduler(contender.policy) if contender.policy else nullcontext()
                    )
                    ready = True
                return self._measured.play(SCHEDULER if contender.policy else DEFAULT_SCHEDULER, number)

            yield play


def _compare(asked: Json, size: str, played: dict[str, dict[str, Json]]) -> Json:
    """By objective, policy and figure: the mean of the runs, and their paired difference to kube-scheduler's."""
    result: Json = {}
    for objective in asked["objectives"][size]:
        rows: Json = {}
        for title, names in _rows(asked, objective, played).items():
            values = {aim.figure: _by_run(played, names, aim.figure) for aim in TASKS[objective]}
            rows[title] = {
                figure: {
                    "values": tables.spread(list(of.values())),
                    "difference": tables.difference(
                        list(of.values()), [played[BASELINE][number][figure] for number in of]
                    ),
                    "trainings": [float(np.mean(list(_by_run(played, [name], figure).values()))) for name in names],
                    "sum": float(np.sum(list(of.values()))),
                }
                for figure, of in values.items()
            }
        result[objective] = rows
    return result


def _rows(asked: Json, objective: str, played: dict[str, dict[str, Json]]) -> dict[str, list[str]]:
    """Return who is in each row of an objective's table."""
    rows = {BASELINE: [BASELINE], f"rule {RULES[objective]}": [f"{objective}-rule"]}
    for algorithm in asked["algorithms"]:
        rows[f"learned, {algorithm}"] = [name for name in played if name.startswith(f"{objective}-{algorithm}-")]
    return rows


def _by_run(played: dict[str, dict[str, Json]], names: list[str], figure: str) -> dict[str, float]:
    """Return a figure of the runs of these contenders by number of the run, in its order."""
    found = {number: run[figure] for name in names for number, run in played[name].items()}
    return {number: found[number] for number in sorted(found, key=int)}


def section(result: Json) -> str:
    """For the report."""
    parts = []
    for size, comparison in result["comparison"].items():
        rows = []
        for objective, policies in comparison.items():
            for policy, figures in policies.items():
                for figure, row in figures.items():
                    shown = (
                        f"{row['sum']:.0f} in all"
                        if figure == COUNTED
                        else tables.interval(row["values"], PRECISE, sign=False, unit=_unit(figure))
                    )
                    each = ", ".join(f"{value:.{PRECISE}f}" for value in row["trainings"])
                    apart = "" if policy == BASELINE else tables.interval(row["difference"], PRECISE)
                    to_rule = (
                        "" if not policy.startswith("learned") else _to_rule(result, size, objective, policy, figure)
                    )
                    each = each if "," in each else ""
                    rows.append([f"{objective}: {policy}", LABELS[figure], shown, each, apart, to_rule])
        header = [f"{size} nodes", "figure", "mean", "each training", "difference", "to the rule"]
        parts.append(tables.markdown(header, rows))
    return "\n\n".join([_introduction(result), *parts])


def _unit(figure: str) -> str:
    return "percent" if figure.endswith("_percent") else "number"


def _to_rule(result: Json, size: str, objective: str, policy: str, figure: str) -> str:
    """Return a learned policy's paired difference to the objective's rule."""
    played = result["runs_by"][size]
    values = _by_run(played, _rows(result, objective, played)[policy], figure)
    rule = played[f"{objective}-rule"]
    return tables.interval(tables.difference(list(values.values()), [rule[run][figure] for run in values]), PRECISE)


def _budget(name: str, of: Json) -> str:
    """Return how long an algorithm was trained, and with which seeds."""
    longer = "".join(
        f" ({size} nodes, {objective}: {iterations})"
        for size, objectives in of.get("longer", {}).items()
        for objective, iterations in objectives.items()
    )
    return f"{name} {of['iterations']} iterations{longer}, seeds {tables.seeds_text(range(1, of['trainings'] + 1))}"


def _introduction(result: Json) -> str:
    first = next(iter(result["sizes"].values()))
    seconds = first["copies"] * first["interval"] + first["pause"]
    pods = "; ".join(
        f"{of['nodes']} nodes of {of['shape']}: {of['copies']} of {of['replicas']} pods of {of['cpu']}"
        for of in result["sizes"].values()
    )
    budget = "; ".join(_budget(name, of) for name, of in result["algorithms"].items())
    text = f"""## Matranga's objectives on a real control plane

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK's nodes and Prometheus, as `cluster up --telemetry`
starts them. Nodes use what the model of `steersman/Latency-v0` says for the pods bound to them, and are scraped every
{first["scrape_interval"]:g} s. A run creates nginx Deployments with limits of {first["soft"]:g} and
{first["hard"]:g} ms, {first["interval"]:g} s apart. They run for {first["pause"]:g} s together and are deleted,
{seconds:g} s in all ({pods}). `steersman schedule` binds them by a rule or a learned policy,
kube-scheduler by its default. Policies were
trained in `steersman/Latency-v0` with as many nodes and copies as here ({budget}). The trainings of
an algorithm share its {result["runs"]} runs. Pods use the same in the same run of each policy; differences are to
kube-scheduler's, or to the rule, and paired by run. Figures are true values, means over a run. A live scheduler keeps
hard limits whatever its policy is; a limit counts as broken avoidably if another node could have kept it."""
    heading, _, body = text.partition("\n\n")
    return f"{heading}\n\n{textwrap.fill(body, WIDTH, break_on_hyphens=False)}"
