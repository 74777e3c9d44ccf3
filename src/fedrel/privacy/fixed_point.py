"""Real numbers as whole ones, so that sums of masked numbers are exact: fixed point with stochastic rounding.

Numbers of several sites are added modulo 2^32. A site's number lies within -range..range and becomes a whole number
within -L..L, with L so small that the sum over the whole cohort still fits: it cannot overflow. What lies outside
the range is clipped, and clipped numbers are counted. Rounding is up or down at random, right on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ring = npt.NDArray[np.uint32]

LARGEST_SUM = 2**31 - 1  # of the numbers modulo 2^32, half stand for negative ones
_AT_ONCE = 1 << 16  # numbers that are rounded at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """How one cohort's numbers are written: within `range`, for at most `sites` sites."""

    range: float
    sites: int

    @property
    def levels(self) -> int:
        """L: the whole number that stands for `range`."""
        return LARGEST_SUM // self.sites

    @property
    def step(self) -> float:
        """The difference between two neighbouring numbers: no site's number is off by more."""
        return self.range / self.levels

    def encode(self, numbers: Floats, share: float, generator: np.random.Generator) -> tuple[Ring, int]:
        """`share` times each number (a share of at most 1), as whole numbers; and how many had to be clipped."""
        flat = numbers.reshape(-1)
        found = np.empty(len(flat), np.int32)
        clipped = 0
        for start in range(0, len(flat), _AT_ONCE):
            part: npt.NDArray[np.float64] = flat[start : start + _AT_ONCE].astype(np.float64)
            largest = max(part.max(), -part.min())
            if not largest <= self.range:  # also if it is no number
                clipped += int(np.count_nonzero(np.abs(part) > self.range))
                np.clip(part, -self.range, self.range, out=part)
            part *= share / self.step
            part += generator.random(len(part))
            np.floor(part, out=part)
            if not largest < self.range:  # rounded up, it may be one too many
                np.clip(part, -self.levels, self.levels, out=part)
            found[start : start + _AT_ONCE] = part
        return found.view(np.uint32), clipped

    def decode(self, total: Ring) -> npt.NDArray[np.float64]:
        """The sum that the whole numbers stand for."""
        return total.view(np.int32).astype(np.float64) * self.step
