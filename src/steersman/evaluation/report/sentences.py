"""The outcome of a comparison in one sentence: tables of cases, the first of which that holds is said.

A sentence is a format of an `Outcome`, whose properties are its parts: they are computed when a sentence names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from steersman.core.counting import counted
from steersman.core.statistics import BLOCKS, Interval
from steersman.evaluation.report.standings import Difference, Standings
from steersman.evaluation.report.style import brackets, interval_text, listed, seeds_text
from steersman.simulation.measures import CPU_ALLOCATION, GPU_ALLOCATION, MEAN_WAIT
from steersman.simulation.pod_kinds import KINDS

REACHED = 0.015  # points to the bound, which is rounded up, within which a policy has reached it


@dataclass(frozen=True, slots=True)
class CriterionWording:
    """How sentences speak of a criterion: formats of an `Outcome`."""

    amount: str  # what a policy reaches, as a clause
    short: str  # the same without the policy
    wins: str  # what only the best does
    alone: str  # a sentence on the only policy, without its end
    unknown: str  # a sentence where no policy has a value, without its end
    # `same`, `than`: between a gain and the policy that it is compared with.
    same: str = "as much as"
    than: str = "than"


ALLOCATED = CriterionWording(
    amount="{0.best} allocates {0.value:.2f} % {0.of_whole}",
    short="{0.value:.2f} % {0.of_whole} allocated",
    wins="allocates the most {0.of.resources}",
    alone="{0.best} allocates {0.value:.2f} % of the {0.of.resources} {0.where}",
    unknown="Nothing is known of the {0.of.resource} allocated {0.where}",
)
WAITED = CriterionWording(
    amount="{0.best} lets pods wait {0.value:,.1f} s on average",
    short="pods wait {0.value:,.1f} s on average",
    wins="lets pods wait the least",
    alone="Pods wait {0.value:,.1f} s on average under {0.best} {0.where}",
    unknown="No pod was bound under any policy {0.where}",
    same="as long as under",
    than="than under",
)
NAMED_CRITERION = CriterionWording(
    amount="{0.of.criterion.phrase} {0.shown_value} under {0.best}",
    short="{0.of.criterion.phrase} {0.shown_value}",
    wins="has the {0.extreme} {0.of.criterion.phrase}",
    alone="{0.capitalised} {0.shown_value} under {0.best} {0.where}",
    unknown="Nothing is known of the {0.of.criterion.phrase} {0.where}",
)
WORDS = {GPU_ALLOCATION: ALLOCATED, CPU_ALLOCATION: ALLOCATED, MEAN_WAIT.name: WAITED}  # by metric; others are named


@dataclass(frozen=True, slots=True)
class RefusalWording:
    """How sentences speak of the pods that a policy leaves out: a verb, what follows the pods, and both of all pods."""

    verb: str
    after: str
    which: str


FAILING, WAITING = RefusalWording("fails", "", "that fail"), RefusalWording("leaves", " waiting", "left waiting")


class Outcome:
    """What can be said of a comparison."""

    def __init__(self, of: Standings) -> None:
        self.of = of
        self._means = of.means(of.workload)
        order = of.order(of.workload)
        # The policies that have a value, the best first
        self.known = [policy for policy in order if math.isfinite(self._means[policy])]
        self.best = order[0]
        self.words = WORDS.get(of.primary, NAMED_CRITERION)
        self.pod_words = WAITING if of.timed else FAILING

    def __getitem__(self, part: str) -> str:
        """Return a part of a sentence in the words of the criterion, such as `amount`."""
        return str(getattr(self.words, part)).format(self)

    @property
    def value(self) -> float:
        return self._means[self.best]

    @property
    def shown_value(self) -> str:
        """Return it with the digits and the symbol of the criterion."""
        return f"{self.value:,.{self.of.criterion.digits}f}{self.of.criterion.symbol}"

    @property
    def capitalised(self) -> str:
        phrase = self.of.criterion.phrase
        return phrase[0].upper() + phrase[1:]

    @property
    def extreme(self) -> str:
        return "highest" if self.of.criterion.larger_is_better else "lowest"

    @property
    def of_whole(self) -> str:
        gpus = self.of.gpus.get(self.of.workload, 0) if self.of.on_gpu else 0
        return f"of {counted(gpus, 'GPU')}" if gpus else f"of the {self.of.resources}"

    @property
    def where(self) -> str:
        if len(self.of.workloads) > 1:
            return f"on average over {len(self.of.workloads)} workloads ({self.of.protocol})"
        return f"on {self.of.workload} ({self.of.protocol})"

    @property
    def interval(self) -> str:
        row = self.of.row(self.of.workload, self.best, self.of.primary)
        interval = interval_text(row.interval, self.of.criterion.digits) if row is not None else ""
        return f", {self.of.interval_title} {interval}" if interval else ""

    @property
    def seeds(self) -> str:
        """Return how often a policy that is alone was run."""
        return "arrivals given" if self.of.is_given else seeds_text(len(self.of.seeds), "seed")

    @property
    def is_alone(self) -> bool:
        """Return whether there is nothing to compare: one policy has a value, or no pod waits under any that has."""
        return len(self.known) < 2 or (self.words == WAITED and not any(self._means[each] for each in self.known))

    @property
    def nobody_waits(self) -> bool:
        """Return whether the mean wait decides, and every policy has one of 0."""
        return self.words == WAITED and all(mean == 0 for mean in self._means.values())

    @cached_property
    def rivals(self) -> list[str]:
        return [each for each in self.known[1:] if not self.of.is_better(self.of.workload, self.best, each)]

    @property
    def others(self) -> str:
        return listed(self.rivals)

    @property
    def group(self) -> str:
        return listed([self.best, *self.rivals])

    @property
    def is_tie(self) -> bool:
        return all(self._against(each).interval == (0, 0) for each in self.rivals)

    @property
    def is_contradictory(self) -> bool:
        """Return whether a rival is better in the seeds that both have."""
        return any(self.of.is_better(self.of.workload, each, self.best) for each in self.rivals)

    @property
    def reference(self) -> str:
        """Return the policy that the best one is compared with: the baseline, else the second best."""
        return self.of.baseline if self.of.baseline in self.known[1:] else self.known[1]

    def _against(self, other: str, metric: str = "") -> Difference:
        """Return the difference of the best policy from another one, in the primary metric if none is named."""
        return self.of.difference(self.of.workload, metric or self.of.primary, self.best, other)

    @property
    def evidence(self) -> str:
        if self.of.is_given:
            return f"intervals over {BLOCKS} blocks of this stretch alone"
        return seeds_text(self._against(self.reference).pairs, "paired seed")

    @property
    def gain(self) -> str:
        """Return the gain of the best policy on the reference, with the interval, as in the table.

        If the two have different seeds, the best by its mean may be the worse in the seeds that both have.
        """
        more, criterion = self._against(self.reference), self.of.criterion
        if not math.isfinite(more.mean):
            return f"in other seeds than {self.reference}"
        size, smallest = abs(more.mean), 10.0**-criterion.digits
        if size == 0 and not more.interval.low < more.interval.high:
            return f"{self.words.same} {self.reference}"
        shown = f"less than {smallest:g}" if size < smallest / 2 else f"{size:,.{criterion.digits}f}"
        is_less = more.mean < 0 or (more.mean == 0 and not criterion.larger_is_better)
        interval = brackets(_mirrored(more.interval) if is_less else more.interval, criterion.digits)
        sign = "less" if is_less else "more"
        return f"{f'{shown} {criterion.difference_unit}'.rstrip()}{interval} {sign} {self.words.than} {self.reference}"

    @cached_property
    def _pods(self) -> dict[str, Difference]:
        return {each: self._against(each, self.of.unplaced_metric) for each in self.known[1:]}

    @property
    def _fewer(self) -> dict[str, Difference]:
        return {each: pods for each, pods in self._pods.items() if pods.is_significant and pods.mean > 0}

    @property
    def is_traded(self) -> bool:
        """Return whether a policy is shown to leave out fewer pods than the best one."""
        return bool(self._fewer)

    @property
    def pods(self) -> str:
        """Return the pods that the best policy leaves out against others, first against the reference."""
        fewer, words = self._fewer, self.pod_words
        if self.reference in fewer:
            return f", but it {words.verb} {_amount(fewer[self.reference])} more{words.after}"
        text = _no_more_pods(self._pods[self.reference], self.reference if fewer else "", words)
        if not fewer:
            return text
        other = max(fewer, key=lambda each: fewer[each].mean)
        return f"{text}, but it {words.verb} {_amount(fewer[other])} more{words.after} than {other}"


def _no_more_pods(pods: Difference, reference: str, words: RefusalWording) -> str:
    """Return that the best policy leaves out fewer pods than the reference, as many, or that nothing is shown."""
    if not math.isfinite(pods.mean):
        return ""
    if pods.is_significant:
        amount = _amount(Difference(-pods.mean, _mirrored(pods.interval), pods.pairs))
        return f"; it {words.verb} {amount} fewer{words.after}{f' than {reference}' if reference else ''}"
    if pods.interval == (0, 0):
        return f"; it {words.verb} as many pods{words.after}{f' as {reference}' if reference else ''}"
    return f"; no difference {f'from {reference} ' if reference else ''}shown in the pods {words.which}"


def _amount(pods: Difference) -> str:
    return f"{pods.mean:,.1f} pods{brackets(pods.interval, 1)}"


def _mirrored(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low)


Case = tuple[Callable[[Outcome], object], str]  # when a sentence is said, and the sentence

ALONE: tuple[Case, ...] = (
    (
        lambda outcome: not outcome.known and outcome.words == WAITED and len(outcome.of.workloads) > 1,
        "There is no mean wait {0.where}: on one of them no pod was bound, {0.seeds}.",
    ),
    (lambda outcome: not outcome.known, "{0[unknown]}, {0.seeds}."),
    (
        lambda outcome: outcome.nobody_waits and outcome.of.some_fail(outcome.of.workload),
        "No pod that fits has to wait under any policy {0.where}, {0.seeds}.",
    ),
    (lambda outcome: outcome.nobody_waits, "No pod has to wait under any policy {0.where}, {0.seeds}."),
    (lambda _: True, "{0[alone]}{0.interval}, {0.seeds}."),
)

COMPARED: tuple[Case, ...] = (
    (
        lambda outcome: not outcome.of.has_intervals and outcome.of.is_given,
        "Arrivals given once have no interval: {0.where}, {0[amount]}, {0.gain}.",
    ),
    (
        lambda outcome: not outcome.of.has_intervals,
        "One seed cannot show a difference: {0.where}, {0[amount]}, {0.gain}.",
    ),
    # Nothing is said of rivals among themselves: only their differences from the best policy are tested.
    (
        lambda outcome: outcome.rivals and outcome.is_tie,
        "{0.group} do equally well {0.where}: {0[amount]}, {0.gain}{0.pods}; {0.evidence}.",
    ),
    (
        lambda outcome: outcome.is_contradictory,
        "No best policy shown of {0.group} {0.where}, whose seeds differ: {0[amount]}, {0.gain}{0.pods}; {0.evidence}.",
    ),
    (
        lambda outcome: outcome.rivals,
        "{0.best} is not shown to differ from {0.others} {0.where}: {0[amount]}, {0.gain}{0.pods}; {0.evidence}.",
    ),
    (lambda outcome: outcome.is_traded, "{0.best} {0[wins]} {0.where}: {0[short]}, {0.gain}{0.pods}; {0.evidence}."),
    (lambda _: True, "{0.best} is best {0.where}: {0[short]}, {0.gain}{0.pods}; {0.evidence}."),
)


def sentence(standings: Standings) -> str:
    """Return the outcome in a sentence: the best policy and its gain, or that no difference was shown."""
    outcome = Outcome(standings)
    cases = ALONE if outcome.is_alone else COMPARED
    return next(text for holds, text in cases if holds(outcome)).format(outcome)


def kinds_sentence(standings: Standings) -> str:
    """Return which kinds of pods pay for the best policy, and which gain; empty if none is shown to."""
    outcome = Outcome(standings)
    if outcome.is_alone:
        return ""
    best, reference = outcome.best, outcome.reference
    told: dict[bool, list[str]] = {True: [], False: []}
    for kind, metric in standings.kinds(standings.workload).items():
        change = standings.difference(standings.workload, metric, best, reference)
        if change.is_significant:
            told[change.mean > 0].append(f"{KINDS[kind]} ({_change(standings, kind, reference, best)})")
    verb = "wait" if standings.timed else "fail"
    comparatives = {
        True: "longer" if standings.timed else "more often",
        False: "less" if standings.timed else "less often",
    }
    clauses = [
        f"pods that request {listed(kinds)} {verb} {comparatives[is_more]}" for is_more, kinds in told.items() if kinds
    ]
    return f"Under {best} {', and '.join(clauses)} than under {reference}." if clauses else ""


def _change(standings: Standings, kind: str, before: str, after: str) -> str:
    """Return the metric of a kind of pod under two policies, with the unit or the number of pods."""
    means = standings.means_of(standings.workload, standings.kinds(standings.workload)[kind])
    unit = " s" if standings.timed else f" of {standings.arrived(standings.workload, kind):,.0f}"
    return f"{means[before]:,.0f} -> {means[after]:,.0f}{unit}"


def bound_sentence(standings: Standings) -> str:
    """Return the sentence on what is left to gain, empty without a bound."""
    outcome, bound = Outcome(standings), standings.bound(standings.workload)
    if not math.isfinite(bound):
        return ""
    left = bound - outcome.value
    reached = f"{outcome.best} is {left:.2f} points below" if left >= REACHED else f"{outcome.best} reaches that"
    return (
        f"Bound: no scheduler that places every pod that fits allocates more than {bound:.2f} % of the GPUs "
        f"{outcome.where}; {reached}."
    )
