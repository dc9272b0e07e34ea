"""Compiled code that writes the rows of a view names columns as `policies.features` does, and writes none by number."""

import inspect
import re
from types import ModuleType

import pytest

from steersman.policies.features import CLUSTER, TELEMETRY, View
from steersman.policies.observations import columns as cluster_columns
from steersman.policies.observations import encoding as cluster_encoding
from steersman.policies.observations import telemetry_columns, telemetry_encoding

MODULES = [(CLUSTER, cluster_columns, cluster_encoding), (TELEMETRY, telemetry_columns, telemetry_encoding)]
BY_NUMBER = re.compile(r"\b(?:out|nodes)\[(?:\w+, )*\d+\]")


@pytest.mark.parametrize(("view", "columns", "encoding"), MODULES, ids=lambda each: getattr(each, "name", ""))
def test_columns_match_the_view(view: View, columns: ModuleType, encoding: ModuleType) -> None:
    named = {name: column for name, column in vars(columns).items() if isinstance(column, int)}
    rows = {"NODE": view.node, "POD": view.pod, "CONTEXT": view.context}
    expected = {f"{row}_{each.name.upper()}": i for row, features in rows.items() for i, each in enumerate(features)}
    assert named == expected
    assert not BY_NUMBER.findall(inspect.getsource(encoding))


def test_column_written_by_index_is_detected() -> None:
    assert BY_NUMBER.findall("out[e, n, 10] = 1.0; out[0] = 1; nodes[e, n, 6]; out[e, n, columns.NODE_PODS]") == [
        "out[e, n, 10]",
        "out[0]",
        "nodes[e, n, 6]",
    ]
