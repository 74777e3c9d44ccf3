"""Noise in shares, under secure sums: each site adds a little, and only the sum has enough of it.

The numbers are whole, so the noise must be. Skellam's, the difference of two Poisson numbers, is closed under sums:
the noise of any sites that answered is Skellam's again, of the sum of their variances, so nothing has to be bounded
that depends on who dropped out. Agarwal, Kairouz, Liu 2021, The Skellam Mechanism for Differentially Private
Federated Learning. docs/decisions/0033-noise-in-shares.md says more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedrel.privacy.accounting import Steps
from fedrel.privacy.fixed_point import LARGEST_SUM, FixedPoint, Ring

if TYPE_CHECKING:
    from fedrel.config.config_sections import DifferentialPrivacy

FINE = (
    2**22
)  # the noise's standard deviation in steps of the fixed point, if the sum of all sites has room for it
TAIL = 10.0  # standard deviations of noise that the sum has room for
LEAST = 2 / 3  # of the cohort: noise of as many sites suffices; more may not drop out, nor be in league

_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class NoiseShares:
    """How the noise on one secure sum of `size` numbers is divided among a cohort of `sites`."""

    dp: DifferentialPrivacy
    sites: int
    size: int

    @property
    def numbers(self) -> FixedPoint:
        """The fixed point of the sum: fine against the noise, with room for all sites' numbers and the noise."""
        clip, noise = self.dp.clip, self.dp.noise
        room = (self.sites * clip + TAIL * noise * clip * sqrt(1 / LEAST)) / LARGEST_SUM
        step = max(noise * clip / FINE, room)
        return FixedPoint(step * (LARGEST_SUM // self.sites), self.sites)

    @property
    def sensitivity(self) -> float:
        """How far one site can move the sum, in steps: its clipped numbers, each rounded up or down."""
        return self.dp.clip / self.numbers.step + sqrt(self.size)

    @property
    def variance(self) -> float:
        """Of one site's share of the noise, in squared steps: that of the least sites that must answer suffices."""
        return (self.dp.noise * self.sensitivity) ** 2 / ceil(LEAST * self.sites)

    @property
    def cost(self) -> Steps:
        """What the sum costs, for one who sees who takes part: by Corollary 3.6, at most 3/2 of the largest sum of
        absolute changes over the variance, beside what Gaussian noise of this variance costs."""
        variance = (self.dp.noise * self.sensitivity) ** 2
        return Steps(self.dp.noise, extra=1.5 * sqrt(self.size) * self.sensitivity / variance)

    def add(self, numbers: Ring, generator: np.random.Generator) -> None:
        """Add one site's share to its first `size` numbers, modulo 2^32."""
        for start in range(0, self.size, _AT_ONCE):
            part = numbers[start : min(start + _AT_ONCE, self.size)]
            drawn = generator.poisson(self.variance / 2, (2, len(part)))
            part += (drawn[0] - drawn[1]).astype(np.uint32)
