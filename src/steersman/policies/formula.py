"""Formulas: linear policies as text that a person can read and edit, a term a line by kind of pod.

    # steersman formula 2
    # Fitted to default-small: 64 nodes, 510 pods.

    one GPU:
      -0.516 filled_idle_change
      +0.03 fgd

The terms are node features of view `gpu` and scores of heuristics (`policies.learned_weights`). `#` begins a
comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from steersman.core.errors import InputError, UsageError
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.learned_weights import FGD, NAMES, RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy

FORMULA_SUFFIX = ".txt"
HEADER = "# steersman formula 2"  # first line of a text; the number is the version of the format
KIND_NAMES = ("no GPU", "a share of a GPU", "one GPU", "several GPUs")
MOST_TERMS = 64  # terms of all kinds together
MOST_BYTES = 1 << 16
MOST_WEIGHT = 1e12
MEANINGS = {
    **{feature.name: f"{feature.meaning} ({feature.unit})" for feature in GPU.node[:-1]},
    **{name: f"The score of policy {name} (points)." for name in NAMES},
}
"""Terms, and what they are. FGD's score, the last feature of the view, has the name of the heuristic."""

Terms = dict[str, float]
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)


def terms_of(policy: LinearPolicy) -> list[Terms]:
    """Return [4] the weights of a linear policy that are not 0, by kind of pod, the largest first."""
    result = []
    for kind in range(POD_KINDS):
        weights = dict(
            zip([*(feature.name for feature in GPU.node[:-1]), NAMES[FGD]], policy.weights[kind], strict=True)
        )
        if policy.rules is not None:
            weights |= {name: policy.rules[kind, i] for i, name in enumerate(NAMES) if i != FGD}
        ranked = sorted(weights.items(), key=lambda each: -abs(each[1]))
        result.append({name: float(weight) for name, weight in ranked if weight})
    return result


def formula_text(policy: LinearPolicy, comments: Sequence[str] = ()) -> str:
    """Return the text of a linear policy, which `read_formula` reads.

    Raises:
        UsageError: it has a network, or more than `MOST_TERMS` weights.
    """
    terms = terms_of(policy)
    if policy.network or (count := sum(map(len, terms))) > MOST_TERMS:
        has = "a network" if policy.network else f"{count} weights"
        raise UsageError(f"policy {policy.name} has {has}; expected at most {MOST_TERMS} weights in a formula")
    lines = [HEADER, *(f"# {each}" for each in comments)]
    for name, each in zip(KIND_NAMES, terms, strict=True):
        lines += ["", f"{name}:", *(f"  {weight:+.6g} {term}" for term, weight in each.items())]
    used = {term for each in terms for term in each}
    lines += ["", "# A pod goes to the node with the highest score of those that it fits on. Terms:"]
    lines += [f"#   {name}: {meaning}" for name, meaning in MEANINGS.items() if name in used]
    return "\n".join([*lines, ""])


def is_formula(spec: str) -> bool:
    """Return whether the name of a policy is that of a formula's text."""
    return spec.endswith(FORMULA_SUFFIX)


def open_formula(spec: str) -> LinearPolicy:
    """Return the policy of a formula's text, under the name of the file.

    Raises:
        InputError: it cannot be read, or is not a formula; names the line and what would be right.
    """
    path = Path(spec)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(path, "", "", f"is larger than {MOST_BYTES} bytes; expected a formula")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(path, "", "", "is not UTF-8 text; expected a formula") from None
    if not lines or lines[0].strip() != HEADER:
        raise InputError(path, "line 1", "", f"expected {HEADER!r}, the first line of a formula")
    weights, rules = np.zeros((POD_KINDS, WEIGHTS)), np.zeros((POD_KINDS, RULE_COUNT))
    for kind, terms in enumerate(_read_terms(path, lines)):
        for name, weight in terms.items():
            if name in NAMES and name != NAMES[FGD]:
                rules[kind, NAMES.index(name)] = weight
            else:
                weights[kind, list(MEANINGS).index(name) if name != NAMES[FGD] else -1] = weight
    return LinearPolicy(path.stem, weights, rules if rules.any() else None)


def _read_terms(path: Path, lines: Sequence[str]) -> list[Terms]:
    """Return [4] the terms by kind of pod."""
    kinds, kind = dict[str, Terms](), ""
    for number, line in enumerate(lines, 1):
        where, text = f"line {number}", line.partition("#")[0].strip()
        if not text:
            continue
        if text.endswith(":"):
            kind = text[:-1]
            if kind not in KIND_NAMES:
                raise InputError(path, where, kind, f"is not a kind of pod; expected one of {_kinds()}")
            if kind in kinds:
                raise InputError(path, where, kind, "occurs twice; expected each kind of pod once")
            kinds[kind] = {}
        elif not kind:
            raise InputError(path, where, "", f"{text!r} precedes the kinds of pods; expected one of {_kinds()}")
        else:
            name, weight = _read_term(path, where, text)
            if name in kinds[kind]:
                raise InputError(path, where, name, f"occurs twice for {kind}; expected each term once")
            kinds[kind][name] = weight
    if missing := [name for name in KIND_NAMES if name not in kinds]:
        problem = f"is missing; expected the line '{missing[0]}:' and its terms, if it has any"
        raise InputError(path, "", missing[0], problem)
    if (count := sum(map(len, kinds.values()))) > MOST_TERMS:
        raise InputError(path, "", "", f"has {count} terms; expected at most {MOST_TERMS}")
    return [kinds[name] for name in KIND_NAMES]


def _kinds() -> str:
    return ", ".join(f"'{name}:'" for name in KIND_NAMES)


def _read_term(path: Path, where: str, text: str) -> tuple[str, float]:
    number, name = [*text.split(maxsplit=1), ""][:2]
    if name not in MEANINGS:
        similar = get_close_matches(name, MEANINGS, n=1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join(MEANINGS)}"
        raise InputError(path, where, name or text, f"is not {'a term' if name else 'a weight and a term'}; {hint}")
    if not _NUMBER.fullmatch(number) or abs(weight := float(number)) > MOST_WEIGHT:
        problem = f"{number!r} is not a number from {-MOST_WEIGHT:g} to {MOST_WEIGHT:g}"
        raise InputError(path, where, name, problem)
    return name, weight
