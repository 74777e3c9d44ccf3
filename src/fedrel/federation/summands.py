"""What a site adds to a secure sum, and how it is written in fixed point with stochastic rounding.

Real numbers become whole ones, so that sums of masked numbers are exact. Numbers of several sites are added modulo
2^32. A site's number lies within -range..range and becomes a whole number within -L..L, with L so small that the
sum over the whole cohort still fits: it cannot overflow. What lies outside the range is clipped, and clipped
numbers are counted. Rounding is up or down at random, right on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.errors import UserError
from fedrel.federation.messages import RefusedError, Update
from fedrel.privacy.differential_privacy import clipped
from fedrel.privacy.secret_keys import Ring
from fedrel.tensors.weights import Floats, NoAnswerError, Weights, dense

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation

LARGEST_LOSS = 64.0  # a larger mean loss is clipped
COUNTS = 3  # numbers at the end that are whole: the weight, the examples, how many numbers were clipped

LARGEST_SUM = 2**31 - 1  # of the numbers modulo 2^32, half stand for negative ones
_AT_ONCE = 1 << 16  # numbers that are rounded at once: they stay in the processor's cache


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
