"""Options are declared once: as fields of dataclasses, from which parameters, checks and recorded commands come."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from steersman.cli.options.declaring import (
    AssumedValue,
    Excludes,
    RequiresOption,
    RequiresProtocol,
    Unit,
    check_options,
    given_options,
    option,
    to_arguments,
    with_options,
)
from steersman.core.config.fields import SHARE
from steersman.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Source:
    """Where nodes come from."""

    nodes: Path | None = option("Nodes.")
    cluster: bool = option("A live one.", Excludes("nodes"), default=False)


@dataclass(frozen=True, slots=True)
class Search:
    """A search on a source."""

    policy: list[str] = option("Policies.", default=...)
    source: Source = field(default_factory=Source)
    watch: bool = option("Watch it.", default=True)
    learn: bool | None = option("Learn.", "--learn/--frozen")
    seconds: float | None = option("Time.", RequiresOption("watch"), Unit("s"))
    share: float | None = option("Share.", "--part", SHARE)


@dataclass(frozen=True, slots=True)
class Pace:
    """A protocol, and what belongs to it."""

    protocol: str | None = option("Protocol.")
    ratio: float | None = option("Ratio.", RequiresProtocol("inflation"))
    load: float | None = option("Load.", RequiresProtocol("timed", "latency", is_stated=True))


@dataclass(frozen=True, slots=True)
class UsualPace(Pace):
    """A protocol with a default."""

    protocol: str | None = option("Protocol.", AssumedValue("inflation"))


@dataclass(frozen=True, slots=True)
class Fitting:
    """A group that belongs to one of its options."""

    RULES: ClassVar = (RequiresOption("fit"),)

    fit: Annotated[bool, option("Fit.")] = False
    draws: int | None = option("Draws.")


SEARCH = Search(["fgd"])


def test_a_command_has_the_fields_of_its_dataclasses_and_gets_these() -> None:
    got: list[Any] = []

    def command(search: Search, pace: Pace, jobs: int = 1, quiet: bool = option("Say less.", default=False)) -> None:
        got.extend((search, pace, jobs, quiet))

    made = with_options(command)
    parameters = inspect.signature(made).parameters
    names = ["policy", "nodes", "cluster", "watch", "learn", "seconds", "share", "protocol", "ratio", "load"]
    assert list(parameters) == [*names, "jobs", "quiet"]
    assert parameters["policy"].default is inspect.Parameter.empty
    assert parameters["watch"].default is True
    assert parameters["quiet"].annotation.__metadata__[0].param_decls == ("--quiet",)  # without --no-quiet
    given = {name: each.default for name, each in parameters.items()} | {"policy": ["fgd"], "nodes": Path("n.csv")}
    made(**given)
    assert got == [replace(SEARCH, source=Source(Path("n.csv"))), Pace(), 1, False]


def test_declared_options_that_are_not_given_are_not_passed() -> None:
    got: list[dict[str, Any]] = []

    def command(pace: Pace, **more: Any) -> None:
        assert pace == Pace()
        got.append(more)

    keyword = inspect.Parameter.KEYWORD_ONLY
    declared = [inspect.Parameter(name, keyword, default=None) for name in ("gamma", "ratio", "steps")]
    made = with_options(command, lambda: declared)
    assert list(inspect.signature(made).parameters) == ["protocol", "ratio", "load", "gamma", "steps"]
    made(protocol=None, ratio=None, load=None, gamma=0.9, steps=None)
    assert got == [{"gamma": 0.9}]


def test_a_wrong_combination_ends_a_command_unless_it_checks_for_itself() -> None:
    got: list[Pace] = []

    def command(pace: Pace) -> None:
        got.append(pace)

    given = {"protocol": "inflation", "ratio": None, "load": 0.9}
    with pytest.raises(UsageError, match="--load belongs to"):
        with_options(command)(**given)
    assert not got
    with_options(command, is_checked=False)(**given)
    assert got == [Pace("inflation", load=0.9)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (replace(SEARCH, seconds=3.0), "--seconds belongs to --no-watch; give that too, or leave it out"),
        (replace(SEARCH, source=Source(Path("n"), True)), "--cluster and --nodes exclude each other; leave one out"),
        (replace(SEARCH, share=1.5), "--part 1.5: must be a number from 0 to 1"),
        (Pace(load=0.9), "--load belongs to --protocol timed or latency; give that too, or leave it out"),
        (Pace("timed", ratio=2.0), "--ratio belongs to --protocol inflation, not to timed"),
        (UsualPace(load=0.9), "--load belongs to --protocol timed or latency, not to inflation"),
    ],
)
def test_what_an_option_belongs_to_is_checked(options: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_options(options)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "options",
    [
        replace(SEARCH, watch=False, seconds=3.0),
        Pace(ratio=2.0),  # the data may choose inflation
        UsualPace(ratio=2.0),
        Pace("latency", load=0.9),
        Source(cluster=True),
    ],
)
def test_what_goes_together_is_taken(options: Any) -> None:
    check_options(options)


def test_rules_of_a_group_are_checked_for_each_of_its_options() -> None:
    check_options(Fitting())
    check_options(Fitting(fit=True))
    check_options(Fitting(fit=True, draws=2))
    with pytest.raises(UsageError, match="--draws belongs to --fit; give that too, or leave it out"):
        check_options(Fitting(draws=2))


def test_owners_that_a_command_lacks_do_not_count() -> None:
    @dataclass(frozen=True, slots=True)
    class Elsewhere:
        seconds: float = option(
            "Time.", RequiresOption("fit"), RequiresProtocol("timed"), Excludes("nodes"), default=1.0
        )

    check_options(Elsewhere(2.0))


def test_a_report_records_what_differs_from_the_defaults_without_secrets_and_folders() -> None:
    asked = ["fgd", "http://me:secret@host/score?token=secret"]
    search = Search(asked, Source(Path("/home/me/nodes.csv"), True), False, False, 90.0, 0.25)
    hidden = "http://***@host/score?token=***"
    assert to_arguments(search, Pace("timed")) == [
        *("--policy", "fgd", "--policy", hidden, "--nodes", "nodes.csv", "--cluster", "--no-watch", "--frozen"),
        *("--seconds", "90s", "--part", "0.25", "--protocol", "timed"),
    ]
    assert to_arguments(SEARCH, Pace()) == ["--policy", "fgd"]
    relative = Search(["fgd"], Source(Path("dumps/nodes.csv"), False), True, True, 1.0, 0.5)
    assert "dumps/nodes.csv" in to_arguments(relative)
    assert given_options(Pace("timed", load=0.5)) == {"protocol": "timed", "load": 0.5}
