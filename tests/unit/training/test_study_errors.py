"""The database of a study that cannot be used is one line, which names it and says what would be right."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.errors import raises
from tests.support.full_disk import largest_file

import steersman
from steersman.core.errors import InputError, UsageError
from steersman.envs.deployments import DeploymentsOptions

pytest.importorskip("optuna")
pytest.importorskip("torch")


def tune(folder: Path) -> None:
    options: dict[str, Any] = {"trials": 1, "iterations": 1, "validate_every": 1, "validation_episodes": 1}
    steersman.tune(DeploymentsOptions(nodes=3), folder, algorithm="dqn", **options)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.mark.parametrize("pages", [1, 20])
def test_full_disk_fails_in_one_line(store: Path, pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_small(*arguments: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **named)
        database.execute(f"pragma max_page_count = {pages}")
        return database

    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.dbapi2.connect", open_small)
    with raises(InputError, store, "full", "free some space"):
        tune(store.parent)


def test_failing_disk_fails_in_one_line(store: Path) -> None:
    with raises(InputError, store, "I/O error", "check the disk"), largest_file(0):
        tune(store.parent)


def test_file_that_is_no_database_fails_in_one_line(store: Path) -> None:
    store.write_text("This is a text, and not a database of SQLite. " * 10)
    with raises(InputError, store, "not a database", "another folder"):
        tune(store.parent)


def test_folder_in_place_of_the_database_fails_in_one_line(store: Path) -> None:
    store.mkdir()
    with raises(InputError, store, "unable to open"):
        tune(store.parent)


def test_foreign_database_fails_in_one_line(store: Path) -> None:
    with sqlite3.connect(store) as database:
        database.execute("create table studies (a int)")
    with raises(InputError, store, "another folder"):
        tune(store.parent)


def test_study_of_another_version_fails_in_one_line(store: Path) -> None:
    with sqlite3.connect(store) as database:
        database.execute("create table version_info (version_info_id int, schema_version int, library_version text)")
        database.execute("insert into version_info values (1, 99, '9')")
    with raises(InputError, store, "another version of Optuna"):
        tune(store.parent)


def test_locked_database_fails_in_one_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.dbapi2.connect", lambda *a, **named: connect(*a, **(named | {"timeout": 0.1})))
    database = connect(store, isolation_level=None)
    database.execute("begin exclusive")
    try:
        with raises(InputError, store, "locked", "run it again"):
            tune(store.parent)
    finally:
        database.close()


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_time_limit_error_names_the_option(tmp_path: Path, minutes: float) -> None:
    options: dict[str, Any] = {"algorithm": "dqn", "minutes": minutes}
    with raises(UsageError, f"--minutes must be above 0, not {minutes:g}"):
        steersman.train(DeploymentsOptions(nodes=3), tmp_path / "run", **options)
    with raises(UsageError, f"--minutes must be above 0, not {minutes:g}"):
        steersman.tune(DeploymentsOptions(nodes=3), tmp_path / "study", **options)
    assert not list(tmp_path.iterdir())
