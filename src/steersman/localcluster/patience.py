"""How long to wait for what takes the longer the more of it there is: as long as it goes on."""

from __future__ import annotations

import math
import time


class Patience:
    """Ends when nothing has become less for a while.

    Args:
        seconds: for how long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._fewest = math.inf
        self._since = time.monotonic()

    def ends(self, left: int) -> bool:
        """Whether it is too long since there were fewer left than ever before; `left` is how many there are now."""
        if left < self._fewest:
            self._fewest, self._since = left, time.monotonic()
        return time.monotonic() > self._since + self.seconds
