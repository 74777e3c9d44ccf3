"""What a site adds to a sum of all sites, how it is written in fixed point, and the noise on the sum.

Under secure sums real numbers become whole ones, so that sums of masked numbers are exact: fixed point with
stochastic rounding. Numbers of several sites are added modulo 2^32. A site's number lies within -range..range and
becomes a whole number within -L..L, with L so small that the sum over the whole cohort still fits: it cannot
overflow. What lies outside the range is clipped, and clipped numbers are counted. Rounding is up or down at random,
right on average.

Site-level differential privacy tells one noised sum a round: the coordinator adds the noise, or the sites do in
shares. In shares, under secure sums, each site adds a little noise, and only the sum has enough of it. The numbers
are whole, so the noise must be. Skellam's, the difference of two Poisson numbers, is closed under sums: the noise
of any sites that answered is Skellam's again, of the sum of their variances, so nothing has to be bounded that
depends on who dropped out. Agarwal, Kairouz, Liu 2021, The Skellam Mechanism for Differentially Private Federated
Learning. docs/decisions/0033-noise-in-shares.md says more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.errors import UserError
from fedrel.federation.messages import RefusedError, Update
from fedrel.privacy.differential_privacy import NoisedSum, RoundNoise, Steps, clipped
from fedrel.privacy.secret_keys import Ring
from fedrel.tensors.weights import Floats, NoAnswerError, Weights, dense

if TYPE_CHECKING:
    from fedrel.config.config_sections import DifferentialPrivacy
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site

LARGEST_LOSS = 64.0  # a larger mean loss is clipped
COUNTS = 3  # numbers at the end that are whole: the weight, the examples, how many numbers were clipped

LARGEST_SUM = 2**31 - 1  # of the numbers modulo 2^32, half stand for negative ones
_AT_ONCE = 1 << 16  # numbers that are rounded or noised at once: they stay in the processor's cache

CLIP = "dp.clip"  # in the coordinator's state: the norm of the next round, where it adapts

FINE = (
    2**22
)  # the noise's standard deviation in steps of the fixed point, if the sum of all sites has room for it
TAIL = 10.0  # standard deviations of noise that the sum has room for
LEAST = 2 / 3  # of the cohort: noise of as many sites suffices; more may not drop out, nor be in league


@dataclass(frozen=True)
class Summand:
    """A site's numbers, and how much they count; or the mean of several sites' numbers, and their sums."""

    numbers: Floats
    weight: float
    examples: int = 1
    loss: float = 0.0
    clipped: int = 0
    """How many of the numbers did not fit."""

    def within(self, norm: float | None) -> Summand:
        """With its numbers scaled down to a norm, if they are longer; without one, itself."""
        if norm is None:
            return self
        numbers = clipped(self.numbers.reshape(-1).astype(np.float64), norm)
        return replace(self, numbers=numbers.astype(np.float32))


def encoded(summand: Summand, numbers: FixedPoint, bound: int, generator: np.random.Generator) -> Ring:
    """A summand in fixed point, its numbers multiplied by its weight's share of the largest weight there is."""
    if not 0 < summand.weight <= bound or summand.weight != int(summand.weight):
        raise RefusedError(
            f"a weight of {summand.weight:g} in the sum, and whole numbers up to {bound} are agreed"
        )
    if numbers.sites * max(bound, summand.examples) > LARGEST_SUM:
        raise RefusedError(f"{numbers.sites} sites with {summand.examples} examples do not fit a sum")
    share = summand.weight / bound
    loss = np.array([min(summand.loss, LARGEST_LOSS) / LARGEST_LOSS * numbers.range], np.float32)
    found, beyond = numbers.encode(np.concatenate([summand.numbers.reshape(-1), loss]), share, generator)
    counts = [int(summand.weight), summand.examples, min(beyond, numbers.levels)]
    return np.concatenate([found, np.array(counts, np.uint32)])


def decoded(total: Ring, numbers: FixedPoint, bound: int, sites: int) -> Summand:
    """The mean that a sum of so many encoded summands stands for, weighted by their weights.

    `NoAnswerError` if there is none, or if the weights cannot be true.
    """
    if len(total) <= COUNTS:
        raise NoAnswerError
    weight, examples, beyond = (int(count) for count in total[-COUNTS:])
    if not sites <= weight <= bound * sites:
        raise NoAnswerError(f"the weights of {sites} sites add up to {weight}: a site lied")
    mean = numbers.decode(total[:-COUNTS]) * (bound / weight)
    loss = float(mean[-1]) / numbers.range * LARGEST_LOSS
    return Summand(mean[:-1].astype(np.float32), weight, examples, loss, beyond)


@dataclass(frozen=True, slots=True)
class SummedUpdate(Update):
    """The mean of several sites' updates, in the place of one site's; it never travels."""

    count: float

    @property
    def sites(self) -> float:
        """How many sites it is the mean of."""
        return self.count


def check_uniform(fed: Federation, weighting: str, name: str) -> None:
    """Fail for a method that needs the plain mean, if the sum's weights are not all the same.

    With noise that hides sites they always are.
    """
    if weighting != "uniform" and not fed.privacy.site_noise:
        hint = f'set methods.{name}.weighting = "uniform"'
        raise UserError(
            f"{name} with secure sums needs the mean over sites that all count the same", hint=hint
        )


def moves(start: Weights, update: Update) -> Floats:
    """How far training moved each weight, one tensor after the other by name; of tables, every row."""
    trained = dense(start, update.weights)
    return in_line({name: trained[name] - tensor for name, tensor in start.items()})


def in_line(tensors: Weights) -> Floats:
    """The numbers of all tensors, one tensor after the other by name."""
    return np.concatenate([tensors[name].reshape(-1) for name in sorted(tensors)])


def moved_by(start: Weights, numbers: npt.NDArray[np.float32]) -> dict[str, Floats]:
    """The weights that such moves lead to. A run that was resumed may have them in another order than the sites."""
    names = sorted(start)
    parts = np.split(numbers, np.cumsum([start[name].size for name in names])[:-1])
    moved = dict(zip(names, parts, strict=True))
    return {name: tensor + moved[name].reshape(tensor.shape) for name, tensor in start.items()}


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
