"""The golden file of errors' texts has no entry of a test that is gone, and `raises` notices another text."""

import json
import re
from pathlib import Path

import pytest
from tests.support import errors

from steersman.core.errors import InputError, UsageError

ROOT = Path(__file__).parents[3]


def test_every_text_belongs_to_an_existing_test() -> None:
    known: dict[str, set[str]] = {}
    for test in json.loads(errors.GOLDEN.read_text()):
        file, _, rest = test.partition("::")
        name = rest.partition("[")[0].split("::")[-1]
        if file not in known:
            known[file] = set(re.findall(r"def (test_\w+)", (ROOT / file).read_text()))
        assert name in known[file], f"{test} is gone; take its text out of {errors.GOLDEN.name}"


def test_other_texts_values_and_types_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "check_text", lambda _: None)
    with errors.raises(InputError, "cpu", 7, where="line 7"):
        raise InputError("f.csv", "line 7", "cpu", "is 7")
    with pytest.raises(AssertionError), errors.raises(InputError, "memory"):
        raise InputError("f.csv", "line 7", "cpu", "is 7")
    with pytest.raises(AssertionError), errors.raises(InputError, where="line 8"):
        raise InputError("f.csv", "line 7", "cpu", "is 7")
    with pytest.raises(InputError), errors.raises(UsageError):
        raise InputError("f.csv", "line 7", "cpu", "is 7")


def test_a_text_is_compared_with_the_golden_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(errors.UPDATE, raising=False)
    test = "tests/unit/core/test_error_texts.py::test_a_text_is_compared_with_the_golden_file"
    monkeypatch.setattr(errors, "_golden", lambda: {test: ["at 127.0.0.1:PORT", "two"]})
    errors.check_text("at 127.0.0.1:4711")
    with pytest.raises(AssertionError, match="another text"):
        errors.check_text("three")
    with pytest.raises(AssertionError, match="another text"):
        errors.check_text("a third one")
