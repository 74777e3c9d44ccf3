"""Site-level differential privacy: one noised sum a round, by the coordinator or in shares by the sites."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedrel.federation.summands import COUNTS, Summand, decoded, encoded
from fedrel.privacy.fixed_point import Ring
from fedrel.privacy.noise_shares import NoiseShares
from fedrel.privacy.site_noise import NoisedSum, RoundNoise, clipped
from fedrel.tensors.weights import Floats

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site

CLIP = "dp.clip"  # in the coordinator's state: the norm of the next round, where it adapts


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
