"""Agents that learn from nothing where they schedule: DQN and actor-critic, two networks, against three rules."""

from __future__ import annotations

import queue
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from steersman.evaluation.experiment import Experiment
from steersman.evaluation.generated import default_objectives, nominal_workload
from steersman.live.learner.plan import AgentOptions, live_plan
from steersman.simulation.metrics import reward_metric
from steersman.simulation.result import RunResult
from steersman.training.run import POLICY
from studies import tables
from studies.common import Desk, Json, Say, desk, evaluate
from studies.live.cluster import DEFAULT_SCHEDULER, SCHEDULER, state_dir
from studies.live.fills import PARTS, FilledCluster, FillSettings, variance_figures

NAME = "agents"
MINUTES = 50
AGENTS = {
    "DQN, MLP": ("dqn", "mlp"),
    "DQN, GNN": ("dqn", "gnn"),
    "actor-critic, MLP": ("actor-critic", "mlp"),
    "actor-critic, GNN": ("actor-critic", "gnn"),
}
TRAININGS = 3
RESETS = 5
CLUSTERS = 3
"""Clusters that run at the same time, each with its own agent."""
LOAD_SEEDS = 1000
"""A training's Deployments are drawn from this plus its seed: those of one number learn from the same ones."""
FRESH_SEEDS = tuple(range(3001, 3041))
"""Of fillings in the simulator."""
FRESH_LIVE_SEEDS = (2001, 2002, 2003)
"""Of fillings on the control plane."""
DEFAULT, LEAST, GREEDY, RANDOM = "kube-default", "least-allocated", "most-even", "random"
RULES = {
    DEFAULT: "kube-scheduler's default",
    LEAST: "LeastAllocated",
    GREEDY: "greedy (`most-even`)",
}
"""What agents are compared with."""
KUBE_SCHEDULER = "kube-scheduler"
OVER, END = "variance_mean", "variance_end"
PRECISE, WIDTH = 2, 120


class Training(NamedTuple):
    """A training of an agent."""

    agent: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder, and of its policy in results."""
        return f"{'-'.join(AGENTS[self.agent])}-{self.seed}"


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "fills": FillSettings(nodes=4)._asdict() if quick else FillSettings()._asdict(),
        "agents": {agent: _agent_options(*names) for agent, names in AGENTS.items()},
        "trainings": 1 if quick else TRAININGS,
        "resets": 1 if quick else RESETS,
        "clusters": CLUSTERS,
        "load_seeds": LOAD_SEEDS,
        "rules": [*RULES, RANDOM],
        "fresh_seeds": FRESH_SEEDS[:3] if quick else FRESH_SEEDS,
        "fresh_live_seeds": FRESH_LIVE_SEEDS[:1] if quick else FRESH_LIVE_SEEDS,
    }


def _agent_options(algorithm: str, network: str) -> Json:
    """Return the defaults of `schedule --learn` from nothing, which agents learn with."""
    plan = live_plan(SCHEDULER, options=AgentOptions(algorithm, network))
    return {"hidden": plan.network.hidden, "config": asdict(plan.config)}


def run(say: Say, quick: bool = False) -> Json:
    """Train all agents on control planes, and fill fresh clusters with each, simulated and real."""
    at, asked = desk(NAME, quick, say), options(quick)
    state_dir(at.folder / "state")
    trainings = [Training(agent, seed) for seed in range(1, asked["trainings"] + 1) for agent in AGENTS]
    with _ClusterPool(at, asked) as pool:
        learned = _learn(at, asked, pool, trainings)
        simulated = _simulate(at, asked, trainings)
        comparison = _compare(simulated, trainings)
        filled = _fill(at, asked, pool, _contenders(at, simulated, trainings))
    return {**asked, "learned": learned, "simulated": simulated, "comparison": comparison, "filled": filled}


class _ClusterPool:
    """Clusters that run at the same time, each brought up when it is first needed."""

    def __init__(self, at: Desk, asked: Json) -> None:
        self._at, self._asked, self._stack, self._lock = at, asked, ExitStack(), Lock()
        self._up: set[str] = set()
        self._free: queue.Queue[FilledCluster] = queue.Queue()
        for i in range(asked["clusters"]):
            settings = FillSettings(**asked["fills"])
            self._free.put(FilledCluster(f"agents-{i}", settings, at.folder / f"logs-{i}", at.say))

    def __enter__(self) -> _ClusterPool:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @contextmanager
    def cluster(self) -> Iterator[FilledCluster]:
        """Yield a cluster that nobody else uses in the block."""
        cluster = self._free.get()
        try:
            with self._lock:  # one after the other, since they take free ports
                if cluster.name not in self._up:
                    self._stack.enter_context(cluster.up())
                    self._up.add(cluster.name)
            yield cluster
        finally:
            self._free.put(cluster)

    def each(self, work: Sequence[Callable[[], Json]]) -> list[Json]:
        """Return what all return, as many at a time as there are clusters."""
        with ThreadPoolExecutor(self._asked["clusters"]) as executor:
            return [future.result() for future in [executor.submit(each) for each in work]]


def _learn(at: Desk, asked: Json, pool: _ClusterPool, trainings: Sequence[Training]) -> dict[str, Json]:
    """By training: what it cost and how it went, see `FilledCluster.learn`."""

    def learn(training: Training) -> Json:
        algorithm, network = AGENTS[training.agent]
        arguments = ["--algorithm", algorithm, "--network", network, "--seed", str(training.seed)]
        with pool.cluster() as cluster:
            folder, seed = at.folder / training.name, asked["load_seeds"] + training.seed
            result = cluster.learn(folder, arguments, asked["resets"], seed)
        before, after = result["rise"]["reward"]
        at.say(
            f"{training.name}: {result['bindings']} bindings in {result['seconds']:.0f} s, the agent answered "
            f"{100 * result['answered_share']:.1f} %, reward {before:.4f} to {after:.4f}"
        )
        return result

    def once(training: Training) -> Json:
        names = ("fills", "resets", "clusters", "load_seeds")
        depends = {name: asked[name] for name in names} | asked["agents"][training.agent]
        if not (at.folder / training.name / POLICY).exists():
            at.forget(training.name)
        return at.once(training.name, depends, partial(learn, training))

    results = pool.each([partial(once, training) for training in trainings])
    return {training.name: result for training, result in zip(trainings, results, strict=True)}


def _simulate(at: Desk, asked: Json, trainings: Sequence[Training]) -> Json:
    """By policy and figure: a value of each seed, filling clusters in the simulator; see `variance_figures`."""
    environment = FillSettings(**asked["fills"]).environment
    files = [str(at.folder / training.name / POLICY) for training in trainings]
    experiment = Experiment(
        (nominal_workload(environment),),
        (*asked["rules"], *files),
        tuple(asked["fresh_seeds"]),
        "deployments",
        objectives=default_objectives(environment),
        environment=environment,
    )

    def play() -> Json:
        result: Json = {}
        for played in evaluate(at, experiment, "filling simulated clusters"):
            for figure, value in _figures(played).items():
                result.setdefault(played.policy, {}).setdefault(figure, []).append(value)
        return result

    depends = {name: asked[name] for name in ("fills", "rules", "fresh_seeds")} | {"policies": _written(files)}
    return at.once("simulated", depends, play)


def _written(policies: Sequence[str]) -> list[int]:
    """Return when the files among these policies were written."""
    return [Path(policy).stat().st_mtime_ns for policy in policies if policy.endswith(POLICY)]


def _figures(played: RunResult) -> Json:
    metrics = {metric.name: metric.value for metric in played.metrics}
    return {**variance_figures(played.curve.cpu_balance_percent), "reward": metrics[reward_metric("balance")]}


def _compare(simulated: Json, trainings: Sequence[Training]) -> Json:
    """By rule and agent: figures of the mean training, and differences to the rules, paired by seed."""
    result: Json = {}
    for rule in (*RULES, RANDOM):
        result[rule] = _row(simulated, [rule])
    for agent in AGENTS:
        result[agent] = _row(simulated, [training.name for training in trainings if training.agent == agent])
    return result


def _row(simulated: Json, names: list[str]) -> Json:
    row: Json = {}
    for figure in (OVER, END):
        each = np.array([simulated[name][figure] for name in names])
        rules = {rule: np.array(simulated[rule][figure]) for rule in RULES}
        row[figure] = {
            "values": tables.spread(each.mean(0)),
            "trainings": each.mean(1),
            "differences": {rule: tables.difference(each.mean(0), values) for rule, values in rules.items()},
            "of_trainings": {rule: [tables.difference(one, values) for one in each] for rule, values in rules.items()},
        }
    return row | {"reward": float(np.mean([simulated[name]["reward"] for name in names]))}


def _contenders(at: Desk, simulated: Json, trainings: Sequence[Training]) -> dict[str, str]:
    """Return who fills the control plane, by name: policies, "" for kube-scheduler; each agent's middle training."""
    result = {KUBE_SCHEDULER: "", **{rule: rule for rule in RULES}}
    for agent in AGENTS:
        of_agent = sorted(
            (training for training in trainings if training.agent == agent),
            key=lambda training: float(np.mean(simulated[training.name][OVER])),
        )
        middle = of_agent[len(of_agent) // 2].name
        result[middle] = str(at.folder / middle / POLICY)
    return result


def _fill(at: Desk, asked: Json, pool: _ClusterPool, contenders: dict[str, str]) -> Json:
    """By contender and figure: a value of each seed, filling a control plane."""

    def play(policy: str) -> Json:
        result: Json = {}
        with pool.cluster() as cluster, cluster.decided_by(policy):
            for seed in asked["fresh_live_seeds"]:
                figures = cluster.fill(SCHEDULER if policy else DEFAULT_SCHEDULER, seed)
                for figure, value in figures.items():
                    result.setdefault(figure, []).append(value)
        return result

    def once(name: str, policy: str) -> Json:
        depends = {part: asked[part] for part in ("fills", "fresh_live_seeds")} | {"policies": _written([policy])}
        result = at.once(f"filled-{name}", depends, partial(play, policy))
        at.say(f"{name} fills: variance {np.mean(result[OVER]):.3f} over it, {np.mean(result[END]):.3f} at the end")
        return result

    results = pool.each([partial(once, *each) for each in contenders.items()])
    return dict(zip(contenders, results, strict=True))


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    variances = {name: row[OVER]["values"]["mean"] for name, row in result["comparison"].items()}
    agents = sorted((value, name) for name, value in variances.items() if name in AGENTS)
    return (
        "Four untrained agents learned on a cluster in about 1,000 bindings to leave a variance of the nodes' CPU of "
        f"{', '.join(f'{value:.1f} ({name})' for value, name in agents)}; kube-scheduler's default leaves "
        f"{variances['kube-default']:.1f}, random placement {variances['random']:.1f}."
    )


def section(result: Json) -> str:
    """For the report."""
    comparison = result["comparison"]
    header = ["policy", "over the filling", "each training", "at the end", "each training"]
    header += [f"difference to {rule}" for rule in RULES]
    rows = []
    for name, row in comparison.items():
        cells = [RULES.get(name, name)]
        for figure in (OVER, END):
            each = ", ".join(f"{value:.{PRECISE}f}" for value in row[figure]["trainings"])
            values = tables.interval(row[figure]["values"], PRECISE, sign=False, unit="squared points")
            cells += [values, each if "," in each else ""]
        differences = row[OVER]["differences"]
        cells += ["" if name == rule else tables.interval(differences[rule], PRECISE) for rule in RULES]
        rows.append(cells)
    parts = [
        _introduction(result),
        _learning_table(result),
        "Variance of the nodes' CPU use on fresh fillings, in squared points; differences are over the filling:",
        tables.markdown(header, rows),
        _verdict(comparison),
        _live_table(result),
    ]
    return "\n\n".join(parts)


def _introduction(result: Json) -> str:
    fills, learned = FillSettings(**result["fills"]), list(result["learned"].values())
    resets = result["resets"]
    deployments = np.mean([each["deployments"] for each in learned]) / resets
    minutes = [each["seconds"] / 60 for each in learned]
    bindings = [each["bindings"] for each in learned]
    answered = 100.0 * min(each["answered_share"] for each in learned)
    text = f"""## Agents that learn on a live cluster

The loop of AAML on a real control plane. `schedule --learn` starts untrained, with its defaults. It places random
Deployments of {fills.replicas[0]} to {fills.replicas[1]} pods on {fills.nodes} simulated nodes of {fills.cpu} CPUs
until {100 * fills.load:g} % of CPU, memory or pods is requested. Then all are deleted, and the next filling
begins. There are {resets} resets of {deployments:.0f} Deployments. The budget of a training is
{min(bindings):,} to {max(bindings):,}
bindings and {min(minutes):.1f} to {max(minutes):.1f} minutes, with up to {result["clusters"]} clusters at a time
on two busy cores.
Each agent is trained {result["trainings"]} times. In each the agent decided at least {answered:.1f} % of the pods
(a rule decides where it does not answer within two seconds). The reward is 1 - 2 s / (s + 1), where s is the standard
deviation over nodes of the share of CPU in use. The table shows its mean and the mean variance of a decision, in the
first and the last of {PARTS} parts of a training, with exploration and Student's interval over trainings.
Without learning,
`most-even` has a mean reward of {result["comparison"][GREEDY]["reward"]:.4f},
random placement {result["comparison"][RANDOM]["reward"]:.4f}.

What was learned then fills clusters without exploring, with held-out sequences of Deployments: in
the simulator, seeds {tables.seeds_text(result["fresh_seeds"])}, paired by seed. Intervals of an agent are of the mean
of its trainings over these seeds; the figures of single trainings show how far they differ. The defaults were chosen
in the simulator, on fillings of the same kind drawn from other seeds."""
    heading, *paragraphs = text.split("\n\n")
    return "\n\n".join([heading, *(textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in paragraphs)])


def _learning_table(result: Json) -> str:
    """How the reward rose: of each agent, the first and the last part of each training."""
    rows = []
    for agent, names in AGENTS.items():
        each = [of for name, of in result["learned"].items() if name.rpartition("-")[0] == "-".join(names)]
        rises = [of["rise"]["reward"] for of in each]
        variances = [of["rise"]["node_variance"] for of in each]
        rows.append(
            [
                agent,
                ", ".join(f"{first:.4f} to {last:.4f}" for first, last in rises),
                tables.interval(tables.spread([last - first for first, last in rises]), 4),
                ", ".join(f"{1e4 * first:.1f} to {1e4 * last:.1f}" for first, last in variances),
            ]
        )
    return tables.markdown(["agent", "reward of each training", "rise", "variance of each training"], rows)


def _verdict(comparison: Json) -> str:
    """Say which agents are worse and which are better than each rule over the filling, and how many trainings are."""
    sentences = []
    for rule, title in RULES.items():
        parts: dict[str, list[str]] = {"worse than": [], "better than": [], "not distinguished from": []}
        for agent in AGENTS:
            row = comparison[agent][OVER]
            each = [_sign(difference) for difference in row["of_trainings"][rule]]
            sign = _sign(row["differences"][rule])
            count = f" ({each.count(-1)} better, {each.count(1)} worse)" if len(each) > 1 else ""
            parts[("not distinguished from", "worse than", "better than")[sign]].append(f"{agent}{count}")
        told = [f"{how} it {'are' if len(who) > 1 else 'is'} {'; '.join(who)}" for how, who in parts.items() if who]
        sentences.append(f"**{title}**: {', and '.join(told)}.")
    lead = "Over the filling, by the mean of the trainings (in brackets, how many of them are better or worse):"
    return "\n".join([lead, "", *(f"- {each}" for each in sentences)])


def _sign(difference: Json) -> int:
    """1: the interval of a difference lies above 0; -1: below it; 0: neither, or there is none."""
    if difference["low"] is None:
        return 0
    return 1 if difference["low"] > 0 else -1 if difference["high"] < 0 else 0


def _live_table(result: Json) -> str:
    rows = []
    for name, figures in result["filled"].items():
        cells = [", ".join(f"{value:.{PRECISE}f}" for value in figures[figure]) for figure in (OVER, END)]
        rows.append([name, f"{np.mean(figures[OVER]):.{PRECISE}f}", cells[0], cells[1]])
    seeds = tables.seeds_text(result["fresh_live_seeds"])
    text = (
        f"The same on the control plane, whose API says where every pod was bound: seeds {seeds}, rules and each "
        f"agent's middle training by `steersman schedule`, and `{KUBE_SCHEDULER}` itself with its default profile."
    )
    header = ["policy", "over the filling", "each seed", "at the end, each seed"]
    return "\n\n".join([textwrap.fill(text, WIDTH, break_on_hyphens=False), tables.markdown(header, rows)])
