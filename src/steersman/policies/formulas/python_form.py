"""A formula as a module of Python that needs NumPy alone, and is a policy of a user's own (`module:Policy`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from textwrap import indent, wrap

from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import CHANGE, FORMULA_FEATURES
from steersman.policies.formulas.formula import Formula, FormulaTerm

PYTHON_HEADER = '"""A policy of steersman as a formula, made by steersman policy export."""'
"""First line."""
WIDTH = 100
_CASES = ("pod.gpu_count == 0", "pod.gpu_count == 1 and pod.gpu_milli < 1000", "pod.gpu_count == 1", "")
_COMMENTS = ("no GPU", "a share of a GPU", "one GPU", "several GPUs")

_LOCALS = {
    "total": ["total = free.sum(axis=1)"],
    "whole": ["whole = (free == 1000).sum(axis=1)"],
    "shared": ["shared = ((free > 0) & (free < 1000)).sum(axis=1)"],
    "count": ["count = nodes.gpu_count"],
    "squares": ["squares = (free * free).sum(axis=1)"],
    "largest": ['largest = np.array([0, *SIZES])[np.searchsorted(SIZES, free, side="right")]'],
    "dead": ["dead = np.where(largest == 0, free, 0).sum(axis=1)"],
    "waste": ["waste = (free - largest).sum(axis=1)"],
    "cpu": [
        "usable = np.minimum(cpu_left, memory_left / MEMORY_PER_CPU) if MEMORY_PER_CPU else cpu_left",
        "cpu = usable / CPU_PER_GPU",
    ],
    "cpu_share": [
        "cpu_all = nodes.allocatable[:, 0]",
        "cpu_share = np.where(cpu_all > 0, cpu_left / np.maximum(cpu_all, 1), 0.0)",
    ],
    "memory_share": [
        "memory_all = nodes.allocatable[:, 1]",
        "memory_share = np.where(memory_all > 0, memory_left / np.maximum(memory_all, 1), 0.0)",
    ],
}
"""What defines a name that an expression of a feature uses, in an order in which they may stand."""

_TAKEN = '''
def with_pod(pod, free):
    """Return the free milli of each GPU, [N, G], with the pod on those with the least free that suffice."""
    free, nodes, taken = free.copy(), np.arange(len(free)), np.zeros(free.shape, dtype=bool)
    for _ in range(pod.gpu_count):
        left = np.where((free >= pod.gpu_milli) & ~taken, free, 1001)
        gpu = left.argmin(axis=1)
        fits = left[nodes, gpu] <= 1000
        free[nodes[fits], gpu[fits]] -= pod.gpu_milli
        taken[nodes[fits], gpu[fits]] = True
    return free
'''

_POLICY = '''
class Policy:
    """The formula as a policy of steersman."""

    name = {name}

    def prepare(self, state, profile, seed):
        """Prepare a run: nothing to do."""

    def scores(self, state, class_id, feasible):
        """Return the score of every node, [N]."""
        pod, nodes = state.classes[class_id].requests, state.arrays
{claims}        free = np.maximum(nodes.gpu_free, 0)
        # Of GPUs that a node only counts no device is taken.
        counted = nodes.allocatable[:, state.class_arrays.gpu_column[class_id]] > 0
        left = np.where(counted[:, None], free, with_pod(pod, free))
        cpu, memory = nodes.free[:, 0], nodes.free[:, 1]
        was = features({arguments}, cpu, memory, free)
        now = features({arguments}, cpu - pod.cpu_milli, memory - pod.memory_bytes, left)
        return score(pod, now, was) + np.zeros(len(feasible))
'''


_CLAIMS = """        models = ["" if node is None else node.gpu_model for node in state.nodes]
        claims = np.array([CLAIMED.get(model, 0.0) for model in models])
"""


def python_module(formula: Formula, name: str) -> str:
    """Return the text of a module with the function `score` and the class `Policy`; `name` is that of the policy."""
    has_claims = "claimed" in formula.used_features
    lines = [PYTHON_HEADER, "", *(f"# {each}" for each in formula.comments)]
    lines += ["from types import SimpleNamespace", "", "import numpy as np", "", *_constants(formula), "", ""]
    lines += [*_score(formula), "", "", *_features(formula)]
    policy = _POLICY.format(
        name=json.dumps(name, ensure_ascii=False),
        claims=_CLAIMS if has_claims else "",
        arguments="nodes, claims" if has_claims else "nodes",
    )
    return "\n".join(lines) + f"\n\n{_TAKEN}\n{policy}"


def _constants(formula: Formula) -> Iterator[str]:
    yield f"CPU_PER_GPU = {formula.cpu_per_gpu!r}  # milli-CPU that pods request per GPU"
    yield f"MEMORY_PER_CPU = {formula.memory_per_cpu!r}  # bytes that pods request per milli-CPU; 0: does not count"
    if {"dead", "waste"} & set(formula.used_features):
        yield f"SIZES = [{', '.join(map(str, formula.sizes))}]  # thousandths of a GPU that typical pods request"
    if "claimed" in formula.used_features:
        shares = json.dumps(dict(formula.claimed), ensure_ascii=False)
        yield f"CLAIMED = {shares}  # share of the requested GPUs that must be of the model"


def _score(formula: Formula) -> Iterator[str]:
    yield "def score(pod, now, was):"
    yield '    """Return the score of a node: the highest wins. `now` is the node with the pod on it, `was` without."""'
    for kind in range(POD_KINDS):
        condition = _CASES[kind]
        tab = "        " if condition else "    "
        if condition:
            yield f"    if {condition}:"
        terms = " ".join(_term(term, is_first=i == 0) for i, term in enumerate(formula.terms[kind])) or "0.0"
        pieces = wrap(terms, WIDTH - len(tab), break_long_words=False, break_on_hyphens=False)
        pieces = [piece.replace("\0", " ") for piece in pieces]
        if len(pieces) == 1:
            yield f"{tab}return {pieces[0]}  # {_COMMENTS[kind]}"
        else:
            yield f"{tab}return (  # {_COMMENTS[kind]}"
            yield from (f"{tab}    {piece}" for piece in pieces)
            yield f"{tab})"


def _term(term: FormulaTerm, *, is_first: bool) -> str:
    name = term.name.removesuffix(CHANGE)
    value = f"now.{name}" if name == term.name else f"(now.{name} - was.{name})"
    # No space within a term, so that lines break between terms.
    weight = repr(term.weight) if is_first else f"{'-' if term.weight < 0 else '+'}\0{abs(term.weight)!r}"
    return f"{weight}\0*\0{value}".replace(" - ", "\0-\0")


def _features(formula: Formula) -> Iterator[str]:
    used = [feature for feature in FORMULA_FEATURES if feature.name in formula.used_features]
    claims = "claims, " if "claimed" in formula.used_features else ""
    yield f"def features(nodes, {claims}cpu_left, memory_left, free):"
    yield '    """Return the features of nodes, [N], with so much free: milli-CPU, bytes, milli of each GPU, [N, G]."""'
    needed = {name for feature in used for name in re.findall(r"\w+", feature.python)} & set(_LOCALS)
    if needed & {"dead", "waste"}:
        needed.add("largest")
    for name, lines in _LOCALS.items():
        if name in needed:
            yield from (indent(line, "    ") for line in lines)
    yield "    return SimpleNamespace("
    for feature in used:
        yield f"        {feature.name}={feature.python},  # {feature.meaning}"
    yield "    )"
