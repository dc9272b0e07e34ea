"""Evolution in environments: candidates run whole episodes, and a search strategy compares their returns.

No gradients, no torch. All candidates of a generation run the same episodes side by side in one vector environment
(common random numbers), so that they differ by their weights alone. The fitness of a candidate is the mean sum of its
rewards; nothing is discounted and no value is estimated.

The search does not move in the weights themselves but in those of standardised features (mean 0, deviation 1, along
random episodes): features have different units, and a step should mean as much for each of them. Features that never
vary are left out. A linear network chooses by differences between nodes, so there the deviation is that within a
decision, for each kind of pod, and features that are equal for all nodes are left out, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from steersman.agents.configs import EpisodeEvolutionConfig
from steersman.agents.networks.spec import NetworkConfig
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.evolution_strategies import SeparableCma
from steersman.policies.features import POD_KINDS
from steersman.policies.network_policy import MASKED, Shapes, dense_shapes, first_bests, head_shapes

Array = npt.NDArray[np.float64]
MakeEnv = Callable[[int], VectorEnv[Any, Any, Any]]
"""Map a number of copies to a vector environment, which is seeded by a list with a seed for each copy."""

SEEDS = 1 << 31
NORMALIZATION_STEPS = 200  # decisions of each copy from which features are standardised
MIN_STD = 1e-3


class Scale(NamedTuple):
    """Standardisation of features, [4, F] for each kind of pod (`linear`) or [1, F]."""

    mean: Array  # [4 or 1, F]
    unit: Array  # [4 or 1, F] one over the deviation, 0 where the feature is left out


class EpisodeEvolution:
    """Evolution strategy on episodes.

    Raises:
        UsageError: this search cannot train the network or use the environment.
        SteersmanError: `start` is of another network.
    """

    algorithm = "evolution"

    def __init__(
        self,
        make_env: MakeEnv,  # makes the environments; they reset in the same step
        spec: NetworkConfig,  # the network: `linear`, `mlp` or `deepsets`, without normalisation and dropout
        config: EpisodeEvolutionConfig,
        seed: int,  # of candidates and episodes
        # Initial weights, see `agents.networks.score_networks.export`; None: see `first_weights`
        start: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.shapes, self.spec, self.config = shapes_of(spec), spec, config
        # One copy for every pair of candidate and episode, candidate by candidate.
        self.env = make_env(config.population * config.episodes)
        if self.env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise UsageError("evolution needs environments that reset in the same step (AutoresetMode.SAME_STEP)")
        self.rng = np.random.default_rng(seed)
        self.scale = _scale(self.env, spec, self.rng)
        # Random initial weights are those of standardised features.
        first = first_weights(spec, self.rng) if start is None else _normalize(self._checked(start), spec, self.scale)
        self.base, self.free = _flat(first), _flat(_trainable_mask(self.shapes, spec, self.scale)) > 0
        point, draws = self.base[self.free], int(self.rng.integers(SEEDS))
        self.strategy = SeparableCma(point, config.step, config.population, draws)
        self.average = self.strategy.mean.copy()
        self.steps = self.episodes = self.iterations = 0

    def _checked(self, start: Mapping[str, npt.NDArray[Any]]) -> Weights:
        if {name: array.shape for name, array in start.items()} != self.shapes:
            raise SteersmanError(f"the weights to start from are not those of a {self.spec.name} network of this size")
        # In the order of the shapes, by which vectors are split; a file has its arrays in the order of their names.
        return {name: np.array(start[name], dtype=np.float32) for name in self.shapes}

    def weights(self, points: Array) -> Weights:
        """Return [C, ...] weights by name, of C points of the search, [C, D]."""
        whole = np.repeat(self.base[None], len(points), axis=0)
        whole[:, self.free] = points
        return _denormalize(_named(whole, self.shapes), self.spec, self.scale)

    def best(self) -> Weights:
        """Return the weights of the search's mean, averaged over late generations."""
        return {name: array[0] for name, array in self.weights(self.average[None]).items()}

    def act(self, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """Return node slots [E] that the best weights choose for any number of observations; ties: the lowest slot."""
        scores = Population(self.spec, self.weights(self.average[None])).scores(observation)
        return first_bests(scores, observation["nodes"])

    def iterate(self) -> dict[str, float]:
        """Run one generation.

        Returns:
            `steps` and `episodes` so far, `return` (mean of the population), `best` (of its best candidate), `step`.

        Raises:
            SteersmanError: candidates are no longer finite numbers.
        """
        candidates = self.strategy.ask()
        if not np.isfinite(candidates).all():
            raise SteersmanError(f"the search diverged in generation {self.iterations + 1}: a weight is not finite")
        returns = self._play(Population(self.spec, self.weights(candidates)))
        # [population, episodes]: the copies are ordered by candidate.
        values = returns.reshape(self.config.population, self.config.episodes).mean(axis=1)
        self.strategy.tell(values)
        self.iterations += 1
        self.episodes += len(returns)
        # A plain mean of the start and all generations at first, an exponential one once that is shorter.
        memory = min(self.config.memory, 1 - 1 / (1 + self.iterations))
        self.average = memory * self.average + (1 - memory) * self.strategy.mean
        return {
            "steps": float(self.steps),
            "episodes": float(self.episodes),
            "return": float(values.mean()),
            "best": float(values.max()),
            "step": self.strategy.step,
        }

    def _play(self, population: Population) -> Array:
        """Return [population episodes] the return of each episode; a candidate's are side by side."""
        observation = _begin(self.env, self.rng, self.config.episodes)
        going = np.ones(self.env.num_envs, dtype=np.bool_)
        returns = np.zeros(self.env.num_envs)
        while going.any():
            observation, rewards, terminated, truncated, _ = self.env.step(population.choose(observation))
            # A copy whose episode has ended was reset and plays on until the slowest has ended; that is not counted.
            returns += np.where(going, rewards, 0.0)
            self.steps += int(going.sum())
            going &= ~(np.asarray(terminated) | np.asarray(truncated))
        return returns

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "strategy": self.strategy.state_dict(),
            "average": self.average.copy(),
            "base": self.base.copy(),
            "scale": [self.scale.mean.copy(), self.scale.unit.copy()],
            "rng": json.dumps(self.rng.bit_generator.state),
            "counts": [self.steps, self.episodes, self.iterations],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a search with the same environments, network and options.

        Raises:
            SteersmanError: the state is of another search.
        """
        if state.get("algorithm") != self.algorithm or len(state.get("base", ())) != len(self.base):
            raise SteersmanError("the checkpoint is of another search; give the options it was made with")
        self.strategy.load_state_dict(state["strategy"])
        self.average, self.base = np.array(state["average"]), np.array(state["base"])
        self.scale = Scale(*(np.array(part) for part in state["scale"]))
        # Not saved: it follows from the network and the scale.
        self.free = _flat(_trainable_mask(self.shapes, self.spec, self.scale)) > 0
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.steps, self.episodes, self.iterations = state["counts"]


def _begin(env: VectorEnv[Any, Any, Any], rng: np.random.Generator, different: int) -> Mapping[str, npt.NDArray[Any]]:
    """Reset all copies with this many different seeds, repeated, and return the observation."""
    drawn = rng.integers(SEEDS, size=different)
    # np.resize repeats the seeds, so that each candidate plays the same episodes.
    seeds: Any = [int(seed) for seed in np.resize(drawn, env.num_envs)]  # gymnasium's type allows one seed only
    observation: Mapping[str, npt.NDArray[Any]] = env.reset(seed=seeds)[0]
    return observation


# Standardised features ------------------------------------------------------------------------------------------------


def _scale(env: VectorEnv[Any, Any, Any], spec: NetworkConfig, rng: np.random.Generator) -> Scale:
    """Step at random, and standardise by the features of the feasible nodes."""
    observation = _begin(env, rng, env.num_envs)
    # [4 or 1, 3, F].
    sums = np.zeros((POD_KINDS if spec.name == "linear" else 1, 3, spec.sizes.joint))  # of 1, of values, of squares
    for _ in range(NORMALIZATION_STEPS):
        mask = observation["mask"] > 0
        if spec.name == "linear":
            _within_decisions(observation, mask, spec.sizes.node, sums)
        else:
            _over_all(observation, mask, sums)
        observation, *_ = env.step(np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1))
    count = np.maximum(sums[:, 0], 1.0)
    mean = sums[:, 1] / count
    spread = np.sqrt(np.maximum(sums[:, 2] / count - mean**2, 0.0))
    return Scale(mean, np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > MIN_STD))


def _within_decisions(
    observation: Mapping[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], width: int, sums: Array
) -> None:
    """Add the differences of the `width` features of nodes from their mean over the feasible nodes, by kind of pod."""
    nodes, count = observation["nodes"].astype(np.float64), np.maximum(mask.sum(axis=1), 1)
    mean = (nodes * mask[:, :, None]).sum(axis=1) / count[:, None]
    squares = (((nodes - mean[:, None]) * mask[:, :, None]) ** 2).sum(axis=1)
    kinds = observation["pod"][:, :POD_KINDS] > 0
    # The mean of differences from the mean is 0, so `sums[k, 1]` stays 0.
    for k in range(POD_KINDS):
        sums[k, 0] += count[kinds[:, k]].sum()
        sums[k, 2, :width] += squares[kinds[:, k]].sum(axis=0)


def _over_all(observation: Mapping[str, npt.NDArray[Any]], mask: npt.NDArray[np.bool_], sums: Array) -> None:
    e, n = mask.nonzero()
    rows = np.concatenate([observation["nodes"][e, n], observation["pod"][e], observation["context"][e]], axis=1)
    rows = rows.astype(np.float64)
    sums[0, 0] += len(rows)
    sums[0, 1] += rows.sum(axis=0)
    sums[0, 2] += (rows**2).sum(axis=0)


def _denormalize(weights: dict[str, Array], spec: NetworkConfig, scale: Scale) -> Weights:
    """Return weights of features, [C, ...], from those of standardised ones: W diag(unit) and b - W diag(unit) mean."""
    denormalized = dict(weights)
    name = INPUTS[spec.name]
    # Broadcast over candidates: weight [C, 4, F] or [C, H, F], unit [4, F] or [1, F].
    denormalized[f"{name}.weight"] = weights[f"{name}.weight"] * scale.unit
    if spec.name != "linear":  # whose scores are compared within a decision alone, so that means cancel
        denormalized[f"{name}.bias"] = weights[f"{name}.bias"] - denormalized[f"{name}.weight"] @ scale.mean[0]
    return {name: array.astype(np.float32) for name, array in denormalized.items()}


def _normalize(weights: Weights, spec: NetworkConfig, scale: Scale) -> dict[str, Array]:
    """Return weights of standardised features from those of features; 0 for features that are left out."""
    normalized: dict[str, Array] = {name: array.astype(np.float64) for name, array in weights.items()}
    name = INPUTS[spec.name]
    if spec.name != "linear":
        kept = normalized[f"{name}.weight"] * (scale.unit > 0)
        normalized[f"{name}.bias"] = normalized[f"{name}.bias"] + kept @ scale.mean[0]
    deviation = np.divide(1.0, scale.unit, out=np.zeros_like(scale.unit), where=scale.unit > 0)
    normalized[f"{name}.weight"] = normalized[f"{name}.weight"] * deviation
    return normalized


def _trainable_mask(shapes: Mapping[str, tuple[int, ...]], spec: NetworkConfig, scale: Scale) -> dict[str, Array]:
    """Return 1 where a weight can change a choice, by name."""
    masks = {name: np.ones(shape) for name, shape in shapes.items()}
    masks[f"{INPUTS[spec.name]}.weight"] *= scale.unit > 0
    masks["head.bias"][:] = 0.0  # it is the same for all nodes
    return masks


def _flat(arrays: Mapping[str, npt.NDArray[Any]]) -> Array:
    return np.concatenate([array.ravel() for array in arrays.values()]).astype(np.float64)


def _named(flat: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return [C, ...] arrays by name, of vectors [C, D]."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = np.split(flat, ends[:-1], axis=1)
    return {name: part.reshape(len(flat), *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


Array32 = npt.NDArray[np.float32]
Weights = dict[str, Array32]  # by the names of `agents.networks.score_networks.export`; of C networks, [C, ...]
Observation = Mapping[str, npt.NDArray[Any]]

INPUTS = {"linear": "head", "mlp": "layers.0", "deepsets": "phi.0"}
"""Networks that can evolve, and the layer that takes the features."""


def shapes_of(spec: NetworkConfig) -> Shapes:
    """Return the shape of each array of one network by name.

    Raises:
        UsageError: NumPy does not compute this network, or not many at once.
    """
    if spec.name not in INPUTS:
        raise UsageError(f"network {spec.name!r} does not evolve in episodes; {', '.join(INPUTS)} do")
    if spec.normalisation != "none" or spec.dropout:
        raise UsageError("evolution has no use for normalisation and dropout; leave them out")
    joint, hidden = spec.sizes.joint, spec.hidden
    if spec.name == "linear":
        return {"head.weight": (POD_KINDS, joint), "head.bias": (POD_KINDS,)}
    if spec.name == "mlp":
        return dense_shapes("layers", joint, hidden, "none") | head_shapes(hidden[-1])
    rho = dense_shapes("rho", 2 * hidden[-1], hidden, "none")
    return dense_shapes("phi", joint, hidden, "none") | rho | head_shapes(hidden[-1])


def first_weights(spec: NetworkConfig, rng: np.random.Generator) -> Weights:
    """Return initial weights of one network: zero for `linear`, else normal with variance 2 / inputs.

    Source: He et al., "Delving Deep into Rectifiers", ICCV 2015. Biases are zero.
    """
    weights = {}
    for name, shape in shapes_of(spec).items():
        zero = spec.name == "linear" or name.endswith("bias")
        scale = 0.0 if zero else np.sqrt(2.0 / shape[-1])
        weights[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return weights


class Population:
    """C networks of one shape at once, in NumPy: their weights side by side, and each one's scores for its own pods.

    The networks are those of `agents.networks.score_networks` (which defines what each computes), in the layout of its
    `export`, and without normalisation. With K observations each they take one matrix product per layer, [C, K N, F] by
    [C, F, H].

    Args:
        spec: configuration of each network.
        weights: of all of them, [C, ...] by name.
    """

    def __init__(self, spec: NetworkConfig, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        shapes = shapes_of(spec)
        self.spec = spec
        self.weights = {name: np.ascontiguousarray(weights[name], dtype=np.float32) for name in shapes}
        self.count = len(self.weights["head.bias"])

    def choose(self, observation: Observation) -> npt.NDArray[np.int64]:
        """Return [C K] the best node of each observation, the first of equals; the first K are the first network's."""
        best: npt.NDArray[np.int64] = self.scores(observation).argmax(axis=1)
        return best

    def scores(self, observation: Observation) -> Array32:
        """Return [C K, N] scores of observations of C K environments; `MASKED` where the mask forbids."""
        nodes, mask = observation["nodes"], observation["mask"] > 0
        environments, rows, _ = nodes.shape
        shared = np.concatenate([observation["pod"], observation["context"]], axis=1)
        if self.spec.name == "linear":
            raw = self._linear(nodes, shared)
        elif self.spec.name == "mlp":
            raw = self._head(self._dense("layers", self._joint(nodes, shared)))
        else:
            raw = self._deep_sets(nodes, shared, mask)
        scores: Array32 = np.where(mask, raw.reshape(environments, rows), MASKED)
        return scores

    def _linear(self, nodes: Array32, shared: Array32) -> Array32:
        """Return [E, N] w_k . x + b_k, k the kind of each pod."""
        # [E, 4] to [C, K, 4]; environments are ordered by network.
        kind = shared[:, :POD_KINDS].reshape(self.count, -1, POD_KINDS)
        # The one-hot kind picks one row: [C, K, 4] @ [C, 4, F] to [E, F].
        weight = (kind @ self.weights["head.weight"]).reshape(len(nodes), -1)
        bias = (kind @ self.weights["head.bias"][:, :, None]).reshape(len(nodes), 1)
        split = nodes.shape[2]
        result: Array32 = (nodes @ weight[:, :split, None])[:, :, 0]
        result += (shared * weight[:, split:]).sum(axis=1, keepdims=True) + bias
        return result

    def _joint(self, nodes: Array32, shared: Array32) -> Array32:
        """Return [C, K, N, H] of the first layer, relu(W x + b); inputs equal for all nodes are multiplied once."""
        first, (environments, rows, split) = INPUTS[self.spec.name], nodes.shape
        weight, bias = self.weights[f"{first}.weight"], self.weights[f"{first}.bias"]
        own = nodes.reshape(self.count, -1, split) @ weight[:, :, :split].transpose(0, 2, 1)
        rest = shared.reshape(self.count, -1, shared.shape[1]) @ weight[:, :, split:].transpose(0, 2, 1)
        # [C, K N, H] to [C, K, N, H].
        hidden: Array32 = own.reshape(self.count, environments // self.count, rows, -1)
        hidden += (rest + bias[:, None, :])[:, :, None, :]
        np.maximum(hidden, np.float32(0.0), out=hidden)
        return hidden

    def _dense(self, group: str, hidden: Array32, start: int = 1) -> Array32:
        for i in range(start, len(self.spec.hidden)):
            weight, bias = self.weights[f"{group}.{i}.weight"], self.weights[f"{group}.{i}.bias"]
            hidden = hidden @ weight.transpose(0, 2, 1)[:, None]
            hidden += bias[:, None, None, :]
            np.maximum(hidden, np.float32(0.0), out=hidden)
        return hidden

    def _head(self, hidden: Array32) -> Array32:
        weight, bias = self.weights["head.weight"], self.weights["head.bias"]
        result: Array32 = hidden @ weight.transpose(0, 2, 1)[:, None] + bias[:, None, None, :]
        return result

    def _deep_sets(self, nodes: Array32, shared: Array32, mask: npt.NDArray[np.bool_]) -> Array32:
        phi = self._dense("phi", self._joint(nodes, shared))
        # [C, K, N, 1]: a row of zeros that the mask forbids is padding, not a node.
        here = (mask | nodes.any(axis=2)).reshape(phi.shape[:3]).astype(np.float32)[..., None]
        mean = (phi * here).sum(axis=2, keepdims=True) / np.maximum(here.sum(axis=2, keepdims=True), 1.0)
        joined = np.concatenate([phi, np.broadcast_to(mean, phi.shape)], axis=3)
        return self._head(self._dense("rho", joined, start=0))
