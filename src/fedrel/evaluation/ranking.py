"""Metrics of ranked facts: precision and recall down the list, AUC, P@N and maximal F1.

This is the held-out evaluation of distantly supervised extraction, as in Lazy MIL's paper. Every (entity pair,
relation) with its probability is one guess. Guesses are sorted from the surest to the least sure, and a guess is
right if the knowledge base has that fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import Arrays, Curve, Ints, Record

Floats = NDArray[np.float64]

_MOST = 1 << 31  # guesses that a sort key has room for


def rank(scores: NDArray[np.float32], facts: NDArray[np.integer], na: int | None = 0) -> Ranking:
    """Rank the guesses of `scores` [pairs, relations] against `facts` [n, 2] of (pair, relation).

    The column `na`, if there is one, is no guess and a fact of that relation is no fact; a fact listed twice counts
    once.
    Equal scores keep the order (pair, relation), so a ranking never depends on how it was sorted.
    """
    scores = np.asarray(scores, dtype=np.float32)
    if scores.ndim != 2 or not 0 <= (na or 0) < scores.shape[1]:
        raise ValueError(f"scores must be [pairs, relations] with a column {na}; got shape {scores.shape}")
    left = [] if na is None else [na]
    guesses = np.delete(scores, left, axis=1).ravel()
    if np.isnan(guesses).any():
        raise ValueError("a score is NaN: the ranking would be meaningless")
    if guesses.size > _MOST:
        raise ValueError(f"{guesses.size:,} scores; at most {_MOST:,} can be ranked at once")
    right = np.delete(_fact_mask(np.asarray(facts), scores.shape), left, axis=1).ravel()
    return Ranking(
        _places(guesses, right), guesses.size, Guesses(guesses, right, scores.shape[1] - len(left))
    )


@dataclass(frozen=True, eq=False)
class Guesses:
    """What was ranked, pair after pair: each guess's score, [g], and whether it is right, [g]."""

    scores: NDArray[np.float32]
    right: NDArray[np.bool_]
    relations: int  # guesses about a pair


@dataclass(frozen=True, eq=False)
class Ranking:
    """A ranked list of `guesses` guesses, as the positions of the right ones: one position for each fact.

    Between two right guesses recall does not change and precision falls. So areas and maxima follow from these
    positions alone; there are thousands of them, and millions of guesses. A number that has no meaning is 0.0:
    an area under fewer than two points; recall, area, precision and F1 when there are no facts to find.
    """

    right: NDArray[np.int64]  # [facts], ascending from 0
    guesses: int
    ranked: Guesses | None = None

    @property
    def threshold(self) -> None:
        """A ranking has none."""

    @property
    def facts(self) -> int:
        """How many facts there are; all of them are found in the end."""
        return len(self.right)

    @cached_property
    def precision(self) -> Floats:
        """The share of the first i + 1 guesses that is right."""
        return self._found / np.arange(1, self.guesses + 1)

    @cached_property
    def recall(self) -> Floats:
        """The share of all facts that the first i + 1 guesses have found."""
        return self._found / max(self.facts, 1)

    @property
    def auc(self) -> float:
        """Area under the precision-recall curve by the trapezoid, over the points as they are."""
        return self._area(self.guesses)

    @property
    def auc_2000(self) -> float:
        """The same over the first 2,000 guesses only, as the papers' NYT10 figures have it."""
        return self._area(2000)

    @property
    def max_f1(self) -> float:
        """The best F1 of the first n guesses, over all n: 2 right / (n + facts)."""
        count = np.arange(1, self.facts + 1)
        return float(np.max(2 * count / (self.right + 1 + self.facts), initial=0.0))

    def p_at(self, n: int) -> float:
        """Right guesses among the first n, divided by exactly n, even if fewer were made."""
        if n < 1:
            raise ValueError(f"P@N needs N of at least 1, not {n}")
        return int(np.searchsorted(self.right, n)) / n

    def metrics(self) -> dict[str, float]:
        """The numbers of the papers' tables, by the names that `result.json` uses."""
        at = {f"p_at_{n}": self.p_at(n) for n in (100, 200, 300)}
        return {
            "auc": self.auc,
            "auc_2000": self.auc_2000,
            **at,
            "p_mean": sum(at.values()) / len(at),
            "max_f1": self.max_f1,
        }

    def files(self) -> dict[str, Record]:
        """The precision-recall curve."""
        return {"pr_curve.json": self.curve()}

    def units(self) -> Arrays:
        """The pair of each guess, from the surest down, and whether it is right."""
        if self.ranked is None:
            raise ValueError("only `rank` knows which pair a guess is about")
        order = np.argsort(-self.ranked.scores, kind="stable")
        return {"pair": (order // self.ranked.relations).astype(np.int32), "right": self.ranked.right[order]}

    def at_sites(self, shares: Mapping[str, Ints], metric: str) -> None:
        """None: a pair's sentences may be at several sites, so a pair belongs to no single one."""

    def curve(self, points: int = 1000) -> Curve:
        """The precision-recall curve with at most `points` points, which look the same when drawn.

        Recall is cut into columns; each keeps its first, last, lowest and highest point, so no spike of the
        curve goes missing, as an even subsample would lose the steep, short beginning that matters most.
        """
        if points < 4:
            raise ValueError(f"a curve needs at least 4 points, not {points}")
        kept = np.arange(self.guesses)
        if len(kept) > points:
            edges = np.linspace(0, self.recall[-1], points // 4, endpoint=False)
            starts = np.append(np.searchsorted(self.recall, edges), len(kept))
            kept = np.unique(np.concatenate([self._extremes(*span) for span in pairwise(starts)]))
        return Curve(precision=self.precision[kept].tolist(), recall=self.recall[kept].tolist())

    def _extremes(self, start: int, stop: int) -> NDArray[np.int64]:
        if start == stop:
            return np.empty(0, dtype=np.int64)
        part = self.precision[start:stop]
        return np.array([start, start + part.argmin(), start + part.argmax(), stop - 1])

    @property
    def _found(self) -> NDArray[np.int64]:
        """How many facts are among the first i + 1 guesses."""
        return np.searchsorted(self.right, np.arange(self.guesses), side="right")

    def _area(self, points: int) -> float:
        """Sum the trapezoids that end at a right guess; the others have no width. The first point ends none."""
        place = self.right[: np.searchsorted(self.right, points)]
        before = np.arange(len(place))
        heights = (before + 1) / (place + 1) + before / np.maximum(place, 1)
        return float(heights[place > 0].sum() / 2 / max(self.facts, 1))


def _fact_mask(facts: NDArray[np.integer], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where in the score matrix the facts are."""
    mask = np.zeros(shape, dtype=np.bool_)
    if facts.size == 0:
        return mask
    if facts.ndim != 2 or facts.shape[1] != 2:
        raise ValueError(f"facts must be [n, 2] of (pair, relation); got shape {facts.shape}")
    if facts.min() < 0 or (facts >= shape).any():
        raise ValueError(f"a fact lies outside the scores of {shape[0]} pairs and {shape[1]} relations")
    mask[facts[:, 0], facts[:, 1]] = True
    return mask


def _places(values: NDArray[np.float32], right: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The positions of the right ones of `values` in their stable descending order, ascending.

    Each value becomes one integer: its bits, turned so that larger values come first, above its position, above
    whether it is right. All keys differ, so numpy's vectorised unstable sort gives the stable order; sorting plain
    integers is several times faster than a stable argsort of floats, and nothing is looked up afterwards.
    """
    bits = (values + np.float32(0)).view(np.uint32)  # adding zero makes -0.0 tie with 0.0
    bits ^= ~(bits.view(np.int32) >> 31).view(np.uint32) & np.uint32(0x7FFF_FFFF)  # of negative ones, nothing
    keys = bits.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(0, 2 * len(keys), 2, dtype=np.uint64)
    keys |= right
    keys.sort()
    keys &= np.uint64(1)
    return np.flatnonzero(keys)
