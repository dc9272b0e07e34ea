"""`--log-file`: what a command says is in a file, too, of bounded size; a file that is unusable is said at once."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from tests.support.errors import raises

from steersman.cli.main import main
from steersman.cli.output import logs
from steersman.cli.output.display import mirror_lines, say
from steersman.cli.output.logs import LogFormat, LogLevel, LogOptions, check_log_file, configure_logs, log_messages
from steersman.core.errors import UsageError


@pytest.fixture(autouse=True)
def _no_mirrors():
    yield
    mirror_lines(None)


def lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_log_is_also_written_to_the_file(tmp_path: Path, capsys):
    file = tmp_path / "new" / "schedule.log"
    configure_logs(LogFormat.AUTO, LogLevel.INFO, file)
    log = structlog.get_logger("x")
    log.debug("not logged")
    log.info("pod\nbound", pod="a/b", number=1)
    try:
        raise ValueError("bäd")
    except ValueError:
        log.exception("failed")
    said = capsys.readouterr().err.splitlines()
    assert [json.loads(line) for line in said] == lines(file)
    first, second = lines(file)
    assert (first["event"], first["pod"], first["level"]) == ("pod\nbound", "a/b", "info")
    assert "ValueError: bäd" in second["exception"]
    configure_logs(LogFormat.AUTO, LogLevel.INFO, file)
    structlog.get_logger("x").info("continued")
    assert [each["event"] for each in lines(file)] == ["pod\nbound", "failed", "continued"]


def test_the_format_is_the_chosen_one(tmp_path: Path):
    file = tmp_path / "a.log"
    configure_logs(LogFormat.TEXT, LogLevel.INFO, file)
    structlog.get_logger("x").warning("hello", pod="p")
    assert "[warning  ] hello" in file.read_text()
    assert "\x1b" not in file.read_text()


def test_the_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "LOG_FILE_BYTES", 1000)
    monkeypatch.setattr(logs, "LOG_FILES_KEPT", 2)
    file = tmp_path / "a.log"
    configure_logs(LogFormat.JSON, LogLevel.INFO, file)
    for i in range(100):
        structlog.get_logger("x").info("event", number=i)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(each.stat().st_size <= 1000 for each in tmp_path.iterdir())
    assert lines(file)[-1]["number"] == 99
    numbers = [each["number"] for name in ("a.log.2", "a.log.1", "a.log") for each in lines(tmp_path / name)]
    assert numbers == list(range(numbers[0], 100)), "no line is lost between files"


def test_messages_are_events(tmp_path: Path, capsys):
    file = tmp_path / "run.log"
    log_messages(file)
    for message in ("wrote x", "warning: two\nlines", "error: no", "training: 3 of 5"):
        say(message)
    assert [(each["level"], each["event"]) for each in lines(file)] == [
        ("info", "wrote x"),
        ("warning", "two\nlines"),
        ("error", "no"),
        ("info", "training: 3 of 5"),
    ]
    assert capsys.readouterr().err.startswith("wrote x\n")


def test_background_processes_have_files_of_their_own(tmp_path: Path):
    options = LogOptions(LogFormat.AUTO, LogLevel.INFO, tmp_path / "steersman.log")
    assert options.of_process("fit").log_file == tmp_path / "steersman.fit.log"
    assert LogOptions(LogFormat.AUTO, LogLevel.INFO).of_process("fit").log_file is None


def test_full_disk_is_reported_once_and_ends_nothing(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    configure_logs(LogFormat.JSON, LogLevel.INFO, tmp_path / "a.log")
    monkeypatch.setattr(logs._Handler, "shouldRollover", fail)
    for _ in range(3):
        structlog.get_logger("x").info("event")
    said = capsys.readouterr().err.splitlines()
    assert sum("cannot be written" in line for line in said) == 1
    assert sum('"event": "event"' in line for line in said) == 3


@pytest.mark.parametrize("place", ["folder", "file/x.log", "/proc/x.log", "/dev/null", "/dev/full"])
def test_log_path_that_is_no_file_is_rejected_at_the_start(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    with raises(UsageError, "--log-file", place):
        check_log_file(Path(place))
    assert sorted(os.listdir()) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_foreign_log_file_is_rejected(tmp_path: Path):
    file = tmp_path / "a.log"
    file.touch(mode=0o400)
    with pytest.raises(UsageError):
        check_log_file(file)


def test_a_command_writes_its_messages_and_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,4,T4\n")
    Path("pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,1,500,\np2,1000,1000,8,1000,\n"
    )
    options = ["--nodes", "nodes.csv", "--pods", "pods.csv", "--policy", "fgd", "--seeds", "1", "--jobs", "1"]
    options += ["--protocol", "arrivals"]
    assert main(["evaluate", *options, "--output", "out", "--log-file", "evaluate.log"]) == 0
    events = lines(Path("evaluate.log"))
    assert [each["level"] for each in events if "compiling" not in each["event"]] == ["warning", "info"]
    assert "fit on no node" in events[-2]["event"]
    assert events[-1]["event"].startswith("wrote report.html")
    Path("pods.csv").write_text("nonsense\n")
    assert main(["evaluate", *options, "--output", "out", "--log-file", "evaluate.log"]) == 1
    assert lines(Path("evaluate.log"))[-1]["level"] == "error"
    capsys.readouterr()
    Path("log").mkdir()
    assert main(["evaluate", *options, "--output", "other", "--log-file", "log"]) == 2
    assert capsys.readouterr().err.startswith("error: --log-file log: is a folder")


def test_a_service_logs_to_its_file(tmp_path: Path):
    file = tmp_path / "serve.log"
    options = ["--no-watch", "--policy", "best-fit", "--port", "0", "--log-file", str(file)]
    command = [sys.executable, "-m", "steersman", "serve", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening" in line:
                break
        process.terminate()
    assert lines(file)[0]["event"] == "listening"
