"""An interrupted evaluation that continues: the bytes of one that was not interrupted, and no runs of others."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.errors import raises
from tests.unit.evaluation.test_generated import FILLING, SMALL

from steersman.cli.comparison import Resumable, RunKeeper
from steersman.core.errors import InputError, UsageError
from steersman.core.stored_command import StoredCommand
from steersman.evaluation import finished_runs, results
from steersman.evaluation.criteria import parse_objectives
from steersman.evaluation.evaluation import Evaluation, evaluate_experiments
from steersman.evaluation.experiment import Experiment, Finished, InterruptionError, generated_experiment
from steersman.evaluation.finished_runs import describe, read_finished, write_finished
from steersman.evaluation.results import EVALUATION_FILES, FINISHED
from steersman.policies.registry import policy_path
from steersman.simulation.result import Protocol
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

ALL = embedded("default-small")
WORKLOAD = Workload("w", ALL.nodes[:6], ALL.pods[:40])
INFLATION = Experiment((WORKLOAD,), ("fgd", "random"), (1, 2), objectives=parse_objectives(["balance"]))
TIMED = replace(INFLATION, protocol="timed", mean_duration=600.0)
PAIR = ("kube-default", "least-allocated")
KINDS = {
    "inflation-and-timed": [INFLATION, TIMED],
    "arrivals": [replace(INFLATION, protocol="arrivals")],
    "deployments": [generated_experiment(FILLING, PAIR, (1, 2))],
    "latency": [generated_experiment(SMALL, ("kube-default", "la"), (1, 2))],
}


BEGUN = StoredCommand("evaluate", (), Path())


def evaluated(experiments: list[Experiment], **more: object) -> Evaluation:
    return evaluate_experiments(experiments, baseline=experiments[0].policies[0], **more)  # type: ignore[arg-type]


def interrupted(experiments: list[Experiment], after: int, **more: object) -> InterruptionError:
    """The error of an evaluation that gets Ctrl-C when so many runs are done, of all experiments."""
    ended = 0

    @contextmanager
    def progress(_: Protocol) -> Iterator[Callable[[int, int], None]]:
        def on_run(_done: int, _total: int) -> None:
            nonlocal ended
            ended += 1
            if ended == after:
                raise KeyboardInterrupt

        yield on_run

    with pytest.raises(InterruptionError) as caught:
        evaluated(experiments, progress=progress, **more)
    return caught.value


def files_of(evaluation: Evaluation, folder: Path) -> dict[str, bytes]:
    evaluation.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_finished_runs_are_written_once_a_minute(tmp_path: Path) -> None:
    """A process that is killed leaves what was finished at the last minute, of all experiments."""
    experiments, now = KINDS["inflation-and-timed"], 0.0
    description = describe(experiments)
    keeper, written = RunKeeper(tmp_path, Resumable(description, BEGUN), lambda: now), []

    def keep(finished: Finished) -> None:
        nonlocal now
        now += 25.0
        keeper(finished)
        written.append(len(read_finished(tmp_path, description)) if (tmp_path / FINISHED).exists() else 0)

    evaluation = evaluated(experiments, keep=keep)
    # At 75 s and at 150 s; each experiment has four runs.
    assert written == [0, 0, 3, 3, 3, 6, 6, 6]
    kept = read_finished(tmp_path, description)
    assert [kept[i].metrics for i in range(6)] == [run.metrics for run in evaluation.runs[:6]]


def test_runs_go_on_where_the_finished_ones_cannot_be_written(tmp_path: Path) -> None:
    experiments, now = KINDS["arrivals"], 0.0
    (tmp_path / "out").write_text("a file, not a folder")
    keeper = RunKeeper(tmp_path / "out", Resumable(describe(experiments), BEGUN), lambda: now)
    now = 100.0
    assert len(evaluated(experiments, keep=keeper).runs) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [1, 3])
def test_continued_evaluation_gives_the_same_bytes(tmp_path: Path, kind: str, after: int) -> None:
    experiments = KINDS[kind]
    description = describe(experiments)
    error = interrupted(experiments, after)
    assert list(error.finished) == list(range(after))
    write_finished(tmp_path, description, error.finished)
    finished = read_finished(tmp_path, description)
    # Again, from the runs of both.
    again = interrupted(experiments, 1, finished=finished)
    assert list(again.finished) == list(range(after + 1))
    write_finished(tmp_path, description, again.finished)
    continued = evaluated(experiments, finished=read_finished(tmp_path, description))
    assert files_of(continued, tmp_path / "a") == files_of(evaluated(experiments), tmp_path / "b")


def test_runs_of_later_protocols_are_kept_when_an_earlier_one_is_interrupted() -> None:
    whole = evaluated(KINDS["inflation-and-timed"]).runs
    finished = {position: whole[position] for position in (0, 5, 7)}
    error = interrupted(KINDS["inflation-and-timed"], 1, finished=finished)
    assert sorted(error.finished) == [0, 1, 5, 7]
    assert error.total == 8


def test_complete_runs_are_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = dict(enumerate(evaluated([INFLATION]).runs))
    monkeypatch.setattr("steersman.evaluation.experiment.Simulator", None)
    assert evaluated([INFLATION], finished=finished).runs == list(finished.values())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(INFLATION, seeds=(1, 3)), ("seeds", "1-2", "1, 3")),
        (replace(INFLATION, policies=("fgd", "best-fit")), ("policies", "random", "best-fit")),
        (replace(INFLATION, ratio=1.2), ("ratio", "1.3", "1.2")),
        (replace(INFLATION, objectives=parse_objectives(["balance=2"])), ("objectives", "balance=2")),
        (replace(INFLATION, objectives=()), ("objectives", "balance")),
        (TIMED, ("protocols", "inflation", "timed")),
        (replace(INFLATION, workloads=(replace(WORKLOAD, name="v"),)), ("workloads", "w", "v")),
        (replace(INFLATION, workloads=(replace(WORKLOAD, pods=ALL.pods[:39]),)), ("nodes and pods of w",)),
        (replace(INFLATION, seeds=tuple(range(100))), ("seeds", "0-99")),
    ],
)
def test_runs_of_another_experiment_are_refused(tmp_path: Path, other: Experiment, named: tuple[str, ...]) -> None:
    write_finished(tmp_path, describe([INFLATION]), {})
    with raises(UsageError, "--resume", tmp_path / FINISHED, *named):
        read_finished(tmp_path, describe([other]))


def test_runs_of_another_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_finished(tmp_path, describe([INFLATION]), {})
    monkeypatch.setattr(finished_runs, "__version__", "9.9.9")
    with raises(UsageError, "version of steersman", "9.9.9"):
        read_finished(tmp_path, describe([INFLATION]))


def test_policies_with_equal_names_and_other_content_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "p.safetensors"
    with policy_path("steersman") as packaged:
        file.write_bytes(packaged.read_bytes())
    experiment = replace(INFLATION, policies=("fgd", str(file), "http://user:secret@host:1/score"))
    before = describe([experiment])
    assert "secret" not in str(before)
    file.write_bytes(file.read_bytes() + b" ")
    after = describe([experiment])
    assert [what for what in before if before[what] != after[what]] == [f"content of {file.name}"]
    other = describe([replace(experiment, policies=("fgd", str(file), "http://user:other@host:1/score"))])
    assert [what for what in other if other[what] != after[what]] == ["URL of policy http://***@host:1/score"]


def test_all_files_that_a_policy_names_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("a.safetensors", "b.safetensors", "c+d.safetensors", "run@2/e.safetensors")
    Path("run@2").mkdir()
    for name in names:
        Path(name).write_text(name)
    orders = ("fgd+b.safetensors@history", "run@2/e.safetensors+shortest")
    policies = ("a.safetensors", orders[0], "c+d.safetensors", "fgd=0.5,best-fit=0.5", orders[1])
    assert [what for what in describe([replace(INFLATION, policies=policies)]) if what.startswith("content")] == [
        f"content of {Path(name).name}" for name in names
    ]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with raises(UsageError, "--resume", tmp_path / FINISHED):
        read_finished(tmp_path, describe([INFLATION]))


@pytest.mark.parametrize("damage", ["cut", "no gzip", "another start", "no runs"])
def test_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    description = describe([INFLATION])
    write_finished(tmp_path, description, {0: evaluated([INFLATION]).runs[0]})
    file = tmp_path / FINISHED
    content = file.read_bytes()
    text = gzip.decompress(content)
    damaged = {
        "cut": content[:-20],
        "no gzip": b"seed,policy\n",
        "another start": gzip.compress(b"another " + text),
        "no runs": gzip.compress(text[:-5]),
    }
    file.write_bytes(damaged[damage])
    with raises(InputError, FINISHED):
        read_finished(tmp_path, description)


def test_file_of_finished_runs_is_a_result(tmp_path: Path) -> None:
    write_finished(tmp_path, describe([INFLATION]), {})
    results.check_output(tmp_path, EVALUATION_FILES)
    files = files_of(evaluated([INFLATION]), tmp_path)
    assert FINISHED not in files
    (tmp_path / FINISHED).write_bytes(b"mine")
    with raises(UsageError, FINISHED):
        results.check_output(tmp_path, EVALUATION_FILES)


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ("/tmp/x/fitted.safetensors", "fitted.safetensors"),
        ("fgd+runs@2/order.safetensors@history", "fgd+order.safetensors@history"),
        ("/tmp/x/cluster-scheduler.yaml:default@1.36", "cluster-scheduler.yaml:default@1.36"),
        ("fgd=0.5,best-fit=0.5", "fgd=0.5, best-fit=0.5"),
        ("http://user:secret@host/score", "http://***@host/score"),
    ],
)
def test_policies_are_described_without_folders_and_secrets(policy: str, shown: str) -> None:
    said = describe([replace(INFLATION, policies=(policy,))])["policies"]
    assert said == f"[{shown}]"


def test_a_policy_file_is_known_by_its_content_wherever_it_is(tmp_path: Path) -> None:
    """Two working directories, and two files of one name of which the first changes."""
    for folder, ratio in (("a", 1), ("b", 2), ("c", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text(f"weight: {ratio}")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.yaml").write_text("weight: 1")

    def described(*folders: str) -> dict[str, str]:
        return describe([replace(INFLATION, policies=tuple(f"{tmp_path / each}/mine.yaml" for each in folders))])

    assert described("a") == described("d")
    assert described("a") != described("b")
    assert described("a", "b") != described("c", "b")
