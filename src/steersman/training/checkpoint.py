"""Checkpoints: the whole state of a run in one safetensors file, written atomically; reading one executes no code.

A state is nested dicts, lists and tuples of numbers, texts, NumPy arrays and torch tensors. The arrays are the file's
tensors; everything else, with references to them, is JSON in its metadata.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from steersman.core.atomic_files import write_atomically
from steersman.core.errors import InputError

STATE, IDENTITY = "state", "identity"


def write_checkpoint(path: Path, state: Any, identity: dict[str, Any]) -> None:
    """Write a state; `identity` identifies the run it belongs to. Raises InputError: the file cannot be written."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    shape = _take_apart(state, arrays)
    content = save(arrays, metadata={STATE: json.dumps(shape), IDENTITY: json.dumps(identity, sort_keys=True)})
    write_atomically(path, content, sync=True)


def read_checkpoint(path: Path, identity: dict[str, Any]) -> Any:
    """Return the state that was written for the run `identity`.

    Raises:
        InputError: the file is missing, truncated, or of another run; it names the option that differs.
    """
    metadata, arrays = _read(path)
    was = json.loads(metadata[IDENTITY])
    now = json.loads(json.dumps(identity))
    for name in sorted(set(was) | set(now)):
        if was.get(name) != now.get(name):
            raise InputError(
                str(path), "run", name, f"was {was.get(name)!r}, now {now.get(name)!r}: a checkpoint of another run"
            )
    return _put_together(json.loads(metadata[STATE]), arrays)


def read_identity(path: Path) -> dict[str, Any]:
    """Return what identifies the run of a checkpoint. Raises InputError: the file is missing or truncated."""
    identity: dict[str, Any] = json.loads(_read(path)[0][IDENTITY])
    return identity


def _read(path: Path) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise InputError(str(path), "file", "checkpoint", f"cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(str(path), "file", "checkpoint", f"is truncated or no checkpoint ({error})") from None
    if STATE not in metadata or IDENTITY not in metadata:
        raise InputError(str(path), "metadata", STATE, "is missing: this is no checkpoint of a training run")
    return metadata, arrays


def _take_apart(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return JSON for `value`; its arrays go to `arrays`."""
    if isinstance(value, dict):
        # As pairs: keys of JSON are texts, and an optimiser's state has integers.
        return {"dict": [[_take_apart(k, arrays), _take_apart(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        # JSON knows lists alone, so the kind is kept.
        return {type(value).__name__: [_take_apart(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    name = f"a{len(arrays)}"
    if isinstance(value, np.ndarray):
        # ascontiguousarray turns an array without axes into one of length 1.
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": name}
    # A state without tensors needs no torch, whose import takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous().numpy()
        arrays[name] = tensor.copy()
        return {"tensor": name}
    return value


def _put_together(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {_put_together(k, arrays): _put_together(v, arrays) for k, v in content}
    if kind == "list":
        return [_put_together(item, arrays) for item in content]
    if kind == "tuple":
        return tuple(_put_together(item, arrays) for item in content)
    if kind == "array":
        return arrays[content].copy()
    import torch

    return torch.from_numpy(arrays[content].copy())
