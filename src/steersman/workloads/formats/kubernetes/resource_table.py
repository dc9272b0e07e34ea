"""The table of custom resources: `data/custom_resources.toml`, whose head says what the fields mean."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import msgspec


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a controller makes of each part of a resource."""

    name: str
    template: str
    each: str = "[spec]"
    when: str = "true"
    let: dict[str, str] = {}
    kind: str = "Pod"
    count: dict[str, str] = {}
    metadata: str = "{}"
    add: str = "{}"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the controllers of some kinds make pods."""

    kinds: list[str]
    groups: list[str]
    makes: list[Rule]
    suspended: str = "spec.suspend"
    stopped: str = "false"
    ends: bool = True
    scales_down: str = "none"
    let: dict[str, str] = {}


class ResourceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the table; `functions` by name and arguments, `exports` by the name of a list."""

    resource: list[ResourceRow]
    other: ResourceRow
    has_ended: str
    functions: dict[str, str]
    auxiliary: list[str]
    unmodelled: list[str]
    unmodelled_annotations: list[str]
    clock: dict[str, str]
    exports: dict[str, str]

    def row(self, kind: str, group: str) -> ResourceRow | None:
        """Return how a kind makes pods; None: the table does not say."""
        return next((row for row in self.resource if kind in row.kinds and group in row.groups), None)


@cache
def resource_table() -> ResourceTable:
    """Return the table."""
    content = resources.files("steersman.data").joinpath("custom_resources.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(content), ResourceTable)
