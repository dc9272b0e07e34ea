"""Convert Kubernetes quantities ("500m", "1.5", "2Gi", "1e3") to exact integers and back, never through floats.

The grammar is apimachinery's resource.Quantity: a signed decimal number and one suffix, which is binary (Ki Mi Gi Ti
Pi Ei), decimal (n u m k M G T P E) or a decimal exponent (e3, E-2). The caller says how a fraction is rounded: requests
up, as kube-scheduler does, and allocatable down, so that rounding never promises what is not there.
"""

from __future__ import annotations

import re
from functools import lru_cache

INT64_MAX = (1 << 63) - 1  # largest value that Kubernetes itself can represent

# Larger than anything that exists: a value beyond it is an error in a file (a wrong unit, a shifted column). They hold
# for every format.
MAX_CPU_MILLI = 10_000_000
MAX_MEMORY_BYTES = 1 << 48
MAX_NODE_CPU_MILLI = 10_000_000_000
MAX_NODE_MEMORY_BYTES = 1 << 53  # virtual nodes stand for whole data centers; sums over a thousand of them fit 64 bits
MAX_AMOUNT = 1 << 53  # limit of any other resource, in its own unit: bytes of storage, devices
MAX_NODE_GPUS = 62  # devices of a node that fit the state's bit mask
MAX_POD_GPUS = 10_000

NANO = 1_000_000_000  # nano-units per unit, the finest step of a Kubernetes quantity

_QUANTITY = re.compile(r"([+-]?)([0-9]+)?(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]+)?", re.ASCII)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
# Beyond these a value is either too large for int64 or nothing but zeros; the limits keep a hostile "1e999999999"
# cheap.
_MAX_EXPONENT = 64
_MAX_LENGTH = 128

Quantity = str | int | float  # of YAML or JSON: a string, or a number where the quotes were left out


def cpu_milli(quantity: Quantity, *, round_up: bool = True) -> int:
    """Return CPU in milli-CPU: "1.5" is 1500."""
    return _scaled(quantity, 1000, round_up)


def bytes_(quantity: Quantity, *, round_up: bool = True) -> int:
    """Return memory or storage in bytes: "2Gi" is 2147483648. Raises ValueError as `cpu_milli` does."""
    return _scaled(quantity, 1, round_up)


def whole(quantity: Quantity, *, round_up: bool = True) -> int:
    """Return a count (pods, devices, units of a resource): "1k" is 1000. Raises ValueError as `cpu_milli` does."""
    return _scaled(quantity, 1, round_up)


def nano(quantity: Quantity, *, round_up: bool = True) -> int:
    """Return the value in nano-units, for sums that are rounded once. Raises ValueError as `cpu_milli` does."""
    return _scaled(quantity, NANO, round_up)


def plausible(amount: int, most: int, quantity: Quantity) -> int:
    """Return the amount of `quantity`. Raises ValueError: it is above `most`, one of the limits `MAX_...`."""
    if amount > most:
        raise ValueError(f"{quantity!r} is more than any real machine has; is the unit right?")
    return amount


def format_cpu(milli: int) -> str:
    """Return milli-CPU as openb's YAML has it: 12000 is "12000m"."""
    return f"{milli}m"


def format_bytes(amount: int) -> str:
    """Return bytes in the largest exact unit up to Mi: 17179869184 is "16384Mi", 1024 is "1Ki", 1000 is "1000"."""
    for suffix, shift in (("Mi", 20), ("Ki", 10)):
        if amount and amount % (1 << shift) == 0:
            return f"{amount >> shift}{suffix}"
    return str(amount)


def format_whole(amount: int) -> str:
    return str(amount)


def ceil_div(amount: int, divisor: int) -> int:
    """Return `amount / divisor` rounded up, exactly."""
    return -(-amount // divisor)


def duration_seconds(text: str) -> float:
    """Return the seconds of `90s`, `30m`, `2h` or `1.5d`. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a duration above 0; expected a duration such as 90s, 30m, 2h or 1.5d")
    return seconds


def duration_literal(seconds: float) -> str:
    """Return a duration as `duration_seconds` reads it, such as `7200s`: rounded to milliseconds, or above 10^8 s days.

    Above 10^9 days, for which it has no text, it is 999999999 days.
    """
    if seconds < 1e8:
        return f"{max(seconds, 1e-3):.3f}".rstrip("0").rstrip(".") + "s"
    return f"{min(round(seconds / _SECONDS['d']), 999_999_999)}d"


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as `3 h 10 min`."""
    seconds = round(seconds)
    for k, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            after = _UNITS[k + 1 : k + 2]
            parts = [f"{whole:.0f} {unit}", *(f"{rest // small:.0f} {name}" for small, name in after if rest >= small)]
            return " ".join(parts)
    return "0 s"


def _scaled(quantity: Quantity, scale: int, round_up: bool) -> int:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise ValueError(f"{quantity!r} is not a quantity; write a number or text such as 500m, 1.5 or 2Gi")
    # repr is the shortest text of the float, which is what the author of the YAML wrote
    return _parse(quantity if isinstance(quantity, str) else repr(quantity), scale, round_up)


@lru_cache(maxsize=65536)
def _parse(text: str, scale: int, round_up: bool) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    sign, integer, fraction, suffix = match.groups(default="") if match else ("", "", "", "")
    if not integer and not fraction:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise ValueError(
            f"{shown!r} is not a Kubernetes quantity; write a number with a suffix such as 500m, 1.5, 2Gi or 1e3"
        )
    digits = int(integer + fraction)
    if digits == 0:
        return 0
    if sign == "-":
        raise ValueError(f"{text!r} is negative; a quantity must be 0 or more")
    exponent = _exponent(suffix)
    if exponent > _MAX_EXPONENT:
        raise _too_large(text)
    shift = _BINARY.get(suffix, 0)
    numerator = (digits * scale << shift) * 10 ** max(exponent, 0)
    denominator = 10 ** (len(fraction) + max(-exponent, 0))
    value = ceil_div(numerator, denominator) if round_up else numerator // denominator
    # Nano-units are only summed in Python's integers, so the limit is that of the quantity itself.
    if value > INT64_MAX * (scale if scale == NANO else 1):
        raise _too_large(text)
    return value


def _exponent(suffix: str) -> int:
    """Return the power of ten of a decimal suffix or exponent, not below where every int64 value has become zero."""
    if suffix in _BINARY:
        return 0
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    return max(int(suffix[1:]), -_MAX_EXPONENT - _MAX_LENGTH)


def _too_large(text: str) -> ValueError:
    return ValueError(f"{text!r} is beyond what Kubernetes can hold (9223372036854775807); is the unit right?")
