"""What steersman knows of a cluster that it brought up: one JSON file for each, which appears whole or not at all."""

from __future__ import annotations

import enum
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steersman.errors import InputError, SteersmanError, UsageError
from steersman.localcluster.folders import clusters_root, locked
from steersman.workloads.files import replacing

DEFAULT_NAME = "steersman"
RECORD = "cluster.json"


class Way(enum.StrEnum):
    """How a cluster came up."""

    BINARIES = "binaries"
    """Servers of this machine, built from Go modules."""
    CONTAINERS = "containers"
    """Servers in containers, by kwokctl."""
    KUBECONFIG = "kubeconfig"
    """It was there already; what is in it is somebody's."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster that was brought up.

    Attributes:
        name: what steersman calls it.
        way: how it came up.
        kubeconfig: the file that leads to it, absolute.
        context: the context in that file.
        ready: whether it came up wholly; false while it does, and for ever if that was killed.
        engine: which container engine runs it, "" for the other ways.
    """

    name: str
    way: Way
    kubeconfig: str
    context: str
    ready: bool = False
    engine: str = ""


def check_name(name: str) -> str:
    """The name of a cluster. Raises UsageError: it cannot be one."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise UsageError(f"--name {name}: a-z, 0-9 and - inside, at most 32, make a name")
    return name


def command(action: str, name: str) -> str:
    """What a user types to do something to this cluster, and to no other, for messages."""
    return f"'steersman cluster {action}" + ("'" if name == DEFAULT_NAME else f" --name {name}'")


def folder_of(name: str) -> Path:
    """The folder of a cluster, which holds its record, its kubeconfig and its servers' data."""
    return clusters_root() / name


def find(name: str) -> Record | None:
    """The record of a cluster, None if there is no such cluster. Raises InputError: its file is damaged."""
    path = folder_of(name) / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        problem = f"is damaged ({error}); {command('down', name)} removes the cluster"
        raise InputError(path, "", "", problem) from None


def require(name: str) -> Record:
    """The record of a cluster. Raises SteersmanError: there is no such cluster, or it did not come up."""
    record = find(name)
    if record is None:
        others = ", ".join(names())
        known = f"; there are {others} (--name)" if others else ""
        raise SteersmanError(f"no cluster {name!r}: {command('up', name)} starts one{known}")
    if not record.ready:
        raise SteersmanError(f"cluster {name!r} did not come up; {command('down', name)} removes what there is of it")
    return record


def names() -> list[str]:
    """The names of all clusters."""
    return sorted(path.parent.name for path in clusters_root().glob(f"*/{RECORD}"))


def write(record: Record) -> None:
    """Write a record. Raises InputError: it cannot be written."""
    with replacing(folder_of(record.name) / RECORD) as part:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def forget(name: str) -> None:
    """Remove the folder of a cluster, its record last, so that a removal that is cut short can be done again."""
    folder = folder_of(name)
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != RECORD:
            path.unlink()
    (folder / RECORD).unlink(missing_ok=True)
    folder.rmdir()


@contextmanager
def exclusively(name: str) -> Iterator[None]:
    """Be the only command that starts or stops this cluster. Raises SteersmanError: another one does."""

    def refuse() -> None:
        raise SteersmanError(f"another steersman is starting or stopping cluster {name!r}")

    with locked(clusters_root() / f".{name}.lock", refuse):
        yield
