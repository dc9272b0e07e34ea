"""Where a study keeps its trials: a database in its folder, or a storage that several commands share.

journal:///studies/gpu.log          a file that all machines see; a relative path, an absolute one has four slashes
sqlite:///gpu.db, postgresql://...  a database of SQLAlchemy; SQLite's on one machine only
grpc://host:13000                   Optuna's proxy in front of one of them (`optuna.storages.run_grpc_proxy_server`)
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from steersman.core.errors import InputError, UsageError
from steersman.core.redaction import redact_url

if TYPE_CHECKING:
    import optuna

STUDY, STORE = "steersman", "study.db"
STARTUP_TRIALS = 4  # trials that are drawn at random and not pruned
PROXY_SECONDS = 10.0
KNOWN = "journal:///FILE, sqlite:///FILE, postgresql://HOST/NAME or grpc://HOST:PORT"
LONGEST_LINE = 1 << 20
ATTEMPTS, PAUSE_SECONDS = 5, 0.2

DATABASE_ADVICE = {
    "disk is full": "; free some space and run it again, which continues the study",
    "I/O error": "; check the disk and its free space, then run it again",
    "is locked": "; another program uses it, run it again when that has ended",
    "readonly": "; make the file and its folder writable or name another folder",
    "unable to open": "; make the folder writable or name another one",
    "Failed to import DB access module": "; install SQLAlchemy's driver of this database",
    "Can't load plugin": f"; expected {KNOWN}",
}
"""Remedies by a part of the message of SQLite or SQLAlchemy."""
OTHER_ADVICE = "; remove the file or name another folder"
SHARED_ADVICE = "; check its address, and that it can be reached"
JOURNAL, PROXY = "journal", "grpc"


class StorageError(Exception):
    """A storage that cannot be opened."""


@dataclass(frozen=True, slots=True)
class StudyStorage:
    """The storage of a study."""

    folder: Path  # of the study
    url: str = ""  # of the storage that it shares with other commands; empty: a database in the folder, of its own

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_file = parts.scheme in (JOURNAL, "sqlite")
        is_complete = parts.path.strip("/") and not parts.netloc if is_file else parts.netloc
        if self.url and not (parts.scheme and is_complete):
            raise UsageError(f"--storage {redact_url(self.url)}: expected {KNOWN}")

    @property
    def name(self) -> str:
        return redact_url(self.url) or str(self.folder / STORE)

    @property
    def place(self) -> str:
        """Return what another study needs another one of."""
        return "storage" if self.url else "folder"

    def open(self) -> optuna.Study:
        """Return the study, a new one if there is none.

        Raises:
            InputError: it was written by another version of Optuna, or the file is not a journal.
        """
        import optuna

        try:
            storage = self._storage()
        except (OSError, ImportError) as error:  # no folder, no server, no driver of the database
            raise StorageError(error) from error
        return optuna.create_study(
            storage=storage,
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
            # The first trials run to their end: the pruner needs medians to compare with.
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
        )

    def sampler(self, *seed: int) -> optuna.samplers.TPESampler:
        """Return what draws the next trial, by the same seed the same one.

        Of a shared study each command draws its own: with the same seed they would start with the same trials.
        """
        import optuna

        state = None if self.url else int(np.random.SeedSequence(seed).generate_state(1)[0])
        return optuna.samplers.TPESampler(seed=state, n_startup_trials=STARTUP_TRIALS)

    def _storage(self) -> optuna.storages.BaseStorage:
        from optuna import storages
        from optuna.exceptions import ExperimentalWarning
        from optuna.storages.journal import JournalFileBackend

        parts = urlsplit(self.url)
        if parts.scheme == JOURNAL:
            file = Path(parts.path.removeprefix("/"))
            # Optuna appends to any file, and reads it later.
            if not _is_journal(file):
                raise InputError(self.name, "", "", "is not a journal of Optuna; name another file")
            return storages.JournalStorage(JournalFileBackend(str(file)))
        if parts.scheme == PROXY:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                proxy = storages.GrpcStorageProxy(host=parts.hostname or "", port=parts.port or 13000)
            proxy.wait_server_ready(timeout=PROXY_SECONDS)
            return proxy
        url = self.url or f"sqlite:///{self.folder / STORE}"
        try:
            return _database(url)
        except RuntimeError:
            upgrade = f"optuna storage upgrade --storage {redact_url(url)}"
            problem = f"is of another version of Optuna; run {upgrade}, or name another"
            raise InputError(self.name, "", "", f"{problem} {self.place}") from None

    @contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Turn errors of the storage into one line.

        Raises:
            InputError: in place of errors of SQLAlchemy, of Optuna, which wraps some of them, and of gRPC.
        """
        from grpc import RpcError
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (SQLAlchemyError, StorageInternalError, RpcError, StorageError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            problem = next(iter(str(getattr(cause, "orig", None) or cause or error).splitlines()), type(error).__name__)
            advice = next((text for part, text in DATABASE_ADVICE.items() if part in problem), "")
            advice = advice or (SHARED_ADVICE if self.url else OTHER_ADVICE)
            raise InputError(self.name, "", "", f"the study cannot be used: {problem.rstrip('.')}{advice}") from None


def _is_journal(file: Path) -> bool:
    """Return whether a file begins as a journal does, is empty or does not exist."""
    if not file.is_file():
        return True
    with file.open("rb") as opened:
        first = opened.readline(LONGEST_LINE)
    try:
        return not first or "op_code" in msgspec.json.decode(first, type=dict[str, Any])
    except msgspec.DecodeError:
        return False


def _database(url: str) -> optuna.storages.RDBStorage:
    """Open a database, whose tables several commands may make at the same time."""
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import DBAPIError

    for _ in range(ATTEMPTS - 1):
        try:
            return RDBStorage(url)
        except DBAPIError as error:
            # Optuna looks whether a table or a row is there, and then makes it.
            if not re.search("already exists|UNIQUE|[Dd]uplicate", str(error.orig)):
                raise
            time.sleep(PAUSE_SECONDS)
    return RDBStorage(url)
