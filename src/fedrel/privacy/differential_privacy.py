"""Differential privacy: a sum told with noise (`level = "site"`), and what noise is worth (ε, for a given δ).

At the level of sites, updates are clipped to a norm, and their sum is told with Gaussian noise. McMahan et al.
2018, Learning Differentially Private Recurrent Language Models (Algorithm 1, with a fixed denominator): all sites
count the same, and the sum is divided by how many sites a round has on average, whoever answers. The norm is fixed
or follows a quantile of the updates' norms: Andrew et al. 2021, Differentially Private Learning with Adaptive
Clipping.

ε is that of all noised sums that were made from the same data. Each sum is a step: parts are drawn with some rate,
each is clipped to norm S, and their sum is told with Gaussian noise of standard deviation `noise` times S. Two
data sets are neighbours if they are the same but for one part (a site, a sentence) that adds nothing in one of
them; how many parts there are is public. dp-accounting composes the privacy loss distributions (PLD) of the steps
and rounds so that ε is never too small. Of Skellam's noise only the Rényi divergence is known: where such steps
are among them, all are composed by that (RDP). Steps of several kinds compose, so a list of them is all that has
to be kept of earlier runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.config.config_sections import DifferentialPrivacy
    from fedrel.config.schema import Training

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

INTERVAL = 1e-3  # between privacy losses that are told apart,
WIDEST = 100.0  # at most, where little noise makes them large
LEAST_NOISE, MOST_NOISE = 0.05, 1e4  # where the noise for an ε is searched: with less, ε promises nothing
ORDERS = (*range(2, 64), *range(64, 257, 8), 512, 1024)  # of Rényi divergences: whole, as for Skellam's noise
CLOSE = 1e-3  # how closely the noise for a wanted ε is searched, relative to it


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


@dataclass(frozen=True, slots=True)
class Steps:
    """So many noised sums of a kind: `rate` is the probability with which a part is in one of them."""

    noise: float
    rate: float = 1.0
    count: int = 1
    extra: float = 0.0
    """What the Rényi divergence of a sum with Skellam's noise has beyond that of Gaussian noise, at every order."""


def epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """ε of so many steps of one kind, with parts drawn by Poisson sampling."""
    return composed_epsilon([Steps(noise, rate, steps)], delta)


def composed_epsilon(steps: Iterable[Steps], delta: float) -> float:
    """ε of steps of several kinds over the same data, in any order; 0 without any."""
    counts: dict[Steps, int] = {}
    for one in steps:
        if one.count and one.rate:
            kind = replace(one, count=1)
            counts[kind] = counts.get(kind, 0) + one.count
    if not counts:
        return 0.0
    if any(kind.extra for kind in counts):
        return _composed_by_orders(frozenset(counts.items()), delta)
    return _composed(tuple(sorted((kind.noise, kind.rate, count) for kind, count in counts.items())), delta)


def noise_for(target: float, cost: Callable[[float], float]) -> float:
    """The least noise for which ε, which `cost` tells of a noise, is at most `target`."""
    low, high = LEAST_NOISE, MOST_NOISE
    if not cost(high) <= target:
        raise UserError(f"no noise makes ε as small as {target:g}", hint="ask for fewer rounds")
    while high > low * (1 + CLOSE):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high


def local_steps(dp: DifferentialPrivacy, training: Training, examples: int, rounds: int = 1) -> Steps:
    """The steps of so many rounds of local training at a site with so many examples, at `level = "sentence"`.

    Each step draws every example with probability q = B / n, and an epoch has 1 / q of them, to the nearest whole
    number: so that on average every example is in one of them.
    """
    rate = min(1.0, training.batch_size / examples)
    return Steps(dp.noise, rate, rounds * training.epochs * round(1 / rate))


def check_accountant() -> None:
    """Fail if dp-accounting, which computes ε, is not installed."""
    if find_spec("dp_accounting") is None:
        raise UserError(
            "privacy.dp needs dp-accounting, which is not installed", hint="pip install 'fedrel[privacy]'"
        )


@lru_cache(maxsize=4096)
def _composed(kinds: tuple[tuple[float, float, int], ...], delta: float) -> float:
    spare_stderr()
    from dp_accounting.pld import privacy_loss_distribution as pld

    weakest = min(noise / count**0.5 if rate == 1 else noise for noise, rate, count in kinds)
    interval = min(INTERVAL * max(1.0, weakest**-2), WIDEST)
    whole: Any = None
    for noise, rate, count in kinds:
        if rate == 1:  # many Gaussian sums are one with less noise
            one = pld.from_gaussian_mechanism(noise / count**0.5, value_discretization_interval=interval)
        else:
            one = pld.from_gaussian_mechanism(
                noise, sampling_prob=rate, value_discretization_interval=interval
            ).self_compose(count)
        whole = one if whole is None else whole.compose(one)
    return float(whole.get_epsilon_for_delta(delta))


@lru_cache(maxsize=4096)
def _composed_by_orders(counts: frozenset[tuple[Steps, int]], delta: float) -> float:
    spare_stderr()
    import numpy as np
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    accountant, extra = RdpAccountant(orders=ORDERS), 0.0
    for kind, count in counts:
        sampled = PoissonSampledDpEvent(kind.rate, GaussianDpEvent(kind.noise))
        accountant.compose(GaussianDpEvent(kind.noise) if kind.rate == 1 else sampled, count)
        extra += kind.extra * count
    found, _ = compute_epsilon(ORDERS, np.asarray(accountant.rdp) + extra, delta)
    return float(found)


def spare_stderr() -> None:
    """Keep absl, which dp-accounting imports, from closing what was `stderr` then, when others set up logging."""
    from absl import logging

    logging.get_absl_handler().python_handler.stream = sys.__stderr__
