"""What cannot work is said in one line, before anything is compiled, contacted or written: of every command.

The cases are made from the tree of commands: each option that reads a file gets files that no reader can like, each
that writes one a place that cannot be written to, and so on. How a command is called when all is well is a table.
"""

from __future__ import annotations

import contextlib
import enum
import io
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from numba.core import event

from steersman.agents import base  # noqa: F401  (imports count for none of these commands)
from steersman.cli import main as cli
from steersman.simulation import run  # noqa: F401

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,4,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,1,500,\n"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
"""

FILES = {"--nodes": "nodes.csv", "--pods": "pods.csv"}
LIVE = {"--kubeconfig": "kubeconfig"}
INPUTS = {*FILES, "--workload", "--cluster"}
Options = dict[str, str]
COMMANDS: dict[str, Options] = {
    "advise": {"--output": "new", **FILES},
    "aliases": {},
    "completion": {"": "bash"},
    "demo": {"--output": "new"},
    "docs": {},
    "evaluate": {"--policy": "fgd", "--output": "new", **FILES},
    "dashboard": {"--policy": "fgd", **FILES},
    "doctor": LIVE,
    "explain": {"--pod": "p1", "--policy": "fgd", **FILES},
    "probe": {"--target": "u=127.0.0.1:1"},
    "schedule": {"--policy": "fgd", **LIVE},
    "serve": {"--policy": "fgd", "--watch": "", **LIVE},
    "simulate": {"--policy": "fgd", "--output": "new", **FILES},
    "top": {"--once": "", **LIVE},
    "train": {"--output": "new", "--nodes": "nodes.csv", "--workload": "pods.csv"},
    "tune": {"--output": "new", "--nodes": "nodes.csv", "--workload": "pods.csv"},
    "wait": {"--pod": "p1", "--policy": "fgd", **FILES},
    "workbench": LIVE,
    "cluster up": {"--name": "sweep-of-commands"},
    "cluster nodes add": {"--name": "sweep-of-commands"},
    "cluster nodes remove": {"--name": "sweep-of-commands", "--count": "1"},
    "cluster kwok install": {**LIVE, "--yes": ""},
    "cluster kwok remove": {**LIVE, "--yes": ""},
    "cluster kubectl": {"--name": "sweep-of-commands"},
    "cluster status": {"--name": "sweep-of-commands"},
    "cluster clean": {"--name": "sweep-of-commands"},
    "cluster down": {"--name": "sweep-of-commands"},
    "policy list": {},
    "policy show": {"": "steersman"},
    "policy undo": {"": "folder"},
    "fit policy": {"--output": "new.safetensors", **FILES},
    "fit order": {"--output": "new.safetensors", **FILES},
    "fit scheduler": {"--output": "new.yaml", **FILES},
    "workload run": {**LIVE, "--yes": ""},
    "workload replay": {"": "pods.csv", **LIVE, "--yes": ""},
    "workload record": {"--output": "new", **LIVE},
    "workload snapshot": {"--output": "new", **LIVE},
    "workload generate": {"--output": "new"},
    "workload random": {"--output": "new"},
    "workload convert": {"--output": "new", "--to": "yaml", **FILES},
    "workload topology": {"--data-dir": "folder"},
}
"""How each command is called; "" as a name: an argument, as a value: a flag."""

WRITES = {"--output", "--csv", "--learn", "--log-file"}
WRITES_IN = {"schedule": {"--run-times"}}
"""Options that name what is written, everywhere and of one command."""

POLICIES = {"--policy", "--baseline", "--teacher", "--reference"}
UNREADABLE = ("missing", "empty", "binary", "folder")
READABLE = {("workbench", "--folder", "folder")}
"""But for what reads a folder's files only when a user opens them."""

TOGETHER: dict[str, Options] = {
    "--cluster-config": {"--scheduler-config": "empty"},
    "--scheduler-config": {"--cluster-config": "empty"},
    "--recording": {"--algorithm": "imitation"},
    "--teacher": {"--algorithm": "imitation"},
    "--output": {},
    "--shadow": {},
}
"""What an option needs beside it."""

CONTRADICTIONS: list[Options] = [
    {"--pinned": "", "--from-now": ""},
    {"--cluster": "", "--nodes": "nodes.csv", "--pods": "pods.csv"},
    {"--workload": "default-small", "--nodes": "nodes.csv", "--pods": "pods.csv"},
    {"--workload": "default-small", "--cluster": ""},
    {"--workload": "no-such-workload"},
    {"--workload": "default-small", "--pinned": ""},
    {"--kubeconfig": "kubeconfig", "--nodes": "nodes.csv", "--pods": "pods.csv"},
    {"--context": "c", "--workload": "default-small"},
    {"--kubeconfig": "kubeconfig", "--name": "sweep-of-commands"},
    {"--context": "no-such-context", "--kubeconfig": "kubeconfig"},
    {"--protocol": "timed", "--ratio": "1.2"},
    {"--protocol": "inflation", "--load": "0.9"},
    {"--protocol": "inflation", "--mean-duration": "1h"},
    {"--protocol": "timed", "--from-now": ""},
    {"--bound": "", "--protocol": "timed"},
    {"--bound": "", "--from-now": ""},
    {"--policy": "fgd", "--baseline": "best-fit"},
    {"--cluster-config": "nodes.csv"},
    {"--scheduler-config": "nodes.csv"},
    {"--shadow": "", "--learn": "new"},
    {"--shadow": "", "--port": "0"},
    {"--shadow": "", "--lease-name": "one"},
    {"--shadow": "", "--order": "shortest"},
    {"--shadow": "", "--run-times": "new"},
    {"--algorithm": "dqn", "--policy": "fgd", "--explore-anyway": ""},
    {"--no-watch": "", "--learn": "new"},
    {"--learn-from": "default-scheduler"},
    {"--seeds": "9-1"},
    {"--no-such-option": ""},
]
"""What no command takes that has all of these options."""
ALLOWED = {
    *((command, "--kubeconfig", "--name") for command in ("cluster up", "train")),
    ("serve", "--shadow", "--port"),
}
"""But for those whose --name is no cluster's, and for the service, which also answers in shadow mode."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that has no sub-commands, by its words."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
    else:
        for name, each in below.items():
            yield from leaves(each, (*path, name))


ROOT = typer.main.get_command(cli.app)
TREE = dict(leaves(ROOT))
PARAMETERS = {
    name: {("" if each.param_type_name == "argument" else each.opts[0]): each for each in command.params}
    for name, command in TREE.items()
}


def reads(command: str) -> list[str]:
    """Return the options, and "" for an argument, that name what is read."""
    written = WRITES | WRITES_IN.get(command, set())
    found = [
        name
        for name, each in PARAMETERS[command].items()
        if str(each.metavar) in {"FILE", "PATH", "FOLDER", "DIR", "FILE...", "WORKLOAD"} and name not in written
    ]
    return [*found, ""] if command == "policy show" else found


def writes(command: str) -> list[str]:
    return [name for name in PARAMETERS[command] if name in WRITES | WRITES_IN.get(command, set())]


def called(command: str, changes: Options) -> list[str]:
    """Return the arguments of a command with some options changed, and what excludes these left out."""
    options = COMMANDS[command] | changes
    if "--cluster-config" in changes:
        options = {name: value for name, value in options.items() if name not in {*FILES, "--policy"}}
    if "--cluster" in PARAMETERS[command] and "--kubeconfig" in changes and not changes.keys() & INPUTS:
        options = {name: value for name, value in options.items() if name not in INPUTS} | {"--cluster": ""}
    if "--config" in changes:
        options.pop("--policy")
    argument = [options.pop("")] if "" in options else []
    return [*command.split(), *argument, *(part for pair in options.items() for part in pair if part)]


class Place:
    """A folder to work in, and a server that must not be asked.

    Attributes:
        server: a socket that nobody answers on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setblocking(False)
        (folder / "nodes.csv").write_text(NODES)
        (folder / "pods.csv").write_text(PODS)
        (folder / "kubeconfig").write_text(KUBECONFIG % self.server.getsockname()[1])
        (folder / "empty").touch()
        (folder / "binary").write_bytes(bytes(range(256)) * 16)
        (folder / "folder").mkdir()

    def files(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in self._folder.rglob("*") if path.is_file()}

    def was_asked(self) -> bool:
        try:
            self.server.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setenv("HOME", str(folder))
        patch.setattr(typer.main, "get_command", lambda _: ROOT)  # making the tree anew takes 50 ms a call
        patch.delenv("KUBECONFIG", raising=False)
        found = Place(folder)
        with found.server:
            yield found


CPU_SECONDS, SECONDS = 5.0, 30.0


class Interrupted:
    """Ctrl-C for a command that goes to work and does not end."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # an interrupted command leaves it ignored
        self._timer = threading.Timer(SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def objections(place: Place, arguments: list[str], about: str = "") -> list[str]:
    """Return what is wrong with how a command that cannot work ends; its message is to name what it is about."""
    before, began = place.files(), time.process_time()
    out, err = io.StringIO(), io.StringIO()
    listener = event.RecordingListener()
    event.register("numba:compiler_lock", listener)
    try:
        with Interrupted(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(arguments)
    finally:
        event.unregister("numba:compiler_lock", listener)
    said = err.getvalue()
    wrong = {
        f"exit status {status}": status not in {1, 2},
        "not one line": not (said.startswith("error: ") and said.endswith("\n") and said.count("\n") == 1),
        f"not about {about}": about not in said,
        "called a bug": "this is a bug" in said or "Traceback" in said,
        "something on standard output": out.getvalue() != "",
        "something written": place.files() != before,
        "the cluster was contacted": place.was_asked(),
        "a kernel was compiled": bool(listener.buffer),
        f"{time.process_time() - began:.1f} s of CPU": time.process_time() - began > CPU_SECONDS,
    }
    return [f"{' '.join(arguments)}: {what}: {said}" for what, is_so in wrong.items() if is_so]


def all_objections(place: Place, command: str, changes: list[Options]) -> list[str]:
    return [found for each in changes for found in objections(place, called(command, each))]


def test_every_command_is_swept() -> None:
    assert COMMANDS.keys() == TREE.keys()
    for name, options in COMMANDS.items():
        assert options.keys() <= PARAMETERS[name].keys() | {""}
    assert {name for name in COMMANDS if writes(name)} >= {name for name in TREE if "--output" in PARAMETERS[name]}


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("command", [name for name in TREE if reads(name)])
def test_unreadable_files_fail_in_one_line(place: Place, command: str, what: str) -> None:
    names = [name for name in reads(command) if (command, name, what) not in READABLE]
    changes = [{name: what} | TOGETHER.get(name, {}) for name in names]
    assert not all_objections(place, command, changes)


@pytest.mark.parametrize("command", [name for name in TREE if writes(name)])
def test_unwritable_outputs_fail_in_one_line(place: Place, command: str) -> None:
    suffix = ".safetensors" if command in ("fit policy", "fit order") else ""
    places = (f"empty/below{suffix}", f"/proc/self/below{suffix}", f"{'x' * 300}{suffix}")
    changes = [{name: path} | TOGETHER.get(name, {}) for name in writes(command) for path in places]
    changes += [each | LIVE for each in changes if "--cluster" in PARAMETERS[command]]
    assert not all_objections(place, command, changes)


@pytest.mark.parametrize("command", [name for name in TREE if "--output" in writes(name) and "--nodes" in reads(name)])
def test_output_is_checked_before_input_is_read(place: Place, command: str) -> None:
    output = "empty/below.safetensors" if command in ("fit policy", "fit order") else "empty/below"
    assert not objections(place, called(command, {"--output": output, "--nodes": "missing"}), about=output)


@pytest.mark.parametrize("command", [name for name in TREE if POLICIES & PARAMETERS[name].keys()])
@pytest.mark.parametrize("policy", ["no-such-policy", "missing.safetensors", "no_such_module:Policy", "fgd=0"])
def test_unknown_policies_fail_in_one_line(place: Place, command: str, policy: str) -> None:
    changes = [{name: policy} | TOGETHER.get(name, {}) for name in POLICIES & PARAMETERS[command].keys()]
    changes += [each | LIVE for each in changes if "--cluster" in PARAMETERS[command]]
    assert not all_objections(place, command, changes)


@pytest.mark.parametrize("command", TREE)
def test_conflicting_options_fail_in_one_line(place: Place, command: str) -> None:
    known = PARAMETERS[command].keys() | {"--no-such-option"}
    changes = [each for each in CONTRADICTIONS if each.keys() <= known and (command, *each) not in ALLOWED]
    assert not all_objections(place, command, changes)


def values(parameter: Any) -> list[str]:
    """Return values that an option does not take, as far as its declaration tells."""
    kind = parameter.type_descriptor.annotation
    found = ["many"] if kind in {int, float} or isinstance(kind, enum.EnumType) else []
    if parameter.min is not None:
        found.append(f"{parameter.min - 1:g}")
    if parameter.max is not None:
        found.append(f"{parameter.max + 1:g}")
    return found


@pytest.mark.parametrize("command", TREE)
def test_invalid_option_values_fail_in_one_line(place: Place, command: str) -> None:
    options = {name: each for name, each in PARAMETERS[command].items() if name and not each.is_flag}
    changes = [{name: value} for name, each in options.items() for value in values(each)]
    assert not all_objections(place, command, changes)
