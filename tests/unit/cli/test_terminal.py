"""What shells source: aliases, and completion of commands, options and values."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.support.kubeconfig import UNREACHABLE

from steersman.cli import completing
from steersman.cli import main as cli
from steersman.cli.commands.terminal import ALIASES, Shell
from steersman.objectives.registry import OBJECTIVES
from steersman.orders import order
from steersman.policies.features import TELEMETRY, VIEWS
from steersman.policies.registry import BUILT_IN, TELEMETRY_POLICIES
from steersman.workloads.formats.openb import known_names

TREE = typer.main.get_command(cli.app)
Capture = pytest.CaptureFixture[str]
every_shell = pytest.mark.parametrize("shell", Shell)


def printed(capsys: Capture, *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


def check_syntax(shell: Shell, script: str) -> None:
    if shutil.which(shell.value) is None:
        pytest.skip(f"{shell.value} is not installed")
    done = subprocess.run([shell.value, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_shell
def test_every_alias_is_a_command_line_of_ours(shell: Shell, capsys: Capture) -> None:
    names = []
    for line in printed(capsys, "aliases", "--shell", shell.value).splitlines():
        keyword, name, *command = shlex.split(line.replace("=", " ", 1) if shell is not Shell.FISH else line)
        assert (keyword, len(command)) == ("alias", 1)
        names.append(name)
        program, *words = command[0].split()
        assert program == "steersman"
        found = TREE
        while words and words[0] in getattr(found, "commands", {}):
            found = found.commands[words.pop(0)]
        assert not hasattr(found, "commands"), f"{name} lacks a sub-command"
        given = found.make_context(name, words).params
        for option, known in (("algorithm", completing.algorithms()), ("network", completing.networks())):
            assert given.get(option) in (None, *known)
    assert names == list(ALIASES)


@every_shell
@pytest.mark.parametrize("command", ["aliases --shell", "completion"])
def test_scripts_have_the_syntax_of_their_shell(shell: Shell, command: str, capsys: Capture) -> None:
    script = printed(capsys, *command.split(), shell.value)
    assert script.strip()
    check_syntax(shell, script)


@pytest.mark.parametrize(
    ("path", "shell"), [("/usr/bin/fish", "fish"), ("/bin/zsh", "zsh"), ("/bin/bash", "bash"), ("/bin/dash", "bash")]
)
def test_the_default_is_the_shell_of_the_user(path: str, shell: str, capsys: Capture, monkeypatch) -> None:
    monkeypatch.setenv("SHELL", path)
    for command in (("aliases", "--shell", shell), ("completion", shell)):
        assert printed(capsys, command[0]) == printed(capsys, *command)


def test_an_alias_takes_further_options(tmp_path: Path, capsys: Capture) -> None:
    program = tmp_path / "steersman"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    lines = [
        "shopt -s expand_aliases",
        printed(capsys, "aliases", "--shell", "bash"),
        "rungnn --hidden 9 --learn other",
    ]
    done = subprocess.run(
        ["bash", "--norc"], input="\n".join(lines), env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "schedule --learn runs/gnn --algorithm dqn --network gnn --hidden 9 --learn other\n"


def complete(capsys: Capture, monkeypatch: pytest.MonkeyPatch, line: str, shell: str = "bash") -> list[str]:
    """Return what a shell offers at the end of a line."""
    words = line.split(" ")
    with monkeypatch.context() as patch:
        patch.setenv("_STEERSMAN_COMPLETE", f"complete_{shell}")
        patch.setenv("COMP_WORDS", line)
        patch.setenv("COMP_CWORD", str(len(words) - 1))
        patch.setenv("_TYPER_COMPLETE_ARGS", line)
        patch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        assert cli.main([]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.split()


def test_completed_names_match_the_registries() -> None:
    assert set(completing.POLICIES) == set(BUILT_IN)
    assert set(completing.TELEMETRY_POLICIES) == set(TELEMETRY_POLICIES)
    assert set(completing.OBJECTIVE_NAMES) == set(OBJECTIVES)
    assert set(filter(str.islower, completing.ORDERS)) == set(order.BUILT_IN)
    assert set(completing.VIEW_NAMES) == set(VIEWS) - {TELEMETRY.name}


NAMES = {
    *("--policy", "--baseline", "--teacher", "--reference", "--workload", "--validation", "--test", "--objective"),
    *("--algorithm", "--network", "--context", "--view", "--device", "--to"),
}
"""Options whose values are names that a shell can know."""
METAVARS = {"POLICY", "RULE", "WORKLOAD", "OBJECTIVE", "FORMAT", "VIEW", "DEVICE"}


def parameters(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, (*path, name))
    for parameter in () if hasattr(command, "commands") else command.params:
        yield command, path, parameter


def test_every_option_that_takes_a_name_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    named = [each for each in parameters(TREE) if NAMES & set(each[2].opts) or each[2].metavar in METAVARS]
    assert not NAMES.difference(option for _, _, parameter in named for option in parameter.opts)
    for command, path, parameter in named:
        context = command.make_context(" ".join(path), [], resilient_parsing=True)
        assert parameter.shell_complete(context, ""), (path, parameter.opts)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("steersman cl", ["cluster"]),
        ("steersman cluster st", ["status"]),
        ("steersman train --vali", ["--validation", "--validation-episodes", "--validate-every"]),
        ("steersman train --protocol infl", ["inflation"]),
        ("steersman simulate --policy gpu-", ["gpu-clustering", "gpu-packing"]),
        ("steersman evaluate --policy fgd best-fit kube", ["kube-default"]),
        ("steersman evaluate --workload gpushare40 default-", ["default-small"]),
        ("steersman train --workload default-", ["default-small"]),
        ("steersman train --objective wai", ["waiting-time"]),
        ("steersman evaluate --objective balance,most", ["balance,most-allocated"]),
        ("steersman train --algorithm act", ["actor-critic"]),
        ("steersman schedule --network gn", ["gnn"]),
        ("steersman policy show greedy", ["greedy-forecast"]),
        ("steersman dashboard --policy kube", ["kube-default"]),
        ("steersman dashboard --workload default-", ["default-small"]),
        ("steersman workload convert --to y", ["yaml"]),
        ("steersman workload record --objective wai", ["waiting-time"]),
        ("steersman train --view g", ["gpu"]),
        ("steersman completion f", ["fish"]),
    ],
)
@every_shell
def test_values_are_completed(line: str, offered: list[str], shell: Shell, capsys: Capture, monkeypatch) -> None:
    found = complete(capsys, monkeypatch, line, shell.value)
    for value in offered:
        assert any(value in each.strip("\"'():") for each in found), found
    if shell is Shell.BASH and "--" not in offered[0]:
        assert found == offered


def test_all_workloads_and_policies_are_offered(capsys: Capture, monkeypatch) -> None:
    assert complete(capsys, monkeypatch, "steersman simulate --workload ") == list(known_names())
    assert {*BUILT_IN, *TELEMETRY_POLICIES} <= set(complete(capsys, monkeypatch, "steersman explain --policy "))


def test_options_that_help_leaves_out_are_offered(capsys: Capture, monkeypatch) -> None:
    assert cli.main(["schedule", "--help"]) == 0
    assert "--in-flight" not in capsys.readouterr().out
    assert complete(capsys, monkeypatch, "steersman schedule --in-f") == ["--in-flight"]


def test_policy_files_are_offered_with_their_folders(tmp_path: Path, capsys: Capture, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a/policy", "runs/b/policy", "runs/b/checkpoint", "best", ".hidden", "a/b/c/d/e/deep"):
        file = tmp_path / f"{name}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "runs" / "a" / "log.txt").touch()
    both = ["runs/a/policy.safetensors", "runs/b/policy.safetensors"]
    assert complete(capsys, monkeypatch, "steersman simulate --policy run") == both
    assert complete(capsys, monkeypatch, "steersman simulate --policy runs/") == both
    assert complete(capsys, monkeypatch, "steersman simulate --policy runs/b/p") == both[1:]
    assert complete(capsys, monkeypatch, "steersman policy show best.") == ["best.safetensors"]
    assert complete(capsys, monkeypatch, f"steersman policy show {tmp_path}/runs/a") == [f"{tmp_path}/{both[0]}"]
    assert "best.safetensors" in complete(capsys, monkeypatch, "steersman policy show ")
    assert complete(capsys, monkeypatch, "steersman policy show no/such/folder/") == []


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path, capsys: Capture, monkeypatch) -> None:
    files = [tmp_path / name for name in ("first", "second", "broken", "missing")]
    files[0].write_text(UNREACHABLE)
    files[1].write_text(UNREACHABLE.replace("mine", "yours"))
    files[2].write_text("][")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert complete(capsys, monkeypatch, "steersman top --context ") == ["mine", "yours"]
    assert complete(capsys, monkeypatch, f"steersman top --kubeconfig {files[1]} --context ") == ["yours"]
    assert complete(capsys, monkeypatch, f"steersman top --kubeconfig {files[3]} --context ") == []


def test_registered_extensions_are_completed(tmp_path: Path) -> None:
    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[steersman.policies]\nmy-policy = mine:P\n\n[steersman.objectives]\nmy-objective = mine:O\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    for option, name in (("policy", "my-policy"), ("objective", "my-objective")):
        asked = {"COMP_WORDS": f"steersman evaluate --{option} my", "COMP_CWORD": "3", "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-m", "steersman"], env=os.environ | asked | {"_STEERSMAN_COMPLETE": "complete_bash"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (f"{name}\n", "")


def test_bash_completes_by_the_script(tmp_path: Path, capsys: Capture) -> None:
    """The script, sourced in a real shell, asks the program that it completes."""
    script = printed(capsys, "completion", "bash")
    program = tmp_path / "steersman"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m steersman "$@"\n')
    program.chmod(0o755)
    lines = [
        script,
        "COMP_WORDS=(steersman simulate --policy best) COMP_CWORD=3",
        "_steersman_completion steersman",
        'echo "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "--norc"], input="\n".join(lines), env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("best-fit\n", "")


@pytest.mark.parametrize(
    "command",
    [
        "",
        "evaluate --policy fgd ",
        "evaluate --workload ",
        "top --context ",
        "train --objective ",
        "train --algorithm ",
        "workload convert --to ",
        "workload record --view ",
    ],
)
def test_completion_imports_nothing_heavy(command: str) -> None:
    line = f"steersman {command}"
    program = (
        "import sys; from steersman.cli.main import main; status = main([])\n"
        "heavy = [name for name in ('numpy', 'numba', 'torch', 'gymnasium', 'aiohttp') if name in sys.modules]\n"
        "print('heavy:', heavy, status)"
    )
    asked = {"_STEERSMAN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "heavy: [] 0"
