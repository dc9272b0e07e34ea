"""The finished runs of an interrupted evaluation, in a file from which `evaluate --resume` continues.

A run is a function of its workload, policy, seed and settings alone, so an evaluation that continues has the results of
one that was not interrupted. The file describes its experiments; runs of others are refused. It holds numbers and
texts, and reading it runs no code.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from steersman.core.errors import InputError, UsageError
from steersman.core.redaction import redact_url
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.results import FINISHED, FINISHED_START, seed_ranges
from steersman.orders.registry import file_of
from steersman.policies.base import Policy
from steersman.policies.registry import split_order
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation.result import RunResult
from steersman.version import __version__
from steersman.workloads.workload import Workload

LONGEST = 60  # characters of a value that messages show
COMPRESSION = 1
Content = TypeVar("Content")
DESCRIBED = ("workloads", "policies", "seeds", "protocol")
"""Fields of an experiment that `describe` words itself; all others count by their values."""
NO_RESULT = ("name", "warnings", "understood", "lives", "referable", "invalid_nodes")
"""Fields of a workload on which no result depends, or that `describe` compares itself."""

Description = dict[str, str]  # what results depend on, by a name for messages
MadeFiles = dict[str, tuple[bytes, str]]
"""What a command made before its runs, as a fitted policy: name of a file -> content, and a note."""


class _Content(msgspec.Struct, array_like=True):
    """What follows the first line: the experiments, runs by their position in them, and files made before."""

    description: Description
    runs: dict[int, RunResult]
    made: MadeFiles


def describe(experiments: Sequence[Experiment]) -> Description:
    """Return all that the results of experiments depend on, but for the code of users' own policies and of servers."""
    first = experiments[0]
    found = {
        "version of steersman": __version__,
        "protocols": ", ".join(each.protocol for each in experiments),
        "seeds": seed_ranges(first.seeds),
        "workloads": _shown([each.name for each in first.workloads]),
        "policies": _shown([_short(each) if isinstance(each, str) else each.name for each in first.policies]),
    }
    found |= {f"nodes and pods of {each.name}": _digest_workload(each) for each in first.workloads}
    for what, digest in chain.from_iterable(_describe_policy(policy).items() for policy in first.policies):
        found[what] = found.get(what, "") + digest  # two files of one name
    for name in (each.name for each in fields(Experiment) if each.name not in DESCRIBED):
        values, words = [_shown(getattr(each, name)) for each in experiments], name.replace("_", " ")
        if len(set(values)) == 1:
            found[words] = values[0]
        else:
            found |= {f"{words} of {each.protocol}": value for each, value in zip(experiments, values, strict=True)}
    return found


def write_finished(
    folder: Path, description: Description, runs: Mapping[int, RunResult], made: Mapping[str, tuple[bytes, str]] = {}
) -> None:
    """Write finished runs, by their position among the runs of all experiments, and files that were made before."""
    content = msgspec.msgpack.encode(_Content(description, dict(runs), dict(made)), enc_hook=_encode)
    (folder / FINISHED).write_bytes(gzip.compress(FINISHED_START + content, COMPRESSION, mtime=0))


def read_finished(folder: Path, description: Description) -> dict[int, RunResult]:
    # First the description alone: another version may have other fields of runs.
    _check_same(folder / FINISHED, _read(folder, tuple[Description, msgspec.Raw, MadeFiles])[0], description)
    return _read(folder, _Content).runs


def read_made(folder: Path) -> MadeFiles:
    """Return the files that were made before the runs; raises as `read_finished`."""
    return _read(folder, tuple[Description, msgspec.Raw, MadeFiles])[2]


def _read(folder: Path, kind: type[Content]) -> Content:
    path = folder / FINISHED
    if not path.exists():
        raise UsageError(f"--resume: there is no {path} to continue from; leave out --resume to start")
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from None
    if not text.startswith(FINISHED_START):
        raise _damaged(path, "it begins otherwise")
    try:
        return msgspec.msgpack.decode(text[len(FINISHED_START) :], type=kind, dec_hook=_decode)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise _damaged(path, str(error)) from None


def _check_same(path: Path, there: Description, here: Description) -> None:
    for what in dict.fromkeys([*here, *there]):
        if there.get(what) != here.get(what):
            values = [textwrap.shorten(each.get(what, "none"), LONGEST, placeholder=" ...") for each in (there, here)]
            differs = what if values[0] == values[1] else f"{what}: {values[0]} there, {values[1]} here"
            raise UsageError(
                f"--resume: {path} is of another comparison ({differs}); repeat its options, or leave out --resume"
            )


def _damaged(path: Path, why: str) -> InputError:
    return InputError(path, "", "", f"no runs of steersman ({why}); leave out --resume to start")


def _describe_policy(policy: str | Policy | PolicyProtocol) -> Description:
    """Return a digest of what a name does not say: the content of files that it names, and a URL with its secrets."""
    if not isinstance(policy, str):
        return {}
    if "://" in policy:
        return {f"URL of policy {redact_url(policy)}": _digest(policy.encode())}
    parts = policy, *policy.split("+")
    order_file = file_of(split_order(policy)[1])
    texts = dict.fromkeys([*parts, *([] if order_file is None else [str(order_file)])])
    files = [Path(text) for text in texts if Path(text).suffix and Path(text).is_file()]
    return {f"content of {file.name}": _digest(file.read_bytes()) for file in files}


def _short(policy: str) -> str:
    """Return a policy without secrets and folders: a file is the same one by its content, wherever it is."""
    return redact_url(policy) if "://" in policy else re.sub(r"(^|\+)[^+]*/", r"\1", policy)


def _digest_workload(workload: Workload) -> str:
    sha256 = hashlib.sha256()
    for name in (each.name for each in fields(Workload) if each.name not in NO_RESULT):
        value = getattr(workload, name)
        # One by one: all pods of a large trace as one text would take as much memory again.
        for part in (len(value), *value) if isinstance(value, tuple) else (value,):
            sha256.update(msgspec.msgpack.encode(part, enc_hook=_encode, order="deterministic"))
    return sha256.hexdigest()[:16]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = msgspec.json.encode(value, enc_hook=_encode, order="deterministic").decode()
    return text.replace('"', "").replace(",", ", ")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    # A function, of a user's own objective.
    return f"{value.__module__}:{value.__qualname__}"


def _decode(_: type, value: Any) -> Any:
    kind, shape, content = value
    return np.frombuffer(content, dtype=np.dtype(kind)).reshape(shape).copy()
