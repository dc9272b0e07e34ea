"""Reference of configuration files: fields, types and defaults, from the classes that decode them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from steersman.live.service import config as service
from steersman.prometheus import configuration as telemetry
from website.docstrings import cell, entries

ROOT = Path(__file__).parents[1]
ARGUMENTS = ROOT / "plugin" / "pkg" / "steersman" / "args.go"
GO_FIELD = re.compile(r'((?:\t// .*\n)+)((?:\t\w+ +\w+ +`json:"\w+"`\n)+)')
FILES: dict[str, tuple[str, tuple[type[msgspec.Struct], ...], str]] = {
    f"{service.KIND} of `steersman serve --config`": (
        "A document of this kind; options of the command line take precedence.",
        (service.ServiceConfig, service.Tls),
        "deploy/extender/service.yaml",
    ),
    f"{telemetry.KIND} of `--telemetry`": (
        "The queries that Prometheus answers, for `schedule`, `serve` and `explain`.",
        (
            telemetry.Configuration,
            telemetry.ServerConfig,
            telemetry.NodeMapping,
            telemetry.FeatureQuery,
            telemetry.Assumptions,
        ),
        "deploy/prometheus/telemetry.yaml",
    ),
}
"""Files by their title: what they are for, their classes, and an example in the repository."""


def page() -> str:
    """Return the page."""
    parts = ["# Configuration files", "An unknown field is an error, as is a value that is out of range."]
    for title, (words, classes, example) in FILES.items():
        parts += [f"## {title}", words]
        parts += [_table(each, "" if number == 0 else each.__name__) for number, each in enumerate(classes)]
        parts += [f"An example, `{example}`:", f"```yaml\n{(ROOT / example).read_text().rstrip()}\n```"]
    native = ROOT / "deploy" / "kube-scheduler" / "native.yaml"
    parts += [
        "## Arguments of the plugin `Steersman` in kube-scheduler",
        "In `pluginConfig` of a KubeSchedulerConfiguration:",
        _plugin_table(),
        f"An example, `{native.relative_to(ROOT)}`:",
        f"```yaml\n{native.read_text().rstrip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _table(struct: type[msgspec.Struct], title: str) -> str:
    """Return the table of the fields of a class."""
    meanings = entries(f"{struct.__module__}.{struct.__name__}")
    rows = [
        f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {meanings.get(field.name, ' ')} |"
        for field in msgspec.structs.fields(struct)
    ]
    lines = "\n".join(("| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows))
    return f"### {title}\n\n{lines}" if title else lines


def _type(annotation: Any) -> str:
    """Return a type as users of YAML would call it."""
    name = getattr(annotation, "__name__", "")
    words = {"str": "text", "bool": "true or false", "int": "whole number", "float": "number"}
    if name in words:
        return words[name]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return f"[{name}](#{name.lower()})"
    parts: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if all(isinstance(part, str) for part in parts) and parts:
        return ", ".join(f"`{part}`" for part in parts)
    if name == "tuple":
        return f"list of {_type(parts[0])}"
    if name == "dict":
        return f"mapping from {_type(parts[0])} to {_type(parts[1])}"
    return " or ".join(_type(part) for part in parts if part is not type(None))


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        return "required" if field.default_factory is msgspec.NODEFAULT else " "
    if isinstance(value, msgspec.Struct) or value in ("", (), None):
        return " "
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _plugin_table() -> str:
    """Return the table of the plugin's arguments, from the comments of their fields in Go."""
    rows = []
    for comment, fields in GO_FIELD.findall(ARGUMENTS.read_text()):
        text = cell(" ".join(line.strip("\t/ ") for line in comment.splitlines()))
        names = re.findall(r'json:"(\w+)"', fields)
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {text} |")
    return "\n".join(("| argument | meaning |", "| --- | --- |", *rows))
