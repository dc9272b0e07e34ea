"""Inverted indexes of selectors and label sets: which of the one match the other, without trying all of them.

A label is a pair of key and value. A selector wants pairs (`In`, `Exists`) and refuses others (`NotIn`,
`DoesNotExist`). It matches labels that meet each of its wants and have no pair that it refuses. The entries of a few
pairs are counted, so that the cost does not grow with selectors times label sets.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import PodSelector

Pair = tuple[str, str | None]  # a key and a value; None: any value
NAMESPACE, TERMINATING = "", " "  # keys of two pairs that are no labels: namespace, and being deleted


class LabelSet(NamedTuple):
    """Namespace and labels of pods, and whether they are being deleted."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool

    def pairs(self) -> Iterator[Pair]:
        """Yield what a selector may want or refuse."""
        yield NAMESPACE, self.namespace
        if self.terminating:
            yield TERMINATING, None
        for key, value in self.labels.items():
            yield key, value
            yield key, None


class CountedPods(NamedTuple):
    """Pods that match all of some selectors; `living`: without terminating ones."""

    selectors: tuple[PodSelector, ...]
    living: bool

    def matcher(self) -> Callable[[LabelSet], bool]:
        """Return a function that tells whether pods with some labels are counted."""
        count, wanted, refused = self.demands()

        def match(pods: LabelSet) -> bool:
            pairs = set(pods.pairs())
            return sum(pair in pairs for pair in wanted) == count and pairs.isdisjoint(refused)

        return match

    def demands(self) -> tuple[int, list[Pair], list[Pair]]:
        """Return the number of wants, each of which one pair meets, the pairs that meet one, and those refused."""
        count, wanted, refused = 0, list[Pair](), list[Pair]()
        if self.living:
            refused.append((TERMINATING, None))
        for selector in self.selectors:
            if selector.namespaces is not None:
                count += 1
                wanted += [(NAMESPACE, name) for name in selector.namespaces]
            if selector.requirements is None:
                count += 1  # which nothing meets
            for each in selector.requirements or ():
                refuses = each.operator in ("NotIn", "DoesNotExist")
                values = each.values if each.operator in ("In", "NotIn") else (None,)
                count += not refuses
                (refused if refuses else wanted).extend({(each.key, value) for value in values})
        return count, wanted, refused


class LabelIndex:
    """The first label sets and selectors of a growing number, and how many of both are indexed."""

    def __init__(self) -> None:
        self.label_sets = 0
        self._with: dict[Pair, array[int]] = defaultdict(_numbers)
        self._wanting: dict[Pair, array[int]] = defaultdict(_numbers)
        self._refusing: dict[Pair, array[int]] = defaultdict(_numbers)
        self._wants = _numbers()

    @property
    def selectors(self) -> int:
        return len(self._wants)

    def extend(self, label_sets: Sequence[LabelSet], selectors: Iterable[CountedPods]) -> None:
        """Index those beyond the first ones, which are indexed already."""
        for labels in islice(label_sets, self.label_sets, None):
            for pair in labels.pairs():
                self._with[pair].append(self.label_sets)
            self.label_sets += 1
        for counted in islice(selectors, self.selectors, None):
            count, wanted, refused = counted.demands()
            for index, pairs in ((self._wanting, wanted), (self._refusing, refused)):
                for pair in pairs:
                    index[pair].append(self.selectors)
            self._wants.append(count)

    def matched_by(self, counted: CountedPods) -> npt.NDArray[np.bool_]:
        count, wanted, refused = counted.demands()
        met: npt.NDArray[np.bool_] = _occurrences(self._with, wanted, self.label_sets) == count
        met &= _occurrences(self._with, refused, self.label_sets) == 0
        return met

    def matching(self, labels: LabelSet) -> npt.NDArray[np.bool_]:
        pairs = list(labels.pairs())
        met: npt.NDArray[np.bool_] = _occurrences(self._wanting, pairs, self.selectors) == np.array(self._wants)
        met &= _occurrences(self._refusing, pairs, self.selectors) == 0
        return met


def _numbers() -> array[int]:
    return array("q")


def _occurrences(index: Mapping[Pair, array[int]], pairs: Iterable[Pair], size: int) -> npt.NDArray[np.int64]:
    """Return how often each number up to `size` is listed for the pairs."""
    entries = [index[pair] for pair in pairs if pair in index]
    return np.bincount(np.concatenate([_numbers(), *entries]), minlength=size)
