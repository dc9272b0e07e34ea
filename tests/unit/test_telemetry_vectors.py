"""The rules of telemetry give what the shared cases say, which the Go plugin is held to as well."""

from collections import Counter

import numpy as np
from tests.vectors.telemetry import answer, read


def test_shared_cases() -> None:
    cases = read()
    for i, case in enumerate(cases):
        found = answer(case)
        assert found["outcome"] == case["outcome"], i
        for name, scores in case["scores"].items():
            np.testing.assert_allclose(
                np.array(found["scores"][name], dtype=float), np.array(scores, dtype=float), rtol=1e-12, err_msg=str(i)
            )
    outcomes = Counter(case["outcome"] for case in cases)
    assert len(outcomes) == 5
    assert min(outcomes.values()) >= 10
