"""What all tests share."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from tests.support import errors, nightly

# The first example may compile a kernel, so no deadline per example; a failure prints how to replay it.
by_default = nightly.examples(nightly.DEFAULT)
settings.register_profile("steersman", deadline=None, print_blob=True, max_examples=by_default)
settings.load_profile("steersman")

# Tests run beside each other, where torch's threads wait for cores and for each other: small networks learn several
# times slower by two of them. Set before torch is imported, and for every process that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what it runs in the background with Ctrl-C ignored, and `nohup` SIGHUP; what they start leaves that so.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Whatever a test does to the log, as every command does, ends with it."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Play an async test in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nightly tests out of other runs."""
    if not nightly.is_nightly():
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take over the texts of errors, if that is wanted, once all workers are done."""
    if os.environ.get(errors.UPDATE) and not hasattr(session.config, "workerinput"):
        errors.take_over()
