"""Kubernetes quantities: every spelling, exact rounding, clear refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.core.quantities import INT64_MAX, bytes_, cpu_milli, format_bytes, format_cpu, format_whole, nano, whole

Parse = Callable[..., int]
SUFFIXES = {
    **{suffix: Fraction(1 << (10 * (i + 1))) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{suffix: Fraction(10) ** e for suffix, e in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Fraction(10) ** (3 * (i + 1)) for i, suffix in enumerate("kMGTPE")},
    "": Fraction(1),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
    "e+1": Fraction(10),
}


CPU = [("500m", 500), ("1.5", 1500), ("1e3", 1_000_000), ("0.1", 100), (2, 2000), (0.1, 100), ("1500u", 2), ("1n", 1)]
CPU += [("12000m", 12000), ("+1", 1000), (".5", 500), ("5.", 5000), ("0", 0), ("-0", 0), ("1E-3", 1), (1e-7, 1)]
BYTES = [("2Gi", 2 << 30), ("1.5Gi", 3 << 29), ("128974848", 128974848), ("12e6", 12_000_000), ("1E", 10**18)]
BYTES += [("1E3", 1000), ("2.0Gi", 2 << 30), ("16384Mi", 16 << 30), ("129M", 129_000_000), ("123Mi", 123 << 20)]
BYTES += [("1500m", 2), (1e9, 10**9), ("7.999999999999999999Ei", 9223372036854775807)]


@pytest.mark.parametrize(("quantity", "milli"), CPU)
def test_cpu_spellings(quantity: str | int | float, milli: int) -> None:
    assert cpu_milli(quantity) == milli


@pytest.mark.parametrize(("quantity", "amount"), BYTES)
def test_byte_spellings(quantity: str | int | float, amount: int) -> None:
    assert bytes_(quantity) == amount


def test_allocatable_rounds_down_and_requests_up() -> None:
    assert (cpu_milli("1500u"), cpu_milli("1500u", round_up=False)) == (2, 1)
    assert (bytes_("0.5"), bytes_("0.5", round_up=False)) == (1, 0)
    assert (whole("1.2"), whole("1.2", round_up=False)) == (2, 1)
    assert nano("1n") == 1


@pytest.mark.parametrize(
    "quantity",
    [
        "",
        " ",
        "1 Gi",
        "Gi",
        "1gi",
        "1K",
        "m",
        ".",
        "+",
        "1..2",
        "0x10",
        "1e",
        "٣",
        "1_000",
        "²",
        "1\n",
        "1KiB",
        "ten",
        "nan",
        "9" * 500,
    ],
)
def test_malformed_quantities_are_rejected(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity; write"):
        cpu_milli(quantity)


@pytest.mark.parametrize("quantity", ["-1", "-500m", -2, "-0.1", "-1Ki"])
def test_negative_quantities_are_rejected(quantity: str | int) -> None:
    with pytest.raises(ValueError, match=r"'-.*' is negative; a quantity must be 0 or more"):
        bytes_(quantity)


@pytest.mark.parametrize("quantity", ["8Ei", "1e19", "9223372036854775808", "1e999999999", 1e300, "10E"])
def test_absurd_quantities_are_rejected(quantity: str | float) -> None:
    with pytest.raises(ValueError, match="is beyond what Kubernetes can hold"):
        bytes_(quantity)


@pytest.mark.parametrize("quantity", [None, True, [], {}, b"1"])
def test_other_types_are_rejected(quantity: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        cpu_milli(quantity)  # type: ignore[arg-type]


@pytest.mark.parametrize("quantity", [float("nan"), float("inf")])
def test_non_finite_floats_are_rejected(quantity: float) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        bytes_(quantity)


def test_tiny_exponents_round_in_the_given_direction() -> None:
    assert bytes_("1e-999999") == 1
    assert bytes_("1e-999999", round_up=False) == 0


@given(
    st.integers(0, 10**6),
    st.text("0123456789", max_size=12),
    st.sampled_from(sorted(SUFFIXES)),
    st.booleans(),
    st.sampled_from([(cpu_milli, 1000), (bytes_, 1), (whole, 1), (nano, 10**9)]),
)
def test_agrees_with_exact_fractions(
    integer: int, fraction: str, suffix: str, round_up: bool, function: tuple[Parse, int]
) -> None:
    parse, scale = function
    exact = Fraction(f"{integer}.{fraction or '0'}") * SUFFIXES[suffix] * scale
    expected = math.ceil(exact) if round_up else math.floor(exact)
    text = f"{integer}.{fraction}{suffix}" if fraction else f"{integer}{suffix}"
    if expected > INT64_MAX * (scale if parse is nano else 1):
        with pytest.raises(ValueError, match="beyond"):
            parse(text, round_up=round_up)
    else:
        assert parse(text, round_up=round_up) == expected


@given(st.integers(0, INT64_MAX))
def test_formats_read_back_exactly(amount: int) -> None:
    assert cpu_milli(format_cpu(amount)) == amount
    assert bytes_(format_bytes(amount)) == amount
    assert whole(format_whole(amount)) == amount


def test_formatted_quantities_use_milli_and_binary_units() -> None:
    assert format_cpu(12000) == "12000m"
    assert format_bytes(16 << 30) == "16384Mi"
    assert format_bytes(3 << 10) == "3Ki"
    assert format_bytes(1000) == "1000"
    assert format_bytes(0) == "0"
