"""Fit a policy to a cluster and its pods: few weights that a person can read, searched for by evolution.

The score of a node is a weighted sum of `TERMS` of it, with a weight for each kind of pod: changes of features by the
placement, and scores of two rules. The search starts from the best policy of a choice and plays draws of its own; of a
large cluster it plays parts. Who calls it compares the result with the present choice in further draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from steersman.core.evolution_strategies import SeparableCma
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.learned_weights import BEST_FIT, FEATURES, RULE_COUNT, FeatureVariances, feature_spread
from steersman.policies.linear import LinearPolicy
from steersman.simulation.arrivals import draw, trace_load
from steersman.simulation.selection.stock_search import DrawPlayer, SearchOptions, mean_costs
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

FITTED = "fitted"
TERMS = (
    "filled_idle_change",
    "gpu_filled_idle_change",
    "lost_planned_change",
    "fragmented_change",
    "cpu_short_change",
    "dead_change",
    "least_waste_change",
    "left_squares_change",
)
"""Features of view `gpu` that have weights, with the scores of `fgd` and `best-fit`."""
RULE_UNIT = 0.2
"""Step of the weight of a rule, whose scores differ by about five points between nodes."""
LEAST_SPREAD = 1e-6
"""A feature that differs less between nodes has no weight."""
FIRST_SEED = 1_800_000_000
"""First seed of the draws of generations; those of `choice`, of `stock_search` and of evaluations are others."""
POPULATION, STEP, EPISODES = 20, 0.06, 3
MEMORY = 0.97
"""Share of the average of the search's means that a generation keeps."""
GENERATIONS = (10, 100)
"""Least and most generations."""
MOST_EQUAL = 3
"""Generations without any difference between candidates after which the search ends: all place all pods."""
ARRIVALS, ARRIVALS_OF_A_RUN = 2_000_000, 300
"""Simulated arrivals of a search, and how many of them a run costs beyond its own."""
MOST_NODES, PARTS = 128, 6
"""A cluster with more nodes is played in so many parts of that size."""
DIGITS = 3
"""Significant digits of weights, so that what is printed is what decides."""
LEAST_SHARE = 0.01
"""Share of what the largest term of a kind of pods contributes, below which a term is left out."""
PART_SEED = 5


class PartPlayer(DrawPlayer, Interface):
    """What a search asks a simulator in addition to its runs, see `simulation.run.Simulator`."""

    def part(self, workload: Workload) -> PartPlayer:
        """Return a simulator of a part of the workload, with the typical pods of the whole."""

    def feature_variances(self) -> FeatureVariances:
        """Return how much features differ between the nodes that a pod fits on."""


@dataclass(frozen=True, slots=True)
class _Space:
    """Policies by points, [D], around that of the start."""

    start: LinearPolicy  # the policy that weights are added to
    units: Floats  # [4, F + R] weight of a unit in each direction; 0: the weight stays

    def policy(self, point: Floats) -> LinearPolicy:
        added = np.zeros_like(self.units)
        added[self.units > 0] = point * self.units[self.units > 0]
        return self._with(self._base + added)

    @property
    def _base(self) -> Floats:
        rules = np.zeros((POD_KINDS, RULE_COUNT)) if self.start.rules is None else self.start.rules
        return np.concatenate([self.start.weights, rules], axis=1)

    def _with(self, weights: Floats) -> LinearPolicy:
        weights, rules = np.split(weights, [len(GPU.node)], axis=1)
        return replace(self.start, name=FITTED, weights=weights, rules=rules if rules.any() else None)

    def readable(self, policy: LinearPolicy) -> LinearPolicy:
        """Return a policy with weights of `DIGITS` significant digits, without those that hardly matter."""
        weights = _Space(policy, self.units)._base
        # In units, that is by how much scores of nodes differ; weights of the start that stay are kept.
        sizes = np.divide(np.abs(weights), self.units, out=np.zeros_like(weights), where=self.units > 0)
        weights[(self.units > 0) & (sizes < LEAST_SHARE * sizes.max(axis=1, keepdims=True))] = 0.0
        rounded = [float(f"{weight:.{DIGITS}g}") for weight in weights.ravel().tolist()]
        return self._with(np.array(rounded).reshape(weights.shape))


def fit_weights(
    simulator: PartPlayer,  # of the workload, whose pods and nodes have GPUs
    start: LinearPolicy,  # the policy to continue from
    options: SearchOptions,
    progress: Callable[[int, int], None] | None = None,  # called with generations done and all of them
) -> LinearPolicy:
    """Return the policy `FITTED` that a search from `start` ends with."""
    simulators = [simulator.part(each) for each in parts(simulator.workload)]
    space = _Space(start, _units([each.feature_variances() for each in simulators]))
    dimensions = int((space.units > 0).sum())
    if not dimensions:
        return replace(start, name=FITTED)
    load = options.load
    if options.protocol == "timed" and load is None:
        # A part has the load of the whole.
        load = trace_load(simulator.workload, options.mean_duration) or None
    kind = options.ratio, load, options.mean_duration
    arrivals = len(draw(simulators[0].workload, options.protocol, FIRST_SEED, *kind).pods) + ARRIVALS_OF_A_RUN
    least, most = GENERATIONS
    generations = options.generations or min(most, max(least, ARRIVALS // (POPULATION * EPISODES * arrivals)))
    strategy = SeparableCma(np.zeros(dimensions), STEP, POPULATION, options.seed)
    average, equal = strategy.mean.copy(), 0
    for generation in range(generations):
        policies, costs = [space.policy(point) for point in strategy.ask()], np.zeros(POPULATION)
        for seed in range(FIRST_SEED + generation * EPISODES, FIRST_SEED + (generation + 1) * EPISODES):
            # Draws of two kinds alternate, see `choice.saving_interval`: each part sees both.
            player = simulators[seed // 2 % len(simulators)]
            costs += mean_costs(player, policies, {seed: draw(player.workload, options.protocol, seed, *kind)}, options)
        strategy.tell(-costs)
        equal = equal + 1 if np.ptp(costs) == 0.0 else 0
        if equal == MOST_EQUAL:
            break
        # A plain mean of the start and all generations at first, an exponential one once that is shorter.
        memory = min(MEMORY, 1 - 1 / (2 + generation))
        average = memory * average + (1 - memory) * strategy.mean
        if progress is not None:
            progress(generation + 1, generations)
    return space.readable(space.policy(average))


def parts(workload: Workload) -> list[Workload]:
    """Return parts of a large workload: nodes of all shapes, and the same share of its pods, whole gangs; else itself.

    Parts without GPUs, or without pods that request them, are left out.
    """
    count, random = len(workload.nodes), np.random.default_rng(PART_SEED)
    if count <= MOST_NODES:
        return [workload]
    shapes = [(node.gpu_total, node.gpu_model, node.cpu_milli, node.memory_bytes) for node in workload.nodes]
    order = sorted(range(count), key=shapes.__getitem__)
    standing = set(workload.standing())
    recorded = workload.recorded or (None,) * len(workload.pods)
    unit_of = [(pod.namespace, pod.gang) if pod.gang else i for i, pod in enumerate(workload.pods)]
    units = list(dict.fromkeys(unit for i, unit in enumerate(unit_of) if i not in standing))
    result = []
    for _ in range(PARTS):
        # Systematic sampling: a part has nodes of every shape that is not rare.
        at = ((np.arange(MOST_NODES) + random.random()) * count / MOST_NODES).astype(int).tolist()
        nodes = tuple(workload.nodes[order[i]] for i in at)
        names = {node.name for node in nodes}
        chosen = {units[i] for i in random.permutation(len(units))[: -(-len(units) * MOST_NODES // count)].tolist()}
        kept = []
        for i, where in enumerate(recorded):
            stays = where is not None and where.node in names
            if stays if i in standing else unit_of[i] in chosen:
                kept.append((workload.pods[i], where if stays else None))
        pods = tuple(pod for pod, _ in kept)
        part = replace(workload, nodes=nodes, pods=pods, recorded=tuple(where for _, where in kept))
        if part.gpu_capacity and any(part.gpu_demand):
            result.append(part)
    return result or [workload]


def _units(variances: Sequence[FeatureVariances]) -> Floats:
    """Return `_Space.units`: of a term, one over the difference between nodes where pods of a kind may go."""
    spread = feature_spread(variances)
    units = np.zeros((POD_KINDS, len(GPU.node) + RULE_COUNT))
    for name in TERMS:
        column = GPU.node_column(name)
        # Changes are the first of the two rows, and come after the features themselves in a policy's weights.
        of_kinds = spread[:, 0, column - FEATURES]
        units[:, column] = np.divide(1.0, of_kinds, out=np.zeros(POD_KINDS), where=of_kinds > LEAST_SPREAD)
    arrives = spread.any(axis=(1, 2))
    for column in (GPU.node_column("fgd_score"), len(GPU.node) + BEST_FIT):
        units[arrives, column] = RULE_UNIT
    return units
