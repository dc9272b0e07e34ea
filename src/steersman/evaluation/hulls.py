"""Convex envelopes of points in the plane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Point = tuple[float, float]


def upper_hull(x: Floats, y: Floats) -> list[Point]:
    """The corners of the smallest concave function that is nowhere below the points; [n] x ascending.

    Of several points with one x the highest counts. Source: Andrew's monotone chain (Inf. Proc. Letters 9, 1979).
    """
    hull: list[Point] = []
    for point in sorted(dict(sorted(zip(x.tolist(), y.tolist(), strict=True))).items()):
        while len(hull) > 1 and not _turns_right(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def lower_hull(x: Floats, y: Floats) -> list[Point]:
    """The corners of the largest convex function that is nowhere above the points; see `upper_hull`."""
    return [(px, -py) for px, py in upper_hull(x, np.negative(y))]


def _turns_right(a: Point, b: Point, c: Point) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) < (b[1] - a[1]) * (c[0] - a[0])
