"""Site-level differential privacy: updates clipped to a norm, their sum told with Gaussian noise.

McMahan et al. 2018, Learning Differentially Private Recurrent Language Models (Algorithm 1, with a fixed
denominator): all sites count the same, and the sum is divided by how many sites a round has on average, whoever
answers. The norm is fixed or follows a quantile of the updates' norms: Andrew et al. 2021, Differentially Private
Learning with Adaptive Clipping.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.privacy.accounting import Steps, epsilon

if TYPE_CHECKING:
    from fedrel.config.config_sections import DifferentialPrivacy

Floats = npt.NDArray[np.float64]
Normal = Callable[[int], Floats]
"""Gives so many numbers of the standard normal distribution."""

RATE = 0.2  # η_C of Andrew et al., how fast the norm follows
STEPS = 2.0**20  # of the grid for noised numbers, in a standard deviation
COUNTED = (
    20  # the count's noise has a standard deviation of one in so many of a round's sites, as in their paper,
)
COUNT_SHARE = (
    0.1  # but the count never costs more than this share of a round's budget: few sites get more noise
)


@dataclass(frozen=True, slots=True)
class RoundNoise:
    """How one round's sum is noised: the standard deviations of the noise on the sum, in parts of `clip`, and on
    the count of updates within it (0: not counted)."""

    clip: float
    updates: float
    count: float = 0.0

    @classmethod
    def of(cls, dp: DifferentialPrivacy, clip: float, sites: float) -> RoundNoise:
        """So that both together are worth `dp.noise`, in a round of so many sites on average.

        The count is told as the sum of ±1/2, so that one site changes it by 1/2 (their Section 3.1).
        """
        if dp.adaptive_clip is None:
            return cls(clip, dp.noise)
        count = max(sites / COUNTED, dp.noise / (2 * sqrt(COUNT_SHARE)))
        return cls(clip, (dp.noise**-2 - (2 * count) ** -2) ** -0.5, count)


class NoisedSum:
    """The sum of one round's updates, each clipped, and how many were within the norm."""

    def __init__(self, noise: RoundNoise, size: int) -> None:
        self._noise = noise
        self._sum: Floats = np.zeros(size)
        self._within = 0.0
        self.count = 0

    def add(self, numbers: npt.NDArray[np.floating]) -> None:
        """Add one site's numbers."""
        flat = numbers.reshape(-1).astype(np.float64)
        part = clipped(flat, self._noise.clip)
        self._sum += part
        self._within += 0.5 if part is flat else -0.5
        self.count += 1

    def mean(self, sites: float, normal: Normal) -> Floats:
        """The noised sum, divided by how many sites there are on average. To be called once."""
        return noised(self._sum, self._noise.updates * self._noise.clip, normal) / sites

    def next_clip(self, quantile: float, sites: float, normal: Normal) -> float:
        """The norm of the next round: C exp(-RATE (b - quantile)), b the noised share within C."""
        within = 0.5 + float(noised(np.array([self._within]), self._noise.count, normal)[0]) / sites
        return self._noise.clip * exp(-RATE * (within - quantile))


def noised(numbers: Floats, spread: float, normal: Normal) -> Floats:
    """Numbers with noise of this standard deviation, on a grid that is `STEPS` times finer.

    Which floating point numbers noise can reach depends on the number that it is added to, and the last bits would
    tell that (Mironov 2012). On the grid, every number within eight deviations can be reached from everywhere.
    """
    step = spread / STEPS
    found: Floats = np.rint((numbers + spread * normal(len(numbers))) / step) * step
    return found


def clipped(numbers: Floats, clip: float) -> Floats:
    """The numbers, scaled down to norm `clip` if theirs is larger; else themselves."""
    norm = float(np.sqrt(np.dot(numbers, numbers)))
    return numbers if norm <= clip else numbers * (clip / norm)


def round_steps(dp: DifferentialPrivacy, rate: float, rounds: int) -> Steps:
    """What one round costs, in a run of so many.

    Poisson sampling is what the accountant knows. Of samples of a fixed size, one without a certain site has
    another site in its place: sums that are up to 2 S apart are compared, so half the noise counts (by advanced
    joint convexity, Balle, Barthe, Gaboardi 2018; docs/differential-privacy.md has the steps). Where that is worse
    than to count on no sampling at all, none is counted on.
    """
    if dp.sampling == "poisson" or rate == 1:
        return Steps(dp.noise, rate)
    sampled, unsampled = (dp.noise / 2, rate), (dp.noise, 1.0)
    costs = {kind: epsilon(*kind, rounds, dp.delta) for kind in (sampled, unsampled)}
    return Steps(*min(costs, key=lambda kind: costs[kind]))


def system_normal(count: int) -> Floats:
    """Numbers of the standard normal distribution out of the operating system's random bytes (Box and Muller)."""
    half = (count + 1) // 2
    uniform = (np.frombuffer(os.urandom(16 * half), np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-uniform[:half])), 2 * np.pi * uniform[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def longest_noise(dp: DifferentialPrivacy, sites: float, size: int) -> float:
    """How far the noise moves so many weights in a round at most: but for one round in 10^13, the clip being fixed.

    The length of n standard normal numbers exceeds √n + t with a probability below exp(-t²/2); t is 8.
    """
    return dp.noise * dp.clip / sites * (sqrt(size) + 8)
