"""Who goes next on RLScheduler's two traces: the published rules to the digit, its reinforcement learning, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.orders import scores
from steersman.orders.order import NO_ONE, Order
from studies import tables
from studies.common import Json, Say, desk, plain, published
from studies.queues.learners import (
    BOTH,
    LEARNERS,
    PPO_VALIDATION,
    TrainingRun,
    choice_windows,
    chosen_training,
    generated_options,
    learner_of,
    plan_training,
    played,
    search_options,
)
from studies.queues.queue_network import weight_count
from studies.queues.sequences import (
    FRESH,
    JOBS,
    SEQUENCES,
    TABLE_SEED,
    TRACES,
    first_jobs,
    fresh_first_jobs,
    run_times_of,
    trace,
)

NAME = "rlscheduler"
MINUTES = 150
DATA = ("lublin",)
PUBLISHED: dict[str, dict[str, float]] = {
    "Lublin-1": {
        **{"FCFS": 7273.77, "WFP3": 19753.53, "UNICEP": 22274.74, "SJF": 277.35, "F1": 258.37},
        "RLScheduler": 254.67,
    },
    "Lublin-2": {
        **{"FCFS": 7842.47, "WFP3": 9523.18, "UNICEP": 11265.31, "SJF": 787.89, "F1": 698.34},
        "RLScheduler": 724.51,
    },
}
"""Mean bounded slowdowns of Zhang et al., "RLScheduler: An Automated HPC Batch Job Scheduler Using Reinforcement
Learning" (SC 2020)."""


Floats = npt.NDArray[np.float64]


class _PublishedWfp3(Order):
    """WFP3 as RLScheduler computes it: the time waited counts from its mark of a job that waits, -1."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w / r)^3 n with w = -1 - submit, see `Order`."""
        return np.asarray(-(((-1.0 - time) / run_times_of(pods)) ** 3) * size)


class _PublishedUnicep(Order):
    """UNICEP as RLScheduler computes it, see `_PublishedWfp3`."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w + 1e-15) / (log2(n + 1e-15) r) with w = -1 - submit, see `Order`."""
        return np.asarray(-((-1.0 - time) + 1e-15) / (np.log2(size + 1e-15) * run_times_of(pods)))


RULES: dict[str, Order] = {
    "FCFS": Order("FCFS"),
    "WFP3": _PublishedWfp3("WFP3"),
    "UNICEP": _PublishedUnicep("UNICEP"),
    "SJF": Order("SJF", scores.SHORTEST),
    "F1": Order("F1", scores.F1),
}


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "traces": TRACES,
        "jobs": JOBS,
        "learners": {name: asdict(learner_of(name, quick)) for name in LEARNERS},
        "generated": generated_options(quick),
        "choice": choice_windows(quick),
        "searches": {name: search_options(name, quick) for name in LEARNERS},
    }


def run(say: Say, quick: bool = False) -> Json:
    """Play the rules, train orders, and play these on the sequences of the table and on others, also with rollouts."""
    at, asked = desk(NAME, quick, say), options(quick)
    rules, fresh = _play_rules()
    learned: Json = {}
    common = {name: asked[name] for name in ("traces", "jobs", "choice")}
    # A training does not depend on how many there are, so that more can be added.
    earlier = published("queues", NAME, {**common, "generated": asked["generated"]}, quick)
    wanted = [TrainingRun(name, seed) for name in LEARNERS for seed in range(1, learner_of(name, quick).trainings + 1)]
    for training in sorted(wanted, key=lambda each: each.turn):
        planned = plan_training(at, training, learned)
        made = _published_training(earlier, asked, training, planned.played_on)
        made = made or at.once(training.part, {**common, **planned.depends}, planned.make)
        learned.setdefault(training.learner, []).append(made)
    return {**asked, "rules": rules, "fresh_rules": fresh, "learned": learned}


def _play_rules() -> tuple[Json, Json]:
    """Return the slowdowns of rules by trace, on the sequences of the table and on others."""
    rules: Json = {}
    fresh: Json = {}
    for trace_name in TRACES:
        jobs = len(trace(trace_name).pods)
        orders = {name: replace(rule, overtaking=NO_ONE) for name, rule in RULES.items()}
        first = first_jobs(jobs, TABLE_SEED, SEQUENCES)
        rules[trace_name] = {name: played(trace_name, order, first) for name, order in orders.items()}
        others = fresh_first_jobs(jobs)
        fresh[trace_name] = {name: played(trace_name, order, others) for name, order in orders.items()}
    return rules, fresh


def _published_training(earlier: Json, asked: Json, training: TrainingRun, played_on: Sequence[str]) -> Json | None:
    """Return a training of the repository's result that was made with the same options, if there is one."""
    name = training.learner
    has = earlier.get("learned", {}).get(name, [])
    if training.seed > len(has) or earlier["searches"][name] != plain(asked["searches"][name]):
        return None
    known: Json = has[training.seed - 1]
    # With more trainings another one may be the chosen one, which is played on more windows.
    return known if all(bool(known[kind]) == (kind in played_on) for kind in BOTH) else None


def _compared_with_published(rules: Json) -> str:
    differences = differing(rules)
    count = sum(len(values) for values in rules.values())
    equal = f"{count - len(differences)} of {count} figures of rules are those published, in every digit"
    return f"{equal}; {'; '.join(differences)}." if differences else f"{equal}."


def differing(rules: Json) -> list[str]:
    """Return what differs from the published figures of rules, which have two decimals."""
    result = []
    for where, values in rules.items():
        for name, each in values.items():
            mean, published = float(np.mean(each)), PUBLISHED[where][name]
            if abs(mean - published) > 0.005:
                result.append(f"{name} on {where} has {mean:.2f} here and {published:.2f} there")
    return result


def _is_chosen_from(result: Json, name: str) -> bool:
    """Return whether a learner has several trainings."""
    return bool(result["learners"][name]["trainings"] > 1)


def _table_rows(result: Json, sequences: str) -> list[list[str]]:
    """Return rows: rules, what is published, and by learner the mean over trainings and the one that was chosen."""
    rules = result["rules" if sequences == "table" else "fresh_rules"]
    rows = [
        [rule, *(tables.number(float(np.mean(rules[trace_name][rule]))) for trace_name in TRACES)] for rule in RULES
    ]
    if sequences == "table":
        published = [tables.number(PUBLISHED[trace_name]["RLScheduler"]) for trace_name in TRACES]
        rows.append(["RLScheduler, published", *published])
    for name in result["learners"]:
        made = result["learned"].get(name, [])
        cells = []
        for trace_name in TRACES:
            means = [float(np.mean(each[sequences][trace_name])) for each in made if each[sequences]]
            is_all = bool(means) and len(means) == len(made)
            cells.append(tables.interval(tables.spread(means), sign=False, unit="times") if is_all else "–")
        if set(cells) != {"–"}:
            rows.append([name, *cells])
        if _is_chosen_from(result, name) and made:
            chosen = chosen_training(made)[sequences]
            rows.append([f"{name}, chosen", *(tables.number(float(np.mean(chosen[each]))) for each in TRACES)])
    return rows


def _milliseconds_per_job(result: Json) -> str:
    """Return how much of a core a job takes with rollouts."""
    made = [each for name, each in result["learned"].items() if result["learners"][name]["rollouts_of"]]
    known = [one for each in made for one in each]
    minutes, decisions = (sum(each[what] for each in known) for what in ("core_minutes", "decisions"))
    return tables.number(60_000 * minutes / decisions if known else None, 1)


def _budgets(result: Json) -> list[list[str]]:
    """Return rows: learner, trainings, and what one of them took on average."""
    rows = []
    for name, made in result["learned"].items():
        if result["learners"][name]["rollouts_of"]:
            continue
        decisions = float(np.mean([each["decisions"] for each in made]))
        known = [each["core_minutes"] for each in made if each["core_minutes"] is not None]
        minutes = tables.number(float(np.mean(known)) if known else None, 1)
        rows.append([name, str(len(made)), tables.number(decisions / 1e6, 1), minutes])
    return rows


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    return f"RLScheduler's protocol, rules and traces: {_compared_with_published(result['rules'])}"


def section(result: Json) -> str:
    """Return the page of docs/results."""
    header = ["mean bounded slowdown", *TRACES]
    generated, parts, _ = result["generated"]
    searches, units = result["searches"], result["learners"]["network, whole queue"]["hidden"]
    rollouts, whole, others = (searches[name] for name in ("rollouts", "network, whole queue", "network"))
    return "\n".join(
        [
            "## Who goes next, on RLScheduler's traces",
            "",
            "One pool of 256 processors, ten sequences of 1,024 jobs, the protocol of Zhang et al. (SC 2020). We "
            "ran the rules ourselves; RLScheduler's row is the published one. The other rows are ours: one order for "
            "both traces, unless said trained by evolution (CMA-ES) on windows that begin elsewhere. These windows "
            "overlap with the sequences of the table. `network` has 12 units on top of the linear score. `continued` "
            "begins with the chosen linear training, and has 24 windows in each generation instead of 12. The linear "
            "order `trained on neither` saw only jobs by the model of Lublin and Feitelson: "
            f"{generated} traces of {parts} parts, each with its own parameters and load.",
            "",
            "`network, whole queue` also sees the state of the queue (`studies.queues.queue_network`). That is how "
            "much its slowdowns grow in an hour, how much work it is, and the share that fits now. It also sees when a "
            f"quarter, a half and all of the pool will be free. Its {weight_count(units)} weights had "
            f"{whole['generations']:,} generations of {whole['episodes']} windows. The other networks had "
            f"{others['generations']} of {others['episodes']}.",
            "",
            "`rollouts` plays these networks with rollouts one decision deep (`studies.queues.rollouts`). The "
            f"{rollouts['candidates']} jobs with the best scores are each tried on {rollouts['futures']} futures of "
            f"{rollouts['seconds'] / 3600:.0f} hours. The network plays the rest of each. Its choice gives way to a "
            "job that is cheaper by more than a standard error. A future is a stretch of the same trace that has come "
            "before, at the same time of day within two hours. It may lie before the sequence, which in the table has "
            "at least 1,024 jobs before it. Nothing else is known of the trace. On average a job takes "
            f"{_milliseconds_per_job(result)} ms of a core.",
            "",
            "`PPO` is one training of a network with attention over 128 waiting jobs, the shortest, with 73,000 "
            "weights (`studies.queues.queue_ppo`). It begins as evolution does, with the shortest first; `PPO, "
            "continued` begins as the best of the linear orders. "
            f"The checkpoint is the best of one in each million decisions, on {PPO_VALIDATION} further windows of each "
            "trace. The trainings shared a GPU (H200) and were ended after 8 minutes; the weights are not kept.",
            "",
            "Means over trainings with 95 % intervals, and the one training that was best on "
            f"{result['choice']} windows of each trace that it was trained on (`chosen`). These begin elsewhere than "
            "the sequences of both tables. `rollouts, chosen` is the network that was best without rollouts. All "
            "trainings play the same sequences of a trace, so that the intervals say how much trainings differ, and "
            "nothing of other sequences.",
            "",
            "Our networks are compared here on the traces that they were trained on. So were RLScheduler's: examined "
            "from outside, these have 0.51 to 0.72 times the slowdown of SJF on traces of their training.",
            "",
            _compared_with_published(result["rules"]),
            "",
            tables.markdown(header, _table_rows(result, "table")),
            "",
            f"On {FRESH} other sequences of each trace, of the rollouts the chosen one alone:",
            "",
            tables.markdown(header, _table_rows(result, "fresh")),
            "",
            "What a training took, in runs of candidates, references and validations; the machine had other work, too. "
            "A decision of evolution is a job; one of PPO is a choice between jobs that wait, of which a window has "
            "about 900. What a learner began with is not counted again:",
            "",
            tables.markdown(["order", "trainings", "million decisions", "core minutes"], _budgets(result)),
        ]
    )
