"""Policy files: the weights of a learned policy as safetensors, and a model card that says where they came from.

Nothing in such a file is executed when it is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from steersman.errors import InputError, SteersmanError
from steersman.features import view as find_view
from steersman.policies.learned import KINDS, VIEW, WEIGHTS
from steersman.policies.policy import LinearPolicy

SCHEMA = 1
CARD = "steersman"
SUFFIX = ".safetensors"
MAX_BYTES = 1 << 30

Arrays = dict[str, npt.NDArray[Any]]


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the policy did on a workload: the means of a metric, and of the same seeds under the baseline."""

    workload: str
    metric: str
    mean: float
    baseline: str
    baseline_mean: float
    runs: int


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy file says of itself.

    Attributes:
        schema: version of this layout.
        name: what results call the policy.
        view, view_version: the features it was trained on, see `steersman.features`.
        network: what computes scores from features.
        hidden, normalisation: of the network.
        objective, algorithm: what it was trained for, and how.
        protocol, ratio, load: what it was trained in.
        training, validation, test: names of workloads: seen in training, used to choose among checkpoints, and neither.
        seeds: which seeds training and validation used.
        settings: further options of the algorithm.
        steps: decisions, or episodes for evolution, that training took.
        scores: against baselines, on workloads and seeds that the card names.
        made_by: version of steersman.
    """

    schema: int = SCHEMA
    name: str
    view: str
    view_version: int
    network: str
    hidden: tuple[int, ...] = ()
    normalisation: str = "none"
    objective: str
    algorithm: str
    protocol: str = ""
    ratio: float | None = None
    load: float | None = None
    training: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    seeds: str = ""
    settings: dict[str, str | int | float | bool] = {}
    steps: int = 0
    scores: tuple[Score, ...] = ()
    made_by: str = ""


def write_policy(path: str | Path, card: Card, arrays: Arrays) -> None:
    """Write a policy file; it appears whole or not at all.

    Raises:
        SteersmanError: a weight is not a finite number, or the file cannot be written.
    """
    path = Path(path)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise SteersmanError(f"{path}: not written, for {name} holds a weight that is not a finite number")
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = save(whole, metadata={CARD: msgspec.json.encode(card, order="deterministic").decode()})
    temporary = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise SteersmanError(f"{path}: cannot write the policy: {error.strerror}") from None


def read_policy(path: str | Path) -> tuple[Card, Arrays]:
    """The card and the arrays of a policy file.

    Raises:
        InputError: it is no policy file, is truncated, of another schema or feature version, or holds weights that are
            not finite numbers.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(str(path), "file", "size", f"is beyond {MAX_BYTES >> 30} GiB, so this is no policy")
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except OSError as error:
        raise InputError(str(path), "file", "policy", f"cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            str(path), "file", "policy", f"is truncated or no safetensors file ({str(error).splitlines()[0]})"
        ) from None
    card = _card(path, metadata)
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
            raise InputError(str(path), "tensor", name, "holds a weight that is not a finite number")
    return card, arrays


def open_policy(path: Path, name: str) -> LinearPolicy:
    """The policy in a file; `name` is what results call it.

    Raises:
        InputError: see `read_policy`; or the file is of a network or view that cannot be evaluated here.
    """
    card, arrays = read_policy(path)
    if (card.network, card.view) != ("linear", VIEW):
        raise InputError(
            str(path), "card", "network", f"is {card.network} on view {card.view}; linear on view {VIEW} is right"
        )
    weights = arrays.get("weights")
    if weights is None or weights.shape != (KINDS, WEIGHTS):
        found = "missing" if weights is None else f"of shape {list(weights.shape)}"
        raise InputError(str(path), "tensor", "weights", f"is {found}; {[KINDS, WEIGHTS]} is right")
    return LinearPolicy(name, weights.astype(np.float64))


def _card(path: Path, metadata: dict[str, str]) -> Card:
    if CARD not in metadata:
        raise InputError(
            str(path), "metadata", CARD, "is missing: a policy file has a model card; this is none of ours"
        )
    try:
        schema = msgspec.json.decode(metadata[CARD], type=dict[str, Any]).get("schema")
        if schema != SCHEMA:
            raise InputError(str(path), "card", "schema", f"is {schema!r}; this version of steersman reads {SCHEMA}")
        card = msgspec.json.decode(metadata[CARD], type=Card)
    except msgspec.DecodeError as error:
        raise InputError(str(path), "metadata", CARD, f"is not a model card: {error}") from None
    view = find_view(card.view)
    if card.view_version != view.version:
        raise InputError(
            str(path),
            "card",
            "view_version",
            f"is {card.view_version}, but here the features {card.view!r} are at {view.version}: train it again",
        )
    return card
