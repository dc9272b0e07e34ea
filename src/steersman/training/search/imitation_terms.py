"""Choose the terms of a formula that explain the decisions of a policy.

A decision is a choice among the states that nodes would have with the pod on them. Its probability is modelled as a
conditional logit (McFadden, "Conditional logit analysis of qualitative choice behavior", 1973) in the features of these
states; terms are added one at a time, the one first that raises the likelihood most by its score test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import place
from steersman.cluster.state import ClusterState
from steersman.policies.base import Policy
from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import FEATURE_COUNT, column_name
from steersman.policies.formulas.formula import Formula, FormulaTerm
from steersman.policies.formulas.kernels import feature_rows, pod_kinds
from steersman.simulation.arrivals import resample
from steersman.simulation.run import Simulator

Floats = npt.NDArray[np.float64]

IMITATION_SEEDS = (1_700_000_000, 1_700_000_001, 1_700_000_002)
"""Seeds of the runs that are imitated."""
DECISIONS = 120
"""Decisions by kind of pod and run."""
MOST_STATES = 40
"""Different states of nodes in a decision; of more, some are drawn."""
RIDGE = 1e-3
"""Penalty of squared weights for each decision, which bounds the weights where a term explains all of them."""
LEAST_GAIN = 2e-3
"""Rise of the mean log-likelihood below which no further term is added."""
CANDIDATES = 6
"""Terms that are tried at each step, those first that the score test prefers."""
NEWTON_STEPS = 12


@dataclass(frozen=True, slots=True)
class ImitatedChoices:
    """Decisions about pods of one kind, D of them among S states at most.

    Attributes:
        states: [D, S, 2 F] features, relative to the state that was chosen; 0 where there are fewer states.
        valid: [D, S] whether there is a state. The first one was chosen.
        scale: [2 F] mean standard deviation of the features within a decision; 0: a feature never differs.
    """

    states: Floats
    valid: npt.NDArray[np.bool_]
    scale: Floats


def imitated_choices(simulator: Simulator, source: Policy, constants: Formula, ratio: float) -> list[ImitatedChoices]:
    """Return the decisions of a policy in a few runs by kind of pod, [4], of those among different states."""
    found: list[list[Floats]] = [[] for _ in range(POD_KINDS)]
    for seed in IMITATION_SEEDS:
        _collect(simulator, source, constants, ratio, seed, found)
    return [_choices(decisions) for decisions in found]


def _collect(
    simulator: Simulator, source: Policy, constants: Formula, ratio: float, seed: int, found: list[list[Floats]]
) -> None:
    """Append the rows of features, [S, 2 F] with the chosen one first, of some decisions of a run."""
    workload, random = simulator.workload, np.random.default_rng(seed)
    plan = resample(workload, ratio=ratio, seed=seed)
    chosen = simulator.play(source, plan, seed).run
    state = ClusterState(workload.nodes).permuted(plan.nodes)
    class_of = state.class_ids(workload.pods)[plan.pods]
    nodes, classes, formula = state.arrays, state.class_arrays, constants.arrays(state.gpu_types)
    kind_of = pod_kinds(classes)
    bound = np.flatnonzero(chosen.slot >= 0)
    some = [random.permutation(bound[kind_of[class_of[bound]] == kind])[:DECISIONS] for kind in range(POD_KINDS)]
    is_sampled = np.zeros(len(class_of), dtype=np.bool_)
    is_sampled[np.concatenate(some)] = True
    rows = np.empty((len(state.nodes), 2 * FEATURE_COUNT))
    for arrival in bound.tolist():
        c, slot = int(class_of[arrival]), int(chosen.slot[arrival])
        if is_sampled[arrival]:
            feature_rows(formula, nodes, classes, c, rows)
            others = np.unique(rows[~np.isnan(rows[:, 0])], axis=0)
            others = others[(others != rows[slot]).any(axis=1)]
            if len(others) and not np.isnan(rows[slot, 0]):
                others = others[random.permutation(len(others))[: MOST_STATES - 1]]
                found[kind_of[c]].append(np.concatenate([rows[slot : slot + 1], others]))
        place(nodes, classes, c, slot, int(chosen.devices[arrival]))


def _choices(decisions: list[Floats]) -> ImitatedChoices:
    most = max(map(len, decisions), default=1)
    states = np.zeros((len(decisions), most, 2 * FEATURE_COUNT))
    valid = np.zeros((len(decisions), most), dtype=np.bool_)
    variance = np.zeros(2 * FEATURE_COUNT)
    for i, rows in enumerate(decisions):
        states[i, : len(rows)], valid[i, : len(rows)] = rows - rows[0], True
        variance += rows.var(axis=0) / len(decisions)
    scale = np.sqrt(variance)
    # Rounding of equal changes is no difference.
    return ImitatedChoices(states, valid, np.where(scale > 1e-9, scale, 0.0))


def imitating_terms(choices: ImitatedChoices, most: int) -> tuple[FormulaTerm, ...]:
    """Return at most `most` terms that explain the decisions, the most important first."""
    usable = np.flatnonzero(choices.scale)
    if not len(usable):
        return ()
    states = choices.states[:, :, usable] / choices.scale[usable]
    columns: list[int] = []
    weights, likelihood = np.zeros(0), _likelihood(np.zeros(choices.valid.shape), choices.valid)
    while len(columns) < min(most, len(usable)):
        gradient, curvature = _derivatives(states, choices.valid, states[:, :, columns] @ weights)
        worth = gradient**2 / (curvature + RIDGE)
        worth[columns] = -1.0
        # The test looks at each weight near 0 alone, so several candidates are fitted.
        grown = [[*columns, int(i)] for i in np.argsort(-worth)[: min(CANDIDATES, len(usable) - len(columns))]]
        fits = [_fitted(states[:, :, each], choices.valid, np.append(weights, 0.0)) for each in grown]
        reached = [
            _likelihood(states[:, :, each] @ fitted, choices.valid) for each, fitted in zip(grown, fits, strict=True)
        ]
        best = int(np.argmax(reached))
        if reached[best] - likelihood < LEAST_GAIN:
            break
        columns, weights, likelihood = grown[best], fits[best], reached[best]
    return tuple(
        FormulaTerm(float(weight / choices.scale[usable[i]]), column_name(int(usable[i])))
        for i, weight in zip(columns, weights, strict=True)
    )


def _probabilities(scores: Floats, valid: npt.NDArray[np.bool_]) -> Floats:
    """Return the softmax over the valid states, [D, S]."""
    scores = np.where(valid, scores, -np.inf)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _likelihood(scores: Floats, valid: npt.NDArray[np.bool_]) -> float:
    """Return the mean log-likelihood of the first states."""
    return float(np.log(np.maximum(_probabilities(scores, valid)[:, 0], 1e-300)).mean())


def _derivatives(states: Floats, valid: npt.NDArray[np.bool_], scores: Floats) -> tuple[Floats, Floats]:
    """Return the gradient of the mean log-likelihood, [K], and the curvature of each weight alone, [K]."""
    p = _probabilities(scores, valid)[:, :, None]
    mean = (p * states).sum(axis=1)
    variance = (p * states**2).sum(axis=1) - mean**2
    # The chosen state is the origin, so the gradient is minus the mean.
    return -mean.mean(axis=0), variance.mean(axis=0)


def _fitted(states: Floats, valid: npt.NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the weights of the highest penalized likelihood, [K], by Newton's method."""
    for _ in range(NEWTON_STEPS):
        p = _probabilities(states @ weights, valid)[:, :, None]
        mean = (p * states).sum(axis=1)
        gradient = -mean.mean(axis=0) - 2 * RIDGE * weights
        second = np.einsum("dsi,dsj->ij", p * states, states) - mean.T @ mean
        step = np.linalg.solve(second / len(states) + 2 * RIDGE * np.eye(len(weights)), gradient)
        # Far from the optimum the likelihood is not quadratic.
        weights = weights + step * min(1.0, 4.0 / max(1e-12, float(np.abs(step).max())))
    return weights
