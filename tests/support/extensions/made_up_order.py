"""An order that is not steersman's, in one file: `largest` once more."""

import numpy as np

from steersman.orders.order import Order


class LargestFirst(Order):
    """The pod that requests most goes first."""

    __slots__ = ()

    def given(self, time, size, pods):
        return -size


class Fails(Order):
    __slots__ = ()

    def given(self, time, size, pods):
        return 1 / 0


class NoNumber(Order):
    __slots__ = ()

    def given(self, time, size, pods):
        return time * np.nan


LARGEST_FIRST, FAILS, NO_NUMBER = LargestFirst("largest-first"), Fails("fails"), NoNumber("no-number")
