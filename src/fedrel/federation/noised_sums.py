"""Site-level differential privacy: one noised sum a round, by the coordinator or in shares by the sites.

In shares, under secure sums, each site adds a little noise, and only the sum has enough of it. The numbers are
whole, so the noise must be. Skellam's, the difference of two Poisson numbers, is closed under sums: the noise of
any sites that answered is Skellam's again, of the sum of their variances, so nothing has to be bounded that
depends on who dropped out. Agarwal, Kairouz, Liu 2021, The Skellam Mechanism for Differentially Private Federated
Learning. docs/decisions/0033-noise-in-shares.md says more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedrel.federation.summands import COUNTS, LARGEST_SUM, FixedPoint, Summand, decoded, encoded
from fedrel.privacy.differential_privacy import NoisedSum, RoundNoise, Steps, clipped
from fedrel.privacy.secret_keys import Ring
from fedrel.tensors.weights import Floats

if TYPE_CHECKING:
    from fedrel.config.privacy_sections import DifferentialPrivacy
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site

CLIP = "dp.clip"  # in the coordinator's state: the norm of the next round, where it adapts

FINE = (
    2**22
)  # the noise's standard deviation in steps of the fixed point, if the sum of all sites has room for it
TAIL = 10.0  # standard deviations of noise that the sum has room for
LEAST = 2 / 3  # of the cohort: noise of as many sites suffices; more may not drop out, nor be in league

_AT_ONCE = 1 << 16


def site_noise(fed: Federation, size: int) -> NoisedSum:
    """A sum of so many numbers, clipped to the round's norm."""
    dp = fed.privacy.site_noise
    assert dp is not None
    clip = float(fed.state[CLIP][0]) if CLIP in fed.state else dp.clip
    fed.notes.clip = clip
    return NoisedSum(RoundNoise.of(dp, clip, fed.drawn.expected), size)


def noised_mean(fed: Federation, total: NoisedSum) -> Floats:
    """The mean that the sum stands for, with its noise; the norm of the next round follows."""
    dp, sites = fed.privacy.site_noise, fed.drawn.expected
    assert dp is not None
    if dp.adaptive_clip is not None:
        clip = total.next_clip(dp.adaptive_clip, sites, fed.normal("count noise", fed.attempt))
        fed.state[CLIP] = np.array([clip], np.float32)
    fed.notes.rates.append(fed.drawn.rate)
    return total.mean(sites, fed.normal("noise", fed.attempt)).astype(np.float32)


def noised_summand(site: Site, summand: Summand, cohort: int) -> Ring:
    """Under secure sums: a site's numbers, clipped, in fixed point, with its share of the noise.

    All sites count the same. The loss, which no noise covers, is not told; how many examples a site has is public.
    """
    dp = site.privacy.site_noise
    assert dp is not None
    flat = summand.numbers.reshape(-1).astype(np.float64)
    shares = NoiseShares(dp, cohort, len(flat) + 1)  # with the place of the loss
    told = Summand(clipped(flat, dp.clip).astype(np.float32), 1.0, summand.examples)
    numbers = encoded(told, shares.numbers, 1, site.rounding)
    shares.add(numbers, site.sums.noise)
    return numbers


def unnoised(fed: Federation, total: Ring, cohort: int, answered: int) -> Summand:
    """The mean that a secure sum of such numbers stands for; what it costs is noted."""
    dp = fed.privacy.site_noise
    assert dp is not None
    shares = NoiseShares(dp, cohort, max(len(total) - COUNTS, 1))
    fed.notes.clip, fed.notes.extra = dp.clip, max(shares.cost.extra, fed.notes.extra)
    return replace(decoded(total, shares.numbers, 1, answered), loss=0.0)


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
