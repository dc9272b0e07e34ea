"""Policy files (safetensors): a model card, weights if the policy has any, and a workload profile if one was prepared.

Nothing in such a file is executed when it is read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.orders.order import AGE, Order
from steersman.orders.registry import CARD as ORDER_CARD
from steersman.orders.registry import PolicyOrder, from_policy_order, to_policy_order
from steersman.policies.base import Policy, renamed, with_own_order, with_profile
from steersman.policies.embedded_profile import ProfileCard, embed_profile, is_profile_tensor, open_prepared, split
from steersman.policies.features import POD_KINDS, VIEWS, View
from steersman.policies.heuristics import HEURISTIC_IDS, HeuristicPolicy, heuristic
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.learned_weights import GPU_VIEW, RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import (
    CoreNetwork,
    Network,
    NetworkPolicy,
    check_arrays,
    dense_shapes,
    head_shapes,
)
from steersman.policies.networks import NORMALISATIONS, NetworkSpec, find_network, network_names
from steersman.policies.portfolio_policy import PORTFOLIO, PortfolioPolicy
from steersman.version import __version__
from steersman.workloads.workload import Workload

SCHEMA = 1
RULE = "rule"  # the network in the card of a rule, which has no trained weights
FITTED_BY = "evolution"  # the algorithm in the card of a policy or portfolio that is fitted to a cluster
CARD = "steersman"  # the key of the model card
SUFFIX = ".safetensors"
LINEAR = "weights"  # the tensor of weights that are linear in a node's features, by kind of pod
RULE_WEIGHTS = "rules"  # the tensor of weights of heuristics' scores, by kind of pod
MAX_BYTES = 64 << 20  # largest size of a policy file; the plugin has the same limit
WEIGHT_TYPES = ("F32", "F64")
MAX_WEIGHT = 1e12  # largest absolute weight: beyond it scores would leave the range of numbers

Arrays = dict[str, npt.NDArray[Any]]


class WorkloadResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results of the policy on a workload: the means of a metric, and of the baseline's with the same seeds."""

    workload: str
    metric: str
    mean: float
    baseline: str
    baseline_mean: float
    runs: int


class ComparedOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cluster on which the policy was compared with every rule; the pods are those of the profile in the file."""

    nodes: int  # number of nodes
    shapes: str  # digest of the nodes by shape and count, see `workloads.profile`
    draws: int  # number of draws of every candidate


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model card of a policy file."""

    schema: int = SCHEMA  # version of this layout
    name: str  # the policy's name in results
    # `view`, `view_version`: the features it was trained on, see `steersman.policies.features`
    view: str
    view_version: int
    network: str  # name of the network that computes scores from features
    # Of a portfolio, the names of its sets of weights, in order, and of the rules it may also choose; of a rule, and
    # of a member chosen from a portfolio, one name
    members: tuple[str, ...] = ()
    # `hidden`, `normalisation`: of the network
    hidden: tuple[int, ...] = ()
    normalisation: str = "none"
    # `objective`, `algorithm`: what it was trained for, and how
    objective: str
    algorithm: str
    # `protocol`, `ratio`, `load`: the protocol of training
    protocol: str = ""
    ratio: float | None = None
    load: float | None = None
    # `training`, `validation`, `test`: names of workloads: seen in training, used to choose among checkpoints, and
    # neither
    training: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    seeds: str = ""  # seeds of training and validation
    settings: dict[str, str | int | float | bool] = {}  # further options of the algorithm
    steps: int = 0  # decisions, or episodes for evolution, of training
    scores: tuple[WorkloadResult, ...] = ()  # against baselines, on workloads and seeds that the card names
    made_by: str = ""  # version of steersman
    # The profile in the file, if there is one; `mix` in JSON
    profile: ProfileCard | None = msgspec.field(default=None, name="mix")
    compared_on: ComparedOn | None = None  # where it was compared with every rule, if it was
    # `order`, `order_weights`: who goes next among pods that wait, see `orders.registry.PolicyOrder`
    order: str = ""
    order_weights: tuple[float, ...] = ()


def rule_card(name: str) -> Card:
    """Return the card of a rule, whose file has no weights."""
    return Card(
        name=name,
        view=GPU_VIEW,
        view_version=VIEWS[GPU_VIEW].version,
        network=RULE,
        members=(name,),
        objective="",
        algorithm="rule",
        made_by=f"steersman {__version__}",
    )


def with_stored_order(card: Card, order: Order) -> Card:
    """Return a card with an order; that of age is none."""
    said = PolicyOrder() if order == AGE else to_policy_order(order)
    return msgspec.structs.replace(card, order=said.order, order_weights=said.order_weights)


def write_policy(path: str | Path, card: Card, arrays: Arrays) -> None:
    """Write a policy file atomically.

    Raises:
        SteersmanError: a weight is not a finite number, or the file cannot be written.
    """
    path = Path(path)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise SteersmanError(f"{path}: not written, for {name} holds a weight that is not a finite number")
    with replacing(path, sync=True) as part:
        part.write_bytes(_content(card, arrays))


def _content(card: Card, arrays: Arrays) -> bytes:
    """Return the bytes of a policy file."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(whole, metadata={CARD: msgspec.json.encode(card, order="deterministic").decode()})


def read_policy(path: str | Path) -> tuple[Card, Arrays]:
    """Return the card and the arrays of a policy file.

    Raises:
        InputError: it is not a policy file, is larger than `MAX_BYTES`, truncated, of another schema or feature
            version, or holds weights that are integers or not finite.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            problem = f"is {path.stat().st_size} bytes; a policy has {MAX_BYTES >> 20} MiB at most"
            raise InputError(str(path), "file", "size", problem)
        with safe_open(path, framework="numpy") as file:
            card = _card(path, file.metadata() or {})
            _check_types(path, {name: file.get_slice(name).get_dtype() for name in sorted(file.keys())})
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except OSError as error:
        raise InputError(str(path), "file", "policy", f"cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            str(path), "file", "policy", f"is truncated or no safetensors file ({str(error).splitlines()[0]})"
        ) from None
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
            raise InputError(str(path), "tensor", name, "holds a weight that is not a finite number")
    return card, arrays


def _check_types(path: Path, types: dict[str, str]) -> None:
    """Check by the header alone that weights are floating-point numbers. Raises InputError: one is not."""
    for name, kind in types.items():
        if not is_profile_tensor(name) and kind not in WEIGHT_TYPES:
            problem = f"is {kind}; expected {' or '.join(WEIGHT_TYPES)} for weights"
            raise InputError(str(path), "tensor", name, problem)


def open_policy(path: Path, name: str) -> Policy:
    """Return the policy of a file; `name` is its name in results.

    Raises:
        InputError: see `read_policy`, `open_network` and `open_prepared`; or a weight is too large.
    """
    card, arrays = read_policy(path)
    weights, profile_tensors = split(arrays)
    for tensor, array in weights.items():
        if np.abs(array.astype(np.float64)).max(initial=0.0) > MAX_WEIGHT:
            raise InputError(str(path), "tensor", tensor, f"holds a weight beyond {MAX_WEIGHT:g}, which is of no use")
    order = from_policy_order(path, PolicyOrder(card.order, card.order_weights))
    policy: Policy
    if card.network == PORTFOLIO:
        policy = open_portfolio(str(path), name, card, arrays)
    else:
        policy = _open(str(path), name, card, weights)
        policy = with_profile(policy, open_prepared(str(path), card.profile, VIEWS[card.view], profile_tensors))
    return policy if order is None else with_own_order(policy, order)


def _open(file: str, name: str, card: Card, weights: Arrays) -> Policy:
    view = VIEWS[card.view]
    if card.network == RULE:
        check_arrays(file, {}, weights)
        if len(card.members) != 1 or card.members[0] not in HEURISTIC_IDS:
            raise InputError(file, "card", "members", f"must name one rule; known are {', '.join(HEURISTIC_IDS)}")
        return renamed(heuristic(card.members[0]), name)
    # Files of networks trained in environments have `head.weight`; those of evolution on workloads have `weights`.
    if card.network == "linear" and card.view == GPU_VIEW and "head.weight" not in weights:
        shapes: dict[str, tuple[int, ...]] = {LINEAR: (POD_KINDS, WEIGHTS)}
        if RULE_WEIGHTS in weights:
            shapes[RULE_WEIGHTS] = POD_KINDS, RULE_COUNT
        check_arrays(file, shapes, weights)
        rules = _as_float64(weights[RULE_WEIGHTS]) if RULE_WEIGHTS in weights else None
        return LinearPolicy(name, _as_float64(weights[LINEAR]), rules)
    # The same name stands for a network with and without the cluster's features; the number of inputs tells them apart.
    if card.network == "mlp" and card.view == GPU_VIEW and _inputs(weights) == len(view.node) + len(view.pod):
        return _open_mlp(file, name, card, view, weights)
    return NetworkPolicy(name, view, open_network(file, card, weights))


def open_network(file: str, card: Card, weights: Arrays) -> Network:
    """Return the network of a card from its arrays, which `agents.networks.score_networks.export` names.

    Raises:
        InputError: there is no such network, or an array is missing, of another shape, or unknown.
    """
    spec = _check_network(file, card)
    if not spec.opener:
        # The profile and the order are not the network's.
        return CoreNetwork(file, _content(msgspec.structs.replace(card, profile=None), weights))
    opened: Network = spec.load_opener()(file, VIEWS[card.view], card.hidden, card.normalisation, weights)
    return opened


def _check_network(file: str, card: Card) -> NetworkSpec:
    try:
        spec = find_network(card.network)
    except UsageError:
        known = ", ".join(network_names())
        raise InputError(file, "card", "network", f"is {card.network!r}; known are {known}") from None
    if card.normalisation not in NORMALISATIONS:
        problem = f"is {card.normalisation!r}; known are {', '.join(NORMALISATIONS)}"
        raise InputError(file, "card", "normalisation", problem)
    if spec.has_layers and (not card.hidden or min(card.hidden) < 1):
        problem = f"is {list(card.hidden)}; the network {card.network!r} has one layer or more"
        raise InputError(file, "card", "hidden", problem)
    return spec


def open_portfolio(file: str, name: str, card: Card, arrays: Arrays) -> PortfolioPolicy:
    """Return the portfolio of a card and several sets of weights, whose names precede those of rules in the card.

    Raises:
        InputError: the names and the tensor do not match, or a rule is unknown.
    """
    if card.view != GPU_VIEW:
        raise InputError(file, "card", "view", f"is {card.view!r}; a portfolio has {GPU_VIEW!r}")
    weights = arrays.get(LINEAR)
    count = len(weights) if weights is not None and weights.ndim == 3 else 0
    shape = max(1, count), POD_KINDS
    check_arrays(file, {LINEAR: (*shape, WEIGHTS), RULE_WEIGHTS: (*shape, RULE_COUNT)}, arrays)
    names, rules = card.members[:count], card.members[count:]
    if len(names) < count or len(set(card.members)) < len(card.members):
        raise InputError(file, "card", "members", f"must name all {count} sets of weights, each once, then rules")
    for rule in rules:
        if rule not in HEURISTIC_IDS:
            raise InputError(file, "card", "members", f"{rule!r} is not a rule; known are {', '.join(HEURISTIC_IDS)}")
    points = _as_float64(arrays[RULE_WEIGHTS])
    learned = [LinearPolicy(each, _as_float64(arrays[LINEAR][i]), points[i].copy()) for i, each in enumerate(names)]
    digest = hashlib.sha256(_as_float64(arrays[LINEAR]).tobytes() + points.tobytes() + repr(card.members).encode())
    members = (*learned, *(heuristic(rule) for rule in rules), KubeSchedulerPolicy())
    return PortfolioPolicy(name, members, digest.hexdigest(), is_fitted=card.algorithm == FITTED_BY)


def _inputs(weights: Arrays) -> int:
    """Return the number of inputs of the first layer: with the cluster's features, every placement changes scores."""
    first = weights.get("layers.0.weight")
    return first.shape[1] if first is not None and first.ndim == 2 else -1


def _open_mlp(file: str, name: str, card: Card, view: View, weights: Arrays) -> LinearPolicy:
    """Return a network that the score table evaluates; without a linear part, that is zero."""
    _check_network(file, card)
    if card.normalisation != "none":
        problem = f"is {card.normalisation!r}; a network without features of the cluster has none"
        raise InputError(file, "card", "normalisation", problem)
    layers = dense_shapes("layers", len(view.node) + len(view.pod), card.hidden, "none") | head_shapes(card.hidden[-1])
    linear = {LINEAR: (POD_KINDS, WEIGHTS)} if LINEAR in weights else {}
    check_arrays(file, linear | layers, weights)
    names = [*(f"layers.{i}" for i in range(len(card.hidden))), "head"]
    network = tuple((_as_float64(weights[f"{layer}.weight"]), _as_float64(weights[f"{layer}.bias"])) for layer in names)
    return LinearPolicy(name, _as_float64(weights.get(LINEAR, np.zeros((POD_KINDS, WEIGHTS)))), network=network)


def _as_float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)


def network_of(policy: Policy) -> str:
    """Return the network in the card of a policy's file; "" if it cannot be saved."""
    match policy:
        case HeuristicPolicy():
            return RULE
        case LinearPolicy():
            return "mlp" if policy.network else "linear"
        case PortfolioPolicy():
            return PORTFOLIO
        case _:
            return ""


def tensors_of(policy: Policy) -> Arrays:
    """Return the tensors of a policy's file by name; empty for a rule."""
    return dict(policy.tensors()) if isinstance(policy, LinearPolicy) else {}


def prepare_policy(path: Path, workload: Workload, member: Policy | None = None) -> tuple[Card, Arrays]:
    """Return a policy file's card and arrays with the profile of a workload; a previous profile is replaced.

    Args:
        workload: its pods are typical.
        member: of a portfolio, whose weights or rule alone are prepared.

    Raises:
        InputError: see `open_policy`; or the file is a portfolio, and `member` is None.
    """
    policy = open_policy(path, path.stem)
    card, arrays = read_policy(path)
    weights = split(arrays)[0]
    if policy.members:
        if member is None:
            raise InputError(str(path), "card", "network", "is a portfolio; one member has to be chosen for a workload")
        weights = tensors_of(member)
        card = msgspec.structs.replace(card, network=network_of(member), members=(member.name,))
    profile, profile_tensors = embed_profile(workload, card.view)
    return msgspec.structs.replace(card, profile=profile, compared_on=None), weights | profile_tensors


def _card(path: Path, metadata: dict[str, str]) -> Card:
    if ORDER_CARD in metadata:
        raise InputError(str(path), "", "", "is an order, not a policy; give it to --order")
    if CARD not in metadata:
        raise InputError(
            str(path), "metadata", CARD, "is missing: expected the model card of a policy file of steersman"
        )
    try:
        # The schema is read first: a newer one may have fields that `Card` forbids.
        schema = msgspec.json.decode(metadata[CARD], type=dict[str, Any]).get("schema")
        if schema != SCHEMA:
            raise InputError(str(path), "card", "schema", f"is {schema!r}; this version of steersman reads {SCHEMA}")
        card = msgspec.json.decode(metadata[CARD], type=Card)
    except msgspec.DecodeError as error:
        raise InputError(str(path), "metadata", CARD, f"is not a model card: {error}") from None
    view = view_of(path, card)
    if card.view_version != view.version:
        raise InputError(
            str(path),
            "card",
            "view_version",
            f"is {card.view_version}, but here the features {card.view!r} are at {view.version}: train it again",
        )
    return card


def view_of(file: str | Path, card: Card) -> View:
    """Return the view of a card. Raises InputError: there is none of its name."""
    if card.view not in VIEWS:
        raise InputError(file, "card", "view", f"is {card.view!r}; known are {', '.join(VIEWS)}")
    return VIEWS[card.view]
