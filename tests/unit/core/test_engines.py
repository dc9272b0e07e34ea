"""Engines: a block chooses one, and what is wrong with it is one line before any work begins."""

import socket
import sys

import pytest
from tests.support.errors import raises

from steersman.core.engines import ADDRESS, Engine, available_workers, make_workers, runs_here, use_engine
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extras import MissingExtraError
from steersman.core.processes import Workers, default_jobs


def test_local_engine_is_this_machine() -> None:
    with use_engine("local") as jobs:
        assert jobs == default_jobs() == available_workers()
    with use_engine(Engine.LOCAL, 3) as jobs:
        assert jobs == 3
        assert isinstance(make_workers(jobs, lambda: str), Workers)
        assert runs_here(1)
        assert not runs_here(3)


def test_unknown_engine_and_number_are_refused() -> None:
    with raises(UsageError, "'dask'", "local or ray"), use_engine("dask"):
        pass
    with raises(UsageError, "--jobs", 0), use_engine("local", 0):
        pass


def test_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises(MissingExtraError, "--engine ray", "'ray'"), use_engine("ray"):
        pass


@pytest.mark.parametrize("address", ["head", "ray://head:80", "head:port", "auto"])
def test_address_that_is_none_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, address)
    with raises(UsageError, f"{ADDRESS}={address}", "host:port"), use_engine("ray"):
        pass


def test_unreachable_cluster_is_one_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:  # bound, but nobody listens
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv(ADDRESS, address)
        with raises(SteersmanError, f"{ADDRESS}={address}", "unset", exit_status=1), use_engine("ray"):
            pass
