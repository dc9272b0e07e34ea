"""Optional packages: the extra that installs each, and an error that names it where one is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from steersman.core.errors import SteersmanError, checkout_of_this

if TYPE_CHECKING:
    import numpy.typing as npt


EXTRAS = {
    "grpc": "train",  # of TensorBoard
    "ipykernel": "workbench",
    "jupyterlab": "workbench",
    "optuna": "train",
    "plotly": "train",
    "ray": "ray",
    "scipy": "report",
    "sqlalchemy": "train",  # of Optuna
    "tensorboard": "train",
    "torch": "train",
    "torch_geometric": "graph",
    "wasmtime": "portable",
}
"""The extra of each package that the code imports and a plain installation lacks."""


class MissingExtraError(SteersmanError):
    """A feature needs an optional dependency; names the extra that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}': {_command(extra)}")


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # an import hook refuses it
        return False


def require_extra(feature: str, extra: str, *packages: str) -> None:
    """Raise MissingExtraError if one of an extra's packages that a feature needs is not installed."""
    if not all(map(is_installed, packages)):
        raise MissingExtraError(feature, extra)


def missing_extra(feature: str, error: BaseException | None) -> MissingExtraError | None:
    """Return the error that names the extra of a module that was not found; None: no extra has it."""
    name = (isinstance(error, ModuleNotFoundError) and error.name) or ""
    extra = EXTRAS.get(name.partition(".")[0])
    return None if extra is None else MissingExtraError(feature, extra)


def _command(extra: str) -> str:
    if checkout := checkout_of_this():
        target = "workbench" if extra == "workbench" else "learn"
        return f"make -C {checkout} {target}, or pip install '{checkout}[{extra}]'"
    # Here, since every start of the command line imports this module.
    from importlib import metadata

    try:
        # pip writes it for what it did not get from an index (PEP 610).
        source = json.loads(metadata.distribution("steersman").read_text("direct_url.json") or "{}").get("url", "")
    except (metadata.PackageNotFoundError, ValueError):
        source = ""
    return f"pip install 'steersman[{extra}]" + (f" @ {source}'" if source else "'")


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
