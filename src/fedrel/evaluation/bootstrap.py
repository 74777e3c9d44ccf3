"""How sure a difference between two methods is: a paired bootstrap over seeds and test units.

A unit is what the test set is made of: an entity pair (rankings), a sentence (classification) or a document. Two
methods are tested on the same units, so a resample draws the same units for both; it draws seeds as well. What is
left of the difference over many resamples is an interval of percentiles (Efron and Tibshirani 1993, ch. 13).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import Arrays, Curve, Ints, Record
from fedrel.evaluation.ranking import Ranking
from fedrel.seeding import numpy_generator

VERSION = 2  # raise it whenever the same answers come to another interval: pages keep theirs until then
RESAMPLES = 1000
LEVEL = 0.95


class Interval(Record):
    """A mean or a difference of means, and the range in which it lies in `LEVEL` of the resamples."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 if the whole range is on one side of zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)


class Units(ABC):
    """A run's answers on the test set, unit by unit, so that metrics can be computed on resamples of them."""

    metrics: ClassVar[frozenset[str]]
    """The metrics that can be."""

    @property
    def count(self) -> int:
        """How many units there are."""
        return len(self.facts_by_unit)

    @property
    @abstractmethod
    def facts_by_unit(self) -> Ints:
        """How many facts each unit has: the same for all methods that were tested on it."""

    @abstractmethod
    def value(self, metric: str, times: Ints) -> float:
        """A metric on the test set in which unit i occurs `times[i]` times."""


@dataclass(frozen=True, eq=False)
class CountedUnits(Units):
    """Sentences or documents: how many guesses each has, how many facts, and how many guesses are right, [n]."""

    metrics: ClassVar[frozenset[str]] = frozenset({"f1", "precision", "recall"})

    correct: Ints
    guesses: Ints
    facts: Ints

    @property
    def facts_by_unit(self) -> Ints:
        """The facts of each sentence or document."""
        return self.facts

    def value(self, metric: str, times: Ints) -> float:
        """Micro-averaged over all units."""
        correct, guesses, facts = (int(times @ counts) for counts in (self.correct, self.guesses, self.facts))
        below = {"f1": (guesses + facts) / 2, "precision": guesses, "recall": facts}[metric]
        return correct / max(below, 1)


@dataclass(frozen=True, eq=False)
class JudgedUnits(Units):
    """Judged sentences: the unit of each, [n], whether it states its relation, [n], and p(r|s), [n].

    `detection` is how well p(r|s) tells the sentences that state their relation from those that do not: the chance
    that one that does has a higher probability of it than one that does not, ties counted half. Sentences about
    one triple are one unit: they are alike.
    """

    metrics: ClassVar[frozenset[str]] = frozenset({"detection"})

    unit: Ints
    states: NDArray[np.bool_]
    probability: NDArray[np.float64]

    @property
    def facts_by_unit(self) -> Ints:
        """How many sentences of each unit state their relation."""
        return np.bincount(self.unit[self.states], minlength=int(self.unit.max(initial=-1)) + 1)

    def value(self, metric: str, times: Ints) -> float:
        """The area under the ROC curve; a half where all sentences have the same verdict."""
        assert metric == "detection"
        weight = times[self.unit].astype(np.float64)
        _, level = np.unique(self.probability, return_inverse=True)
        stating = np.bincount(level, weight * self.states)
        other = np.bincount(level, weight * ~self.states)
        below = np.cumsum(other) - other
        pairs = stating.sum() * other.sum()
        return float((stating * (below + other / 2)).sum() / pairs) if pairs else 0.5


@dataclass(frozen=True, eq=False)
class RankedUnits(Units):
    """Guesses about entity pairs, from the surest down: the pair of each, [g], and whether it is right, [g]."""

    metrics: ClassVar[frozenset[str]] = frozenset(
        {"auc", "auc_2000", "p_at_100", "p_at_200", "p_at_300", "p_mean", "max_f1"}
    )

    pair: Ints
    right: NDArray[np.bool_]

    @cached_property
    def facts_by_unit(self) -> Ints:
        """The facts of each pair, which has a guess for every relation."""
        return np.bincount(self.pair[self.right], minlength=int(self.pair.max(initial=-1)) + 1)

    def value(self, metric: str, times: Ints) -> float:
        """The metric of the list in which each guess stands as often as its pair."""
        often = times[self.pair]
        after, own = np.cumsum(often), often[self._facts]
        first = after[self._facts] - own  # where a right guess stands for the first time
        places = np.repeat(first - np.cumsum(own) + own, own) + np.arange(own.sum())
        return Ranking(places, int(often.sum())).metrics()[metric]

    def curve(self, points: int) -> Curve:
        """Precision and recall of the list, with at most so many points."""
        return Ranking(self._facts, len(self.right)).curve(points)

    @cached_property
    def _facts(self) -> Ints:
        return np.flatnonzero(self.right)


def units_of(arrays: Arrays) -> Units:
    """Units from the arrays that `Outcome.units` gives."""
    if "pair" in arrays:
        return RankedUnits(arrays["pair"].astype(np.int64), arrays["right"].astype(np.bool_))
    return CountedUnits(*(arrays[name].astype(np.int64) for name in ("correct", "guesses", "facts")))


class UnlikeUnitsError(ValueError):
    """Runs were tested on different units."""


def interval(runs: Sequence[Units], metric: str, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of `metric` over runs of several seeds, with its interval."""
    generator, tests = numpy_generator(seed, "bootstrap"), _tests(runs)
    found = []
    for _ in range(resamples):
        times = _resample(tests, generator)
        found.append(_mean(runs, generator.integers(len(runs), size=len(runs)), metric, times))
    return _around(_mean(runs, range(len(runs)), metric, _once(runs)), found)


def difference(
    ours: Sequence[Units],
    theirs: Sequence[Units],
    metric: str,
    *,
    folds: Sequence[str] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of `metric` over our runs minus that over theirs, with its interval.

    A method's runs are by seed, in the same order for both. With as many seeds each, a resample draws pairs of
    runs; the two of a pair must have been tested on the same units, and without pairs all runs must. Runs on the
    same units share the units that are drawn; `folds` names the test set of each pair, where several look alike.
    """
    paired = len(ours) == len(theirs)
    pairs = zip(ours, theirs, strict=True) if paired else ((ours[0], other) for other in (*ours, *theirs))
    if not all(np.array_equal(one.facts_by_unit, other.facts_by_unit) for one, other in pairs):
        counts = [[run.count for run in own] for own in (ours, theirs)]
        raise UnlikeUnitsError(f"runs were tested on different units: {counts[0]} and {counts[1]}")
    generator, tests = numpy_generator(seed, "bootstrap"), _tests(ours, folds)
    found = []
    for _ in range(resamples):
        times = _resample(tests, generator)
        first = generator.integers(len(ours), size=len(ours))
        second = first if paired else generator.integers(len(theirs), size=len(theirs))
        others = times if paired else times[:1] * len(theirs)
        found.append(_mean(ours, first, metric, times) - _mean(theirs, second, metric, others))
    mean = _mean(ours, range(len(ours)), metric, _once(ours))
    return _around(mean - _mean(theirs, range(len(theirs)), metric, _once(theirs)), found)


def mean_of_seeds(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of one number a seed, with its interval: a resample draws seeds."""
    drawn = numpy_generator(seed, "bootstrap").integers(len(values), size=(resamples, len(values)))
    return _around(float(np.mean(values)), np.asarray(values)[drawn].mean(axis=1).tolist())


_Test = tuple[str, int, bytes]


def _tests(runs: Sequence[Units], folds: Sequence[str] = ()) -> list[_Test]:
    """What each run was tested on: runs with the same have the same units."""
    return [
        (fold, run.count, sha256(run.facts_by_unit.tobytes()).digest())
        for run, fold in zip(runs, folds or [""] * len(runs), strict=True)
    ]


def _resample(tests: Sequence[_Test], generator: np.random.Generator) -> list[Ints]:
    """How often each unit occurs in a resample, for each run."""
    drawn = {
        test: np.bincount(generator.integers(test[1], size=test[1]), minlength=test[1])
        for test in dict.fromkeys(tests)
    }
    return [drawn[test] for test in tests]


def _once(runs: Sequence[Units]) -> list[Ints]:
    return [np.ones(run.count, np.int64) for run in runs]


def _mean(runs: Sequence[Units], chosen: Sequence[int] | Ints, metric: str, times: Sequence[Ints]) -> float:
    """The mean over the chosen runs; one that was chosen twice is evaluated once."""
    which, often = np.unique(np.asarray(chosen), return_counts=True)
    return float(np.average([runs[run].value(metric, times[run]) for run in which], weights=often))


def _around(mean: float, found: Sequence[float]) -> Interval:
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean=mean, low=float(low), high=float(high))
