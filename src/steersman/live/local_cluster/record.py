"""Record of a cluster that steersman brought up: a JSON file, written atomically."""

from __future__ import annotations

import enum
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError, SteersmanError, UsageError

DEFAULT_NAME = "steersman"
RECORD = "cluster.json"


def state_root() -> Path:
    """Return the user's state folder: `$STEERSMAN_STATE_DIR`, else below `$XDG_STATE_HOME` or `~/.local/state`."""
    own = os.environ.get("STEERSMAN_STATE_DIR")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "steersman"


def clusters_root() -> Path:
    """Return the folder that has a folder for each local cluster."""
    return state_root() / "clusters"


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file, which the system releases when this process ends, however it ends.

    `waiting` is called once before waiting for another holder, and may raise.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SteersmanError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        try:
            # Without waiting first, so that `waiting` is called only if there is somebody to wait for.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class ClusterBackend(enum.StrEnum):
    """How a cluster was started."""

    BINARIES = "binaries"  # servers of this machine, built from Go modules
    CONTAINERS = "containers"  # servers in containers, by kwokctl
    KUBECONFIG = "kubeconfig"  # an existing cluster of somebody else


class ClusterRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A local cluster."""

    name: str
    way: ClusterBackend  # how it was started
    kubeconfig: str  # absolute path of its kubeconfig
    context: str  # context in that file
    ready: bool = False  # whether it started completely; false while it starts, and forever if that was killed
    engine: str = ""  # container engine that runs it, "" for other backends
    # Version of its API server when it was brought up, such as `v1.37.2`; "" where it is not known
    kubernetes: str = ""

    @property
    def minor(self) -> str | None:
        """The minor of Kubernetes, such as `1.37`; None where it is not known."""
        return ".".join(self.kubernetes.removeprefix("v").split(".")[:2]) or None


def check_name(name: str) -> str:
    """Return the name of a cluster. Raises UsageError: it is not a valid one."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise UsageError(f"--name {name}: a-z, 0-9 and - inside, at most 32, make a name")
    return name


def command(action: str, name: str) -> str:
    """Return the command that a user types to act on this cluster and no other, for messages."""
    return f"'steersman cluster {action}" + ("'" if name == DEFAULT_NAME else f" --name {name}'")


def folder_of(name: str) -> Path:
    """Return the folder of a cluster, with its record, its kubeconfig and its servers' data."""
    return clusters_root() / name


def find(name: str) -> ClusterRecord | None:
    """Return the record of a cluster, None if there is no such cluster. Raises InputError: its file is damaged."""
    path = folder_of(name) / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        problem = f"is damaged ({error}); {command('down', name)} removes the cluster"
        raise InputError(path, "", "", problem) from None


def require(name: str) -> ClusterRecord:
    """Return the record of a cluster. Raises SteersmanError: it does not exist, or did not start completely."""
    record = find(name)
    if record is None:
        others = ", ".join(names())
        known = f"; there are {others} (--name)" if others else ""
        raise SteersmanError(f"no cluster {name!r}: {command('up', name)} starts one{known}")
    if not record.ready:
        raise SteersmanError(f"cluster {name!r} did not come up; {command('down', name)} removes what there is of it")
    return record


def names() -> list[str]:
    return sorted(path.parent.name for path in clusters_root().glob(f"*/{RECORD}"))


def write(record: ClusterRecord) -> None:
    """Write a record. Raises InputError: it cannot be written."""
    with replacing(folder_of(record.name) / RECORD) as part:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def forget(name: str) -> None:
    """Remove the folder of a cluster, its record last, so that an interrupted removal can be repeated."""
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
    """Lock a cluster for starting or stopping it. Raises SteersmanError: another command holds the lock."""

    def refuse() -> None:
        raise SteersmanError(f"another steersman is starting or stopping cluster {name!r}")

    with locked(clusters_root() / f".{name}.lock", refuse):
        yield
