"""The coordinator's half of site-level differential privacy: one noised sum a round, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrel.privacy.site_noise import NoisedSum, RoundNoise
from fedrel.tensors.weights import Floats

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation

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
