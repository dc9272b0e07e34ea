"""Formulas: a score by kind of pod, as a weighted sum of few features of a node, and the text of one.

A text has constants, then the terms by kind of pod, one a line; `#` begins a comment:

    cpu_per_gpu = 8000
    memory_per_cpu = 4e+06
    sizes = 250 500 1000
    claimed = T4 0.25, V100 0.1

    one GPU:
      -1.5 short
      +0.25 whole_change
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from steersman.cluster.model import GPU_MILLI, GpuType
from steersman.core.errors import InputError
from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import CHANGE, FORMULA_FEATURES, TERM_NAMES, term_column
from steersman.policies.formulas.kernels import FormulaArrays
from steersman.workloads.profile import TypicalPod

FORMULA_SUFFIX = ".txt"
HEADER = "# steersman formula 1"
"""First line of a text; the number is the version of the format."""
KIND_NAMES = ("no GPU", "a share of a GPU", "one GPU", "several GPUs")
MOST_TERMS = 24
"""Terms of all kinds together."""
MOST_BYTES = 1 << 16
MOST_WEIGHT = 1e12
CPU_PER_GPU, MEMORY_PER_CPU, SIZES, CLAIMED = "cpu_per_gpu", "memory_per_cpu", "sizes", "claimed"
MOST_SIZES = 12
"""Sizes of a formula that is made from typical pods."""
DEFAULT_CPU_PER_GPU = 12_000.0
"""Milli-CPU per GPU where no pod requests a GPU."""


@dataclass(frozen=True, slots=True)
class FormulaTerm:
    """A summand: `weight` times the feature `name`, one of `TERM_NAMES`. `line` is its line in a file, 0 for none."""

    weight: float
    name: str
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """Return the text of the term."""
        return f"{self.weight:+.3g} {self.name}"


@dataclass(frozen=True, slots=True)
class Formula:
    """Terms by kind of pod, and the constants that features read.

    Attributes:
        terms: [4] terms by kind of pod, in the order in which they are added.
        cpu_per_gpu: milli-CPU that pods request per GPU.
        memory_per_cpu: bytes of memory that pods request per milli-CPU; 0: memory does not count.
        sizes: GPU milli that typical pods request of a GPU, ascending.
        claimed: by GPU model the share of the requested GPUs that must be of it.
        comments: lines about where it is from.
    """

    terms: tuple[tuple[FormulaTerm, ...], ...]
    cpu_per_gpu: float = DEFAULT_CPU_PER_GPU
    memory_per_cpu: float = 0.0
    sizes: tuple[int, ...] = ()
    claimed: Mapping[str, float] = field(default_factory=dict)
    comments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def used_features(self) -> tuple[str, ...]:
        """Return the names of the features that occur, in the order of the table."""
        used = {term.name.removesuffix(CHANGE) for terms in self.terms for term in terms}
        return tuple(feature.name for feature in FORMULA_FEATURES if feature.name in used)

    def arrays(self, types: Sequence[GpuType]) -> FormulaArrays:
        """Return the formula for kernels on nodes with these types of GPUs."""
        most = max(1, max(map(len, self.terms)))
        columns, weights = np.zeros((POD_KINDS, most), dtype=np.int64), np.zeros((POD_KINDS, most))
        for kind, terms in enumerate(self.terms):
            for k, term in enumerate(terms):
                columns[kind, k], weights[kind, k] = term_column(term.name), term.weight
        # side="right": a size equal to what is left fits. Index 0 stands for no size that fits.
        left = np.searchsorted(self.sizes, np.arange(GPU_MILLI + 1), side="right")
        return FormulaArrays(
            counts=np.array([len(terms) for terms in self.terms], dtype=np.int64),
            columns=columns,
            weights=weights,
            ratios=np.array([self.cpu_per_gpu, self.memory_per_cpu]),
            largest=np.array([0, *self.sizes], dtype=np.int64)[left],
            claims=np.array([*(self.claimed.get(each.model, 0.0) for each in types), 0.0]),
        )

    def text(self) -> str:
        """Return the text, which `read_formula` reads."""
        lines = [HEADER, *(f"# {each}" for each in self.comments), "", *self._constants()]
        for name, terms in zip(KIND_NAMES, self.terms, strict=True):
            lines += ["", f"{name}:", *(f"  {term}" for term in terms)]
        return "\n".join([*lines, "", *self._definitions(), ""])

    def _constants(self) -> Iterator[str]:
        yield f"{CPU_PER_GPU} = {self.cpu_per_gpu:g}  # milli-CPU that pods request per GPU"
        yield f"{MEMORY_PER_CPU} = {self.memory_per_cpu:g}  # bytes that pods request per milli-CPU; 0: does not count"
        if {"dead", "waste"} & set(self.used_features):
            yield f"{SIZES} = {' '.join(map(str, self.sizes))}  # thousandths of a GPU that typical pods request"
        if self.claimed and "claimed" in self.used_features:
            shares = ", ".join(f"{model} {share:g}" for model, share in self.claimed.items())
            yield f"{CLAIMED} = {shares}  # share of the requested GPUs that must be of the model"

    def _definitions(self) -> Iterator[str]:
        yield "# A pod goes to the node with the highest score of those that it fits on. Of the GPUs that"
        yield "# suffice it takes those with the least free. Features are of the node with the pod on it:"
        named = set(self.used_features)
        # A product comes after its factors.
        for feature in reversed(FORMULA_FEATURES):
            named.update(feature.others if feature.name in named else ())
        yield from (f"#   {each.name}: {each.meaning}" for each in FORMULA_FEATURES if each.name in named)
        yield f"#   NAME{CHANGE}: the feature NAME with the pod minus without it"


def formula_constants(pods: Sequence[TypicalPod]) -> Formula:
    """Return a formula without terms, with the constants of typical pods, rounded as its text states them."""
    demand = {pod: pod.share * pod.gpu_milli * pod.gpu_count / GPU_MILLI for pod in pods}
    gpus, cpu = sum(demand.values()), sum(pod.share * pod.cpu_milli for pod in pods)
    memory = sum(pod.share * pod.memory_bytes for pod in pods)
    claimed: dict[str, float] = {}
    for pod in pods:
        for model in pod.gpu_models:
            if set(model) & set(",=#:") or model != model.strip():
                continue  # a text could not hold it
            claimed[model] = claimed.get(model, 0.0) + demand[pod] / len(pod.gpu_models) / (gpus or 1.0)
    return Formula(
        terms=((),) * POD_KINDS,
        cpu_per_gpu=_as_text(cpu / gpus if gpus and cpu else DEFAULT_CPU_PER_GPU),
        memory_per_cpu=_as_text(memory / cpu if cpu else 0.0),
        sizes=_typical_sizes(pods),
        claimed={model: _as_text(share) for model, share in sorted(claimed.items()) if share},
    )


def _typical_sizes(pods: Sequence[TypicalPod]) -> tuple[int, ...]:
    shares: dict[int, float] = {}
    for pod in pods:
        if pod.gpu_count:
            shares[pod.gpu_milli] = shares.get(pod.gpu_milli, 0.0) + pod.share
    smallest = min(shares, default=0)
    ranked = sorted(shares, key=lambda size: (size != smallest, -shares[size], size))
    return tuple(sorted(ranked[:MOST_SIZES]))


def _as_text(value: float) -> float:
    return float(f"{value:g}")


def is_formula(spec: str) -> bool:
    """Return whether the name of a policy is that of a formula's text."""
    return spec.endswith(FORMULA_SUFFIX)


def read_formula(path: Path) -> Formula:
    """Return the formula of a text.

    Raises:
        InputError: it cannot be read, or is not a formula; names the line and what would be right.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(path, "", "", f"is larger than {MOST_BYTES} bytes; expected a formula")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(path, "", "", "is not UTF-8 text; expected a formula") from None
    if not lines or lines[0].strip() != HEADER:
        raise InputError(path, "line 1", "", f"expected {HEADER!r}, the first line of a formula")
    return _FormulaReader(path).read(lines)


class _FormulaReader:
    """Reader of the lines of a text."""

    def __init__(self, path: Path) -> None:
        self._path, self._where = path, ""
        self._constants: dict[str, str] = {}
        self._terms: dict[str, list[FormulaTerm]] = {}

    def read(self, lines: Sequence[str]) -> Formula:
        kind = ""
        comments: list[str] = []
        for number, line in enumerate(lines, 1):
            self._where, text = f"line {number}", line.partition("#")[0].strip()
            if number > 1 and number == len(comments) + 2 and line.startswith("# "):
                comments.append(line[2:])
            if not text:
                continue
            if text.endswith(":"):
                kind = self._kind(text[:-1])
            elif "=" in text:
                self._constant(text)
            elif kind:
                self._terms[kind].append(self._term(text, number))
            else:
                raise self._error("", f"{text!r} precedes the kinds of pods; expected one of {self._kinds}")
        self._where = ""
        if missing := [name for name in KIND_NAMES if name not in self._terms]:
            raise self._error(missing[0], f"is missing; expected the line '{missing[0]}:' and its terms, if it has any")
        if (count := sum(map(len, self._terms.values()))) > MOST_TERMS:
            raise self._error("", f"has {count} terms; expected at most {MOST_TERMS}")
        formula = Formula(
            tuple(tuple(self._terms[name]) for name in KIND_NAMES),
            self._number(CPU_PER_GPU, self._required(CPU_PER_GPU), 1e-3, MOST_WEIGHT),
            self._number(MEMORY_PER_CPU, self._required(MEMORY_PER_CPU), 0.0, MOST_WEIGHT),
            self._sizes(),
            self._claimed(),
            tuple(comments),
        )
        if {"dead", "waste"} & set(formula.used_features):
            self._required(SIZES)
        return formula

    @property
    def _kinds(self) -> str:
        return ", ".join(f"'{name}:'" for name in KIND_NAMES)

    def _error(self, name: str, problem: str) -> InputError:
        return InputError(self._path, self._where, name, problem)

    def _kind(self, name: str) -> str:
        if name not in KIND_NAMES:
            raise self._error(name, f"is not a kind of pod; expected one of {self._kinds}")
        if name in self._terms:
            raise self._error(name, "occurs twice; expected each kind of pod once")
        self._terms[name] = []
        return name

    def _constant(self, text: str) -> None:
        name, _, value = (part.strip() for part in text.partition("="))
        known = (CPU_PER_GPU, MEMORY_PER_CPU, SIZES, CLAIMED)
        if name not in known:
            raise self._error(name, f"is not a constant; expected one of {', '.join(known)}")
        if name in self._constants:
            raise self._error(name, "occurs twice; expected each constant once")
        self._constants[name] = value

    def _term(self, text: str, number: int) -> FormulaTerm:
        weight, _, name = text.partition(" ")
        name = name.strip()
        if name not in TERM_NAMES:
            similar = get_close_matches(name, TERM_NAMES, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join(TERM_NAMES)}"
            raise self._error(name or text, f"is not {'a feature' if name else 'a weight and a feature'}; {hint}")
        return FormulaTerm(self._number(name, weight, -MOST_WEIGHT, MOST_WEIGHT), name, number)

    def _required(self, name: str) -> str:
        if name not in self._constants:
            raise self._error(name, f"is missing; expected '{name} = ...' before the terms")
        return self._constants[name]

    def _number(self, name: str, text: str, least: float, most: float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self._error(name, f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    def _sizes(self) -> tuple[int, ...]:
        texts = self._constants.get(SIZES, "").split()
        sizes = [int(text) if text.isdecimal() else 0 for text in texts]
        if sizes != sorted(set(sizes)) or any(not 0 < size <= GPU_MILLI for size in sizes):
            problem = f"{' '.join(texts)!r} are not ascending integers from 1 to {GPU_MILLI}"
            raise self._error(SIZES, problem)
        return tuple(sizes)

    def _claimed(self) -> dict[str, float]:
        claimed = {}
        for part in filter(None, self._constants.get(CLAIMED, "").split(",")):
            model, _, share = part.strip().rpartition(" ")
            if not model:
                raise self._error(CLAIMED, f"{part.strip()!r} is not a model and a share, such as T4 0.25")
            claimed[model.strip()] = self._number(CLAIMED, share, 0.0, 1.0)
        return claimed
