"""`python -m studies [NAME...]`: run the studies, keep their results, and write docs/results.md and docs/results/.

A study whose result is there and was made from the same options is skipped; one that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import steersman
from steersman.core.engines import Engine, use_engine
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.signals import interruptible
from steersman.policies.registry import packaged_portfolio
from steersman.simulation.selection import choice
from studies import picture, tables
from studies.common import BUILD, desk, duration, plain, write_json
from studies.sources import SOURCES

GROUPS = {
    "clusters": (
        "any_cluster",
        "kube_scheduler",
        "steady_state",
        "limits",
        "yesterday",
        "timed",
        "waiting",
    ),
    "queues": ("rlscheduler", "learned_order", "evictions", "order_advice", "run_times", "live_orders"),
    "environments": ("toy", "gradient", "balance", "latency", "locality"),
    "live": ("earlier", "telemetry", "agents", "kube_scheduler_live"),
}
"""Studies by package, in the order of the report."""
ORDER = tuple(name for names in GROUPS.values() for name in names)

HERE = Path(__file__).parent
RESULTS, REPORT = HERE / "results", HERE.parent / "docs"
NOTES = HERE / "notes.md"
"""What experiments showed that are no studies: a page of the report."""
QUICK_RESULTS, QUICK_REPORT = BUILD / "quick" / "results", BUILD / "quick"
INTRODUCTION = """# Results

Comparisons are paired by seed. Intervals are those of means, 95 % (Student's t). No seed of an evaluation was used in
training or validation. A figure on one trace is only that. Every value is in `studies/results`; a command repeats its
study, goes on where it was interrupted, and takes so long on two idle cores.
"""
STALE = "**Measured with other options than the present ones.** "
"""Begins the last lines of a page that was not made from the present options."""
QUICK_WARNING = "\n**A quick run that shows that the studies work: its numbers mean nothing.**\n"


class Study:
    """A module of this package, imported when it is first needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = next(group for group, names in GROUPS.items() if name in names)
        self._module: ModuleType | None = None

    @property
    def module(self) -> ModuleType:
        """The module."""
        if self._module is None:
            self._module = importlib.import_module(f"studies.{self.group}.{self.name}")
        return self._module

    @property
    def title(self) -> str:
        """The first line of its docstring."""
        return (self.module.__doc__ or "").strip().splitlines()[0]

    @property
    def minutes(self) -> float:
        """What it takes on two idle cores, as far as it says."""
        return float(getattr(self.module, "MINUTES", 0))

    def options(self, quick: bool) -> dict[str, Any]:
        """Return what its result depends on, as JSON; empty if it does not say."""
        result = self.module.options(quick) if hasattr(self.module, "options") else {}
        # A portfolio's results also depend on how its member is chosen.
        is_of_portfolio = result.get("policy") == packaged_portfolio().digest
        chosen = {"choice": [choice.ROUND_DRAWS, choice.TEST_DRAWS, choice.FIRST_SEED]} if is_of_portfolio else {}
        return dict(plain({**result, **chosen}))

    def has_quick(self) -> bool:
        """Whether it can be run on small."""
        return "quick" in inspect.signature(self.module.run).parameters

    def result_file(self, quick: bool) -> Path:
        """Where its result is kept."""
        return (QUICK_RESULTS if quick else RESULTS) / self.group / f"{self.name}.json"

    def kept(self, quick: bool) -> dict[str, Any] | None:
        """Return the file of its result, or None if there is none or it was made from other options."""
        path = self.result_file(quick)
        if not path.exists():
            return None
        result = json.loads(path.read_text())
        return result if result["options"] == self.options(quick) and result["quick"] == quick else None

    def shown(self, quick: bool) -> dict[str, Any] | None:
        """Return the file of its result, even from other options; None if there is none."""
        path = self.result_file(quick)
        return json.loads(path.read_text()) if path.exists() else None

    def footer(self, quick: bool) -> str:
        """Return the last lines of its page: what repeats it, where its values are, and where its data come from."""
        stale = "" if self.kept(quick) is not None else STALE
        file = f"`studies/results/{self.group}/{self.name}.json`"
        sources = "".join(f"\n- {SOURCES[name]}" for name in getattr(self.module, "DATA", ()))
        data = f" Data:\n{sources}" if sources else " Its data are generated from seeds."
        return f"{stale}`python -m studies {self.name}` repeats it. Every value: {file}.{data}\n"

    def run(self, quick: bool) -> None:
        """Run it and keep the result."""
        began = time.monotonic()

        def say(text: str) -> None:
            print(f"{self.name} {duration(time.monotonic() - began):>7}  {text}", file=sys.stderr, flush=True)

        result = self.module.run(say, quick=True) if quick else self.module.run(say)
        made = {"study": self.name, "quick": quick, "steersman": steersman.__version__}
        write_json(self.result_file(quick), {**made, "options": self.options(quick), "result": plain(result)})
        say("done")

    def forget(self, quick: bool) -> None:
        """Remove its result and all that it has finished."""
        self.result_file(quick).unlink(missing_ok=True)
        shutil.rmtree(desk(self.name, quick, print).folder, ignore_errors=True)


def studies() -> dict[str, Study]:
    """All studies by name, in the order of the report."""
    return {name: Study(name) for name in ORDER}


def parse(arguments: Sequence[str], known: Sequence[str]) -> argparse.Namespace:
    """Return the options. Raises UsageError: a study is unknown."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies to run; none: all")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="the same")
    parser.add_argument("--fresh", action="store_true", help="forget what these studies have finished before")
    parser.add_argument("--quick", action="store_true", help="tiny versions, kept apart: to see that everything works")
    engines = [engine.value for engine in Engine]
    parser.add_argument("--engine", choices=engines, default=Engine.LOCAL, help="as of steersman evaluate")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--report", action="store_true", help="only rewrite the report")
    args = parser.parse_args(arguments)
    args.names = list(dict.fromkeys([*args.names, *args.only])) or list(known)
    for name in args.names:
        if name not in known:
            raise UsageError(f"no study {name!r}; there are {', '.join(known)}")
    return args


def write_report(every: dict[str, Study], quick: bool) -> Path:
    """Write a page for each result that exists, and a first page with what they show; return the latter."""
    report = QUICK_REPORT if quick else REPORT
    pages = report / "results"
    pages.mkdir(parents=True, exist_ok=True)
    claims, rows, missing = [], [], []
    for study in every.values():
        result = study.shown(quick)
        if result is None:
            missing.append(study.name)
            continue
        section = study.module.section(result["result"]).strip().replace("\n##", "\n#").removeprefix("#")
        (pages / f"{study.name}.md").write_text(f"{section}\n\n{study.footer(quick)}")
        title = section.splitlines()[0].removeprefix("# ")
        command, took = f"`python -m studies {study.name}`", f"{study.minutes:.0f}"
        rows.append([f"[{title}](results/{study.name}.md)", command, took])
        if hasattr(study.module, "claim"):
            claims.append([study.module.claim(result["result"]), f"[{study.name}](results/{study.name}.md)", took])
    parts = [
        INTRODUCTION + (QUICK_WARNING if quick else ""),
        "## What was shown\n",
        tables.markdown(["claim", "study", "minutes"], claims) + "\n",
        "## All studies\n",
        tables.markdown(["study", "command", "minutes"], rows) + "\n",
    ]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    if not quick:
        parts.append("[Notes from experiments](results/notes.md) says what was tried without a study.\n")
        (pages / "notes.md").write_text(NOTES.read_text())
    of_policies, of_files = (every[name].shown(quick) for name in ("any_cluster", "kube_scheduler"))
    if not quick and of_policies and of_files:
        (report / "gain.svg").write_text(picture.gain(of_policies["result"]["values"], of_files["result"]["values"]))
    index = report / "results.md"
    index.write_text("\n".join(parts))
    return index


def run_all(every: dict[str, Study], names: Sequence[str], quick: bool, fresh: bool) -> list[str]:
    """Run studies one after the other; those that failed, by name. One that fails does not stop the others.

    The report is written after each.
    """
    chosen = [every[name] for name in names]
    failed = []
    for number, study in enumerate(chosen):
        if fresh:
            study.forget(quick)
        if study.kept(quick) is not None:
            print(f"{study.name}: is there already ({study.result_file(quick)})", file=sys.stderr)
            continue
        if quick and not study.has_quick():
            print(f"{study.name}: has no quick version", file=sys.stderr)
            continue
        minutes = sum(each.minutes for each in chosen[number:] if each.kept(quick) is None)
        left = "" if quick else f", about {duration(60 * minutes)} left for all"
        print(f"{study.name}, {number + 1} of {len(chosen)}{left}: {study.title}", file=sys.stderr, flush=True)
        try:
            study.run(quick)
        except SteersmanError as error:
            print(f"error: {study.name}: {error}", file=sys.stderr)
            failed.append(study.name)
        write_report(every, quick)
    return failed


def show_list(every: Sequence[Study]) -> None:
    """Say what there is and what is done."""
    for study in every:
        state = "done" if study.kept(False) is not None else "to do"
        took = f"{study.minutes:.0f} min" if study.minutes else ""
        print(f"{study.name:15} {state:6} {took:>7}  {study.title}")


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say; the exit status."""
    # Clusters that a study started are stopped at SIGTERM, too.
    with interruptible() as signals:
        try:
            every = studies()
            asked = parse(arguments, list(every))
            if asked.list:
                show_list(list(every.values()))
                return 0
            failed = []
            if not asked.report:
                with use_engine(asked.engine):
                    failed = run_all(every, asked.names, asked.quick, asked.fresh)
            print(f"wrote {write_report(every, asked.quick)}", file=sys.stderr)
        except SteersmanError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_status
        except KeyboardInterrupt:
            print("interrupted; the same command goes on from here", file=sys.stderr)
            return signals.status()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
