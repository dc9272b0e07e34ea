"""Compare the ways to run a cluster: what runs today, an edited configuration, an order, the policies of steersman."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from steersman.core.counting import counted
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import Workers
from steersman.evaluation.advice import Setting, choose_way
from steersman.evaluation.evaluation import evaluate_experiments
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.report.page import Comparison
from steersman.evaluation.summary import SummaryTable
from steersman.orders.order import AGE, Order
from steersman.orders.registry import find_order
from steersman.policies.base import Policy, decided_by
from steersman.policies.kube_scheduler.policy import STOCK_TUNED, KubeSchedulerPolicy, StockTunedPolicy
from steersman.policies.portfolios import RULES, STEERSMAN
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.measures import GPU_ALLOCATION
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import MemberChoice
from steersman.simulation.waiting import MINUTE
from steersman.training.search.orders import LOADS, history_of, history_windows, log_costs, waits_in_windows
from steersman.workloads.workload import Workload

Progress = Callable[[int, int], None]

NOW, EMPTY, WAITS = "as it is now", "empty", "waits"
"""Titles of settings."""
ORDERED = "order"
"""The way to keep kube-scheduler's scores, and to order its queue by the plugin."""
WAYS = (STOCK_TUNED, ORDERED, RULES, STEERSMAN)
"""The ways to change what runs today, the cheapest first."""
SEEDS, RATIO = tuple(range(42, 62)), 1.3
"""Of the draws of arrivals: requested GPUs over all GPUs."""
ORDERS = ("smallest", "shortest", "area", "wfp3", "unicef")
"""Orders that the plugin takes, which leaves kube-scheduler to try every pod."""
SHARES = {STOCK_TUNED: 35, RULES: 10, STEERSMAN: 25, NOW: 10, EMPTY: 10, WAITS: 10}
"""Percent of the time that the parts take, about."""
FEW_WINDOWS = 20
"""Windows of a history below which an advice says how few they are."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to run a cluster, compared.

    Attributes:
        workload: the cluster and its pods, whose running ones stay.
        today: the policy that runs today.
        choices: what simulations chose for each other policy, by name.
        comparisons: for the report, one for each of the first settings.
        settings: the clusters on which the ways were compared.
        order: that of the way `ORDERED` and of all dearer ones; that of age: pods have no times.
        notes: what could not be compared, and why; a sentence each.
    """

    workload: Workload
    today: KubeSchedulerPolicy
    choices: Mapping[str, MemberChoice]
    comparisons: tuple[Comparison, ...]
    settings: tuple[Setting, ...]
    order: Order
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Return the ways, the cheapest first."""
        return [self.today.name, *(way for way in WAYS if way != ORDERED or self.order != AGE)]

    @property
    def advised(self) -> str:
        return choose_way(self.names, self.settings)

    def decided_by(self, way: str) -> Policy:
        """Return the policy that decides where pods go."""
        placed = _placed(self.today, self.settings) if way == ORDERED else way
        return _decided_by(self.today, self.choices, placed)


def _placed(today: Policy, settings: Sequence[Setting]) -> str:
    """Return the way whose configuration an order of the queue goes with: orders are compared after allocations."""
    return choose_way([today.name, STOCK_TUNED], [each for each in settings if each.title != WAITS])


def _decided_by(today: Policy, choices: Mapping[str, MemberChoice], name: str) -> Policy:
    return decided_by(resolve(name), choices[name].policy) if name in choices else today


def compare_ways(workload: Workload, today: KubeSchedulerPolicy, *, jobs: int, progress: Progress) -> Ways:
    """Search for the best configuration and policy of a cluster, and compare them with what runs today.

    Args:
        workload: nodes and pods, whose running ones stay (`RunningPods.FROM_NOW`), with their lives.
        today: the configuration that runs today.
        jobs: number of processes; results do not depend on it.
        progress: called with the percent that are done, and 100.

    Raises:
        SteersmanError: nodes or pods have no GPU, or no pod could arrive.
    """
    check_gpus(workload)

    def part(*names: str) -> Progress:
        before = sum(list(SHARES.values())[: list(SHARES).index(names[0])])
        share = sum(SHARES[each] for each in names)
        return lambda done, total: progress(before + share * done // max(total, 1), 100)

    choices = _choices(workload, today, jobs, part)
    policies = tuple(_decided_by(today, choices, name) for name in (today.name, *choices))
    comparisons: list[Comparison] = []
    settings: list[Setting] = []
    notes: list[str] = []
    if unfit := workload.fits.count(False):
        of_all = f"{counted(unfit, 'pod')} of {len(workload.pods)}"
        notes.append(f"{of_all} {'fits' if unfit == 1 else 'fit'} on no node, whatever the scheduler")

    def compare(source: Workload, title: str) -> None:
        source = replace(source, name=f"{source.name}, {title}")
        evaluation = evaluate_experiments(
            [Experiment((source,), policies, SEEDS, ratio=RATIO)],
            baseline=today,
            jobs=jobs,
            progress=lambda _: nullcontext(part(title)),
        )
        comparisons.extend(evaluation.comparisons)
        table = SummaryTable(evaluation.runs)
        values = {each: table.get(source.name, each, GPU_ALLOCATION) for each in table.policies}
        settings.append(Setting(title, "points of GPUs allocated", values))

    if any(where is not None and not where.stays for where in workload.recorded):
        try:
            schedule(workload, "inflation", seed=SEEDS[0], ratio=RATIO, load=None)
        except SteersmanError as error:
            notes.append(f"the cluster as it is now cannot be compared: {_without_option(error)}")
        else:
            compare(workload, NOW)
    else:
        what = "nothing but what belongs to a node" if any(workload.recorded) else "nothing"
        notes.append(f"{what} runs in {workload.name}: the cluster as it is now is the empty one")
    try:
        compare(workload.unbound(), EMPTY)
    except SteersmanError as error:
        raise SteersmanError(_without_option(error)) from None
    order, placed = AGE, _placed(today, settings)
    try:
        order, waits = _compare_orders(workload, {each.name: each for each in policies}, placed, part(WAITS))
        # An order changes nothing where no pod leaves.
        settings = [replace(each, values={**each.values, ORDERED: each.values[placed]}) for each in settings]
        settings.append(waits)
        if (windows := len(waits.values[today.name])) < FEW_WINDOWS:
            notes.append(f"waits were compared in only {counted(windows, 'window')} of the history")
    except UsageError as error:
        notes.append(f"orders are not compared: {error}")
    progress(100, 100)
    return Ways(workload, today, choices, tuple(comparisons), tuple(settings), order, tuple(notes))


def _choices(
    workload: Workload, today: KubeSchedulerPolicy, jobs: int, part: Callable[..., Progress]
) -> dict[str, MemberChoice]:
    """Return what simulations choose for each policy: the configuration here, the others in a second process."""
    tuned, *others = StockTunedPolicy(today=today), resolve(RULES), resolve(STEERSMAN)
    choose = Simulator(workload).member
    if jobs == 1:
        return {each.name: choose(each, progress=part(each.name)) for each in (tuned, *others)}
    # The worker ends first: the thread waits for its answers.
    with ThreadPoolExecutor(1) as thread, Workers(1, partial(_member, workload)) as worker:
        worker.start()
        answers = thread.submit(lambda: [worker.answer(each) for each in others])
        chosen = choose(tuned, progress=part(STOCK_TUNED, RULES, STEERSMAN))
        return dict(zip((STOCK_TUNED, RULES, STEERSMAN), (chosen, *answers.result()), strict=True))


def _member(workload: Workload) -> Callable[[Policy], MemberChoice]:
    return Simulator(workload).member


def _without_option(error: SteersmanError) -> str:
    """Return what is wrong, without the option of other commands that would help there."""
    return str(error).partition("; expected")[0]


def check_gpus(workload: Workload) -> None:
    """Raise SteersmanError: no node or no pod has a GPU, or no pod with a GPU fits on a node."""
    requested = any(workload.gpu_demand[i] for i in workload.drawable())
    if not (workload.gpu_capacity and requested):
        nodes = "none of its counted nodes has a" if workload.account.left_out else "its nodes have no"
        what = "its pods request no" if workload.gpu_capacity else nodes
        raise SteersmanError(
            f"{workload.name}: {what} GPU, and advice is about the GPUs allocated; steersman evaluate compares the CPU"
        )
    if not any(workload.counted_demand[i] for i in workload.drawable()):
        raise SteersmanError(
            f"{workload.name}: none of its pods with GPUs fits on a node, so no scheduler can place one; "
            "steersman explain says why"
        )


def _compare_orders(
    workload: Workload, policies: Mapping[str, Policy], placed: str, progress: Progress
) -> tuple[Order, Setting]:
    """Return the best order in the earlier part of a history, and the ways with it in the later part.

    Values are minus the logarithms of waits.

    Raises:
        UsageError: too few pods have times, or none waits.
    """
    history = history_of(workload)
    earlier, later = history_windows(history, LOADS)
    simulator, today = Simulator(history), next(iter(policies))
    orders = {name: find_order(name) for name in (AGE.name, *ORDERS)}
    before = waits_in_windows(simulator, policies[placed], orders, earlier)
    if (before[AGE.name] <= MINUTE).all():
        raise UsageError(f"no pod of {workload.name} waits in its history")
    order = orders[min(orders, key=lambda name: log_costs(before[name]).mean())]
    progress(1, 2)
    ways = {name: (policy, AGE if name in (today, STOCK_TUNED) else order) for name, policy in policies.items()}
    ways[ORDERED] = policies[placed], order
    values = {
        name: -log_costs(waits_in_windows(simulator, policy, {name: own}, later)[name])
        for name, (policy, own) in ways.items()
    }
    return order, Setting(WAITS, "% shorter waits", values, is_ratio=True)
