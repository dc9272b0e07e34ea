"""Jobs that are larger than a node."""

from hypothesis import given
from hypothesis import strategies as st

from steersman.workloads.formats.traces import shares


def test_shares_are_equal_or_fill_nodes() -> None:
    assert shares(16, 8) == (8, 8)
    assert shares(100, 64) == (50, 50)
    assert shares(101, 64) == (64, 37)
    assert shares(8, 8) == (8,)
    assert shares(8, 0) == (8,)


@given(st.integers(1, 10_000), st.integers(0, 300))
def test_shares_are_the_fewest_that_fit(amount: int, largest: int) -> None:
    parts = shares(amount, largest)
    assert sum(parts) == amount
    if largest:
        assert len(parts) == -(-amount // largest)
        assert 0 < min(parts) <= max(parts) <= largest
        assert len(set(parts)) == 1 or set(parts[:-1]) == {largest}
    else:
        assert parts == (amount,)
