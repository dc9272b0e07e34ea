"""YAML and JSON documents that know their position, read as Kubernetes reads them, and written back.

Differences from plain YAML 1.1, all as in Kubernetes: a time stamp stays text, `12:30` is not a base-60 number, and a
key that occurs twice in a mapping is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from steersman.core.errors import InputError
from steersman.workloads.formats.tables import read_text

NESTED = "is nested deeper than any Kubernetes object"
MAX_DEPTH = 200
MAX_ALIASED_NODES = 10_000_000
"""Most nodes of a document with all aliases written out: a few lines can stand for more than memory holds."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file. `where` is its position for an error message: "document 2, line 14"."""

    content: Any
    file: str
    where: str

    def error(self, field: str, problem: str) -> InputError:
        return InputError(self.file, self.where, field, problem)


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents of one file; documents of comments alone are left out.

    A file of YAML may hold JSON, and several documents of JSON may follow each other, as kubectl and jq print them.
    """
    text = read_text(path)
    if not text.strip():
        raise InputError(path, "", "", "is empty")
    if path.name.removesuffix(".gz").endswith(".json"):
        yield from _json_documents(path, text)
    elif (documents := _json_in_yaml(path, text)) is not None:
        yield from documents
    else:
        yield from _yaml_documents(path, text)


def parsed_documents(name: str, content: str) -> list[Document]:
    """Return the documents of a text of YAML; `name` stands for the file. Raises InputError: it cannot be read."""
    return [*_yaml_documents(Path(name), content)]


def write_documents(path: Path, documents: Iterable[Any]) -> None:
    """Write documents as one YAML file, in the order of their fields."""
    with path.open("w", encoding="utf-8") as file:
        yaml.dump_all(
            documents, file, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120
        )


def _json_in_yaml(path: Path, text: str) -> list[Document] | None:
    """Return the documents of JSON in a file of YAML, which are read much faster as JSON; None: there are others."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        # All at once, since only the end of the file shows that everything is JSON.
        return list(_json_documents(path, text))
    except _NotJsonError:
        return None


class _NotJsonError(InputError):
    """A document that is not JSON."""


def _json_documents(path: Path, text: str) -> Iterator[Document]:
    """Yield the documents of JSON that follow each other; a file of several states their positions.

    `kubectl cluster-info dump` prints logs of containers between them, which are skipped.
    """
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _unique(path, pairs))
    start, line, number = _next_document(text, 0), 1, 0
    counted, several = 0, False
    while start < len(text):
        try:
            content, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _NotJsonError(path, f"line {error.lineno}", "", f"is not JSON: {error.msg}") from None
        except RecursionError:
            raise InputError(path, "", "", NESTED) from None
        except ValueError:  # Python parses no integer of more than 4300 digits
            raise InputError(path, "", "", "has a number of thousands of digits") from None
        number += 1
        line += text.count("\n", counted, start)
        counted, start = start, _next_document(text, end)
        several = several or start < len(text)
        yield Document(content, str(path), f"document {number}, line {line}" if several else "")


_BETWEEN_DOCUMENTS = re.compile(r"(?:\s|^==== START logs .*?^==== END logs [^\n]*)*", re.DOTALL | re.MULTILINE)


def _next_document(text: str, end: int) -> int:
    match = _BETWEEN_DOCUMENTS.match(text, end)
    return match.end() if match else end


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(path, "", twice, "appears twice in one mapping")
    values.pop("managedFields", None)  # managedFields are half of a dump, and nothing here reads them
    return values


def _yaml_documents(path: Path, text: str) -> Iterator[Document]:
    loader = _Loader(text)
    number = 0
    # The check visits every node; a text without both characters has no alias.
    aliases = "&" in text and "*" in text
    try:
        while loader.check_node():
            number += 1
            node = loader.get_node()
            if aliases:
                _check_aliases(node)
            content = loader.construct_document(node)
            if content is not None:
                yield Document(content, str(path), f"document {number}, line {node.start_mark.line + 1}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"document {max(number, 1)}" + (f", line {mark.line + 1}" if mark else "")
        raise InputError(path, where, "", f"is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(path, "", "", f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(path, "", "", NESTED) from None
    finally:
        loader.dispose()


def _check_aliases(root: Any) -> None:
    """Reject a node that contains itself, and nested aliases that expand to endless text."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        known = sizes.get(id(node))
        if known is None:
            sizes[id(node)] = 0  # until the size is known; meeting it before means that it contains itself
            values = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
            known = sizes[id(node)] = 1 + sum(size(part) for part in parts)
        if not known:
            raise yaml.composer.ComposerError(None, None, "a part of it holds itself", node.start_mark)
        return known

    if size(root) > MAX_ALIASED_NODES:
        problem = "its aliases stand for more text than there can be"
        raise yaml.composer.ComposerError(None, None, problem, root.start_mark)


_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """libyaml's safe loader if it is installed, with Kubernetes' rules for plain scalars and keys."""

    depth = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Count the depth on the way into a node: libyaml would follow any depth until the stack is full."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = current_node.start_mark if current_node is not None else None
            raise yaml.composer.ComposerError(None, None, f"it {NESTED}", mark)

    def ascend_resolver(self) -> None:
        """Count the depth on the way out of a node."""
        self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; a key that occurs twice would silently hide a value."""
        # Keys of a merged mapping may be overridden, so fewer keys are no error there.
        merged = any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if not merged and len(mapping) != len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next(name for name in names if names.count(name) > 1)
            raise yaml.constructor.ConstructorError(
                None, None, f"key {twice!r} appears twice in one mapping", node.start_mark
            )
        return mapping


def _scalar(loader: Any, node: Any) -> Any:
    """Construct a scalar. Raises an error for one that its tag does not allow, such as `!!int many` or `0x_`."""
    try:
        return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    except (ValueError, KeyError, AttributeError, OverflowError):
        shown = str(node.value)[:40]
        problem = f"{shown!r} is no {node.tag.rpartition(':')[2]} that can be read"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """libyaml's safe dumper if it is installed, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: write equal nodes out in full."""
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    """Write a text of several lines as a block, as people do."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text.strip() else None)


_Dumper.add_representer(str, _represent_text)


def _without(tags: Iterable[str]) -> dict[str, list[tuple[str, Any]]]:
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    return {first: [entry for entry in entries if entry[0] not in tags] for first, entries in resolvers.items()}


_TAG = "tag:yaml.org,2002:"
for _kind in ("bool", "int", "float", "timestamp"):
    _Loader.add_constructor(f"{_TAG}{_kind}", _scalar)
_Loader.yaml_implicit_resolvers = _without((f"{_TAG}timestamp", f"{_TAG}int", f"{_TAG}float"))
_Loader.add_implicit_resolver(
    f"{_TAG}int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)
# Kubernetes reads 1e3 as a number although YAML 1.1 does not, so text that looks like it is written in quotes.
_Dumper.add_implicit_resolver(f"{_TAG}float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789"))
