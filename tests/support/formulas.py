"""Random formulas."""

from __future__ import annotations

import numpy as np

from steersman.cluster.model import GPU_MILLI
from steersman.policies.formulas.features import TERM_NAMES
from steersman.policies.formulas.formula import Formula, FormulaTerm


def random_formula(random: np.random.Generator, terms: int = 6) -> Formula:
    """Return a formula of random terms and constants, `terms` for each kind of pod."""
    names = random.permutation(np.array(TERM_NAMES))
    some = [
        tuple(FormulaTerm(float(f"{random.normal():.3g}"), str(name)) for name in names[k::4][:terms]) for k in range(4)
    ]
    sizes = sorted({*random.choice([50, 220, 250, 330, 500, 700], 3).tolist(), GPU_MILLI})
    claimed = {"T4": float(f"{random.random():g}"), "V100": 0.25}
    memory = float(f"{random.uniform(1e5, 1e7):g}") if random.random() < 0.7 else 0.0
    return Formula(tuple(some), float(f"{random.uniform(500, 20_000):g}"), memory, tuple(sizes), claimed)
