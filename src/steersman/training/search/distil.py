"""Distil a policy into a formula of few terms for one cluster and its pods.

The terms are those that explain the policy's own decisions (`training.search.imitation_terms`). Their weights are then
improved by CMA-ES on draws of the workload, and the result is compared with the policy on held-out draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cmaes import CMA

from steersman.cluster.arrays import NodeArrays
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.statistics import Interval
from steersman.policies.base import Policy
from steersman.policies.formulas.features import FEATURE_COUNT, term_column
from steersman.policies.formulas.formula import Formula, FormulaTerm, formula_constants
from steersman.policies.formulas.kernels import NEVER_SCORED, FillingRoom, FormulaArrays, fill
from steersman.policies.formulas.policy import FormulaPolicy
from steersman.simulation.arrivals import draw, resample
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import draws_of, saving_interval
from steersman.training.search.imitation_terms import ImitatedChoices, imitated_choices, imitating_terms
from steersman.workloads.profile import coarse
from steersman.workloads.warnings import no_devices
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

TERMS = 5
"""Terms for a kind of pod."""
GENERATIONS, POPULATION = 400, 16
EPISODES = (4, 24)
"""The least and the most draws of a generation."""
GENERATION_ARRIVALS = 4_000
"""Arrivals of a candidate in a generation, unless the least number of draws has more."""
STEP = 0.3
"""First standard deviation of a weight, in units of what its feature differs by between nodes."""
MEMORY = 0.9
"""Share of the average of weights that a generation keeps."""
MOST_NODES = 128
"""Nodes of a draw of the search; of larger clusters some are drawn, with as many pods as they can expect."""
SELECTION_SEED = 1_800_000_000
"""First seed of the draws that choose among the formulas of the search."""
SELECTION = (16, 96)
"""The least and the most of these draws."""
SELECTION_ARRIVALS = 30_000
"""Arrivals of these draws, unless the least number has more."""
HELD_OUT_SEED = 2_000_000_000
"""First seed of the draws of the comparison with the source."""
HELD_OUT = (8, 32)
"""The least and the most draws of the comparison."""
HELD_OUT_ARRIVALS = 60_000
"""Arrivals of the comparison, unless that is less than the least number of draws."""


@dataclass(frozen=True, slots=True)
class DistillationOptions:
    """Options of a distillation.

    Attributes:
        generations: of the search for weights, at most.
        ratio: demand that arrives over the cluster's capacity.
        seed: of the search.
    """

    generations: int = GENERATIONS
    ratio: float = 1.3
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Distillation:
    """A formula, and its comparison with the policy that it is distilled from.

    Attributes:
        formula: the formula, with weights as its text states them.
        costs, source_costs: [V] percent of the GPUs that were unallocated in each held-out draw.
        generations: of the search.
    """

    formula: Formula
    costs: Floats
    source_costs: Floats
    generations: int

    @property
    def loss(self) -> float:
        """Return the percentage points of GPUs that the source allocates beyond the formula, the mean."""
        return float((self.costs - self.source_costs).mean())

    @property
    def interval(self) -> Interval:
        """Return the 95 % interval of the loss."""
        return saving_interval(self.costs - self.source_costs, "inflation")


OnGeneration = Callable[[float], None]
"""Called after each generation with the share of all that are done."""


def distil(
    workload: Workload, source: Policy, options: DistillationOptions, *, on_generation: OnGeneration | None = None
) -> Distillation:
    """Distil a policy into a formula.

    Args:
        workload: nodes, and pods like the expected ones, which may run already.
        source: the policy; not a portfolio.
        options: options of the search.
        on_generation: called after each generation.

    Raises:
        UsageError: there are no GPUs, or no pods that request them.
    """
    if not any(node.gpu_total for node in workload.eligible_nodes) or not any(workload.gpu_demand):
        raise UsageError(f"{workload.name}: {no_devices(workload)}; policies are distilled for GPUs")
    whole = workload.unbound()
    simulator = Simulator(coarse(whole))
    constants = formula_constants(Simulator(whole).profile)
    choices = imitated_choices(simulator, source, constants, options.ratio)
    imitating = replace(constants, terms=tuple(imitating_terms(each, TERMS) for each in choices))
    trials = FormulaTrials(simulator.workload, options.ratio)
    searched, generations = _search(trials, imitating, choices, options, on_generation)
    formula = min((rounded_formula(imitating), *map(rounded_formula, searched)), key=trials.selection_cost)
    costs, source_costs = _compare(whole, formula, source, options.ratio)
    return Distillation(formula, costs, source_costs, generations)


class FormulaTrial(NamedTuple):
    """A draw: the classes of the pods in order of arrival, the nodes in order of rank, and the milli of their GPUs."""

    arrivals: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    capacity: float


class FormulaTrials:
    """A workload on which formulas fill the empty cluster.

    Args:
        workload: the nodes and pods.
        ratio: demand that arrives over the capacity.

    Attributes:
        episodes: number of draws of a generation.
    """

    def __init__(self, workload: Workload, ratio: float) -> None:
        self.workload, self.ratio = workload, ratio
        self._state = ClusterState(workload.nodes)
        self._class_of = self._state.class_ids(workload.pods)
        self._demand = np.array(workload.gpu_demand, dtype=np.float64)
        self._capacity = self._state.gpu_use_by_node()[1] * workload.eligible
        nodes = len(workload.nodes)
        large, whole = (len(self.draw(SELECTION_SEED, most).arrivals) for most in (MOST_NODES, nodes))
        self.episodes = draws_of(EPISODES, GENERATION_ARRIVALS, large)
        draws = draws_of(SELECTION, SELECTION_ARRIVALS, whole)
        self._selection = [self.draw(SELECTION_SEED + k, nodes) for k in range(draws)]
        self._selected: dict[tuple[tuple[FormulaTerm, ...], ...], float] = {}

    def draw(self, seed: int, most_nodes: int) -> FormulaTrial:
        """Return a draw of pods for all nodes, or for as many random ones."""
        plan = resample(self.workload, ratio=self.ratio, seed=seed)
        order = plan.nodes[:most_nodes]
        capacity = float(self._capacity[order].sum())
        pods = plan.pods
        if len(order) < len(plan.nodes):
            pods = pods[: int(np.searchsorted(np.cumsum(self._demand[pods]), self.ratio * capacity, side="right"))]
        return FormulaTrial(self._class_of[pods], order, capacity)

    def arrays(self, formula: Formula) -> FormulaArrays:
        """Return a formula for these nodes."""
        return formula.arrays(self._state.gpu_types)

    def cost(self, formula: FormulaArrays, trial: FormulaTrial) -> float:
        """Return the percentage of the GPUs that stay unallocated."""
        classes, nodes = self._state.class_arrays, NodeArrays(*(each.copy() for each in self._state.arrays))
        room = FillingRoom(
            table=np.empty((len(classes.gpu_count), len(self.workload.nodes))),
            log=np.empty(len(trial.arrivals), dtype=np.int64),
            position=np.full(len(classes.gpu_count), NEVER_SCORED),
            values=np.zeros(2 * FEATURE_COUNT),
        )
        placed = fill(formula, nodes, classes, trial.arrivals, trial.order, room)
        return 100.0 * (1.0 - placed / max(trial.capacity, 1.0))

    def selection_cost(self, formula: Formula) -> float:
        """Return the mean cost in the draws that choose among formulas."""
        if formula.terms not in self._selected:
            arrays = self.arrays(formula)
            self._selected[formula.terms] = float(np.mean([self.cost(arrays, trial) for trial in self._selection]))
        return self._selected[formula.terms]


def _search(
    trials: FormulaTrials,
    start: Formula,
    choices: Sequence[ImitatedChoices],
    options: DistillationOptions,
    on_generation: OnGeneration | None,
) -> tuple[list[Formula], int]:
    """Improve the weights of a formula's terms; return the average of late generations and the last mean."""
    units = np.array(
        [1.0 / choices[kind].scale[term_column(t.name)] for kind, ts in enumerate(start.terms) for t in ts]
    )
    first = np.array([term.weight for terms in start.terms for term in terms])
    if len(first) < 2:
        return [], 0
    # Only the directions of a kind's weights matter: all kinds start at the same length.
    first = _of_unit_length(first / units, start)
    strategy = CMA(first, STEP, seed=options.seed, population_size=POPULATION)
    average, random = first.copy(), np.random.default_rng(options.seed)
    done = 0
    while done < options.generations:
        draws = [trials.draw(int(random.integers(1 << 30)), MOST_NODES) for _ in range(trials.episodes)]
        candidates = [strategy.ask() for _ in range(POPULATION)]
        costs = [
            float(np.mean([trials.cost(arrays, trial) for trial in draws]))
            for arrays in (trials.arrays(_weighted(start, each * units)) for each in candidates)
        ]
        strategy.tell(list(zip(candidates, costs, strict=True)))
        done += 1
        average = MEMORY * average + (1 - MEMORY) * strategy.mean
        if on_generation is not None:
            on_generation(done / options.generations)
        # The length of weights does not matter, so that a long search may let it grow without end.
        if strategy.should_stop():
            break
    return [_weighted(start, each * units) for each in (average, strategy.mean)], done


def _of_unit_length(weights: Floats, formula: Formula) -> Floats:
    """Return weights with the mean square 1 for each kind of pod."""
    parts = np.split(weights, np.cumsum([len(terms) for terms in formula.terms])[:-1])
    return np.concatenate([each / (np.sqrt(np.mean(each**2)) or 1.0) if len(each) else each for each in parts])


def _weighted(formula: Formula, weights: Floats) -> Formula:
    """Return a formula with other weights, in the order of its terms."""
    rest = iter(weights.tolist())
    terms = tuple(tuple(replace(term, weight=next(rest)) for term in terms) for terms in formula.terms)
    return replace(formula, terms=terms)


def rounded_formula(formula: Formula) -> Formula:
    """Return a formula with weights of three digits, by kind of pod relative to the largest, the largest term first."""
    terms = []
    for each in formula.terms:
        largest = max((abs(term.weight) for term in each), default=1.0) or 1.0
        # A power of ten leaves the digits as they are.
        scale = 10.0 ** -math.floor(math.log10(largest))
        rounded = [replace(term, weight=float(f"{term.weight * scale:.3g}")) for term in each]
        terms.append(tuple(term for term in rounded if term.weight))
    return replace(formula, terms=tuple(terms))


def _compare(workload: Workload, formula: Formula, source: Policy, ratio: float) -> tuple[Floats, Floats]:
    """Return the costs of the formula and of the source, [V] each, in held-out draws."""
    simulator, policies = Simulator(workload), (FormulaPolicy("formula", formula), source)
    draws = draws_of(HELD_OUT, HELD_OUT_ARRIVALS, len(draw(workload, "inflation", HELD_OUT_SEED, ratio, None).pods))
    costs = np.empty((2, draws))
    for k in range(draws):
        seed = HELD_OUT_SEED + k
        plan = draw(workload, "inflation", seed, ratio, None)
        costs[:, k] = [simulator.play(policy, plan, seed).cost("inflation") for policy in policies]
    return costs[0], costs[1]
