"""Data frames of results, of pandas or polars, whichever is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from steersman.core.errors import SteersmanError


def to_frame(columns: Mapping[str, Sequence[object] | npt.NDArray[Any]]) -> Any:
    """Return a data frame of columns by name, of pandas, or of polars where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        pass
    else:
        return pandas.DataFrame(columns)
    try:
        import polars
    except ImportError:
        raise SteersmanError("a data frame needs pandas or polars; install one of them with pip") from None
    return polars.DataFrame(columns)
