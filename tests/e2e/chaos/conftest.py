"""The cluster of the chaos tests, and a way to tell how a test went."""

from collections.abc import Callable, Iterator

import pytest
from tests.e2e.chaos.scenario import ChaosCluster, chaos_cluster


@pytest.fixture(scope="session")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    """A control plane of its own, since its servers are killed."""
    with chaos_cluster(tmp_path_factory.mktemp("chaos")) as found:
        yield found


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line although the test passes."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return say
