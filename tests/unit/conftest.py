"""What unit tests share."""

from collections.abc import Iterator

import pytest

from steersman.simulation.selection import fitting


@pytest.fixture(autouse=True, scope="module")
def _short_search(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the policy `steersman` search for one or two generations, which finds hardly better weights, in this process.

    A search of the usual length takes seconds for each workload. Test modules that are about what it finds are marked
    `whole_search`.
    """
    with pytest.MonkeyPatch.context() as patched:
        if request.node.get_closest_marker("whole_search") is None:
            patched.setattr(fitting, "GENERATIONS", (1, 2))
        yield
