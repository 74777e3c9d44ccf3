"""Metrics of the labels of single sentences: precision, recall and F1 of the relations, without NA.

FedED and FedCMC report these: the F1 of the positive class where there is one (GAD, EU-ADR, PGR), micro-F1 over the
relations where there are several (i2b2, CPR). `NA`, class 0 if it is one, means that there is nothing to find. It
has no score of its own: a relation taken for NA lowers recall, NA taken for a relation lowers precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedrel.data.relations import NA
from fedrel.evaluation.outcome import Arrays, AtSites, Classes, ClassScores, Confusion, Ints, Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classification:
    """Predicted and gold classes of the same sentences, [n] each, into the names `relations`.

    `rows` has the sentences' rows in their corpus; without it, they are numbered from 0. Where a number has no
    meaning, as the precision of a class that was never predicted, it is 0.0.
    """

    predicted: NDArray[np.integer]
    gold: NDArray[np.integer]
    relations: Sequence[str]
    rows: Ints | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.predicted.ndim != 1 or self.predicted.shape != self.gold.shape:
            shapes = f"{self.predicted.shape} and {self.gold.shape}"
            raise ValueError(f"expected as many predicted as gold classes, in one dimension; got {shapes}")
        for classes in (self.predicted, self.gold):
            if len(classes) and not 0 <= classes.min() <= classes.max() < len(self.relations):
                raise ValueError(f"a class is outside the {len(self.relations)} relations")

    @cached_property
    def matrix(self) -> Ints:
        """How many sentences of each gold class (row) were given each class (column)."""
        size = len(self.relations)
        cells = self.gold.astype(np.int64) * size + self.predicted
        return np.bincount(cells, minlength=size * size).reshape(size, size)

    def metrics(self) -> dict[str, float]:
        """The numbers of the papers' tables; `macro_f1` is over the relations that are in gold or predictions."""
        right, predicted, gold = (counts[self._first :] for counts in self._counts)
        present = predicted + gold > 0
        micro = _scores(*(counts.sum(keepdims=True) for counts in (right, predicted, gold)))
        macro = _scores(right, predicted, gold)["f1"][present]
        return {
            **{name: float(score[0]) for name, score in micro.items()},
            "macro_f1": float(macro.mean()) if present.any() else 0.0,
            "accuracy": float(np.trace(self.matrix)) / max(len(self.gold), 1),
        }

    def files(self) -> dict[str, Record]:
        """The scores of each relation, and which relations are taken for which."""
        return {"classes.json": Classes(per_class=self.per_class(), confusion=self.confusion())}

    def units(self) -> Arrays:
        """Of each sentence: whether a relation was guessed, whether it has one, and whether they agree."""
        guesses, facts = self.predicted >= self._first, self.gold >= self._first
        correct = facts & (self.predicted == self.gold)
        return {
            "correct": correct.astype(np.int32),
            "guesses": guesses.astype(np.int32),
            "facts": facts.astype(np.int32),
        }

    def at_sites(self, shares: Mapping[str, Ints], metric: str) -> AtSites:
        """A metric at each site, on its share of the sentences; `shares` has their rows, by site.

        None where there is nothing to measure: in a share without sentences and, but for the accuracy, in one that
        has only `NA`, where there is nothing to find.
        """
        rows = np.arange(len(self.gold)) if self.rows is None else self.rows
        order = np.argsort(rows)
        values: dict[str, float | None] = {}
        for site, share in shares.items():
            places = order[np.searchsorted(rows, share, sorter=order)]
            own = replace(self, predicted=self.predicted[places], gold=self.gold[places], rows=share)
            there = own.gold if metric == "accuracy" else own.gold[own.gold >= self._first]
            meaningful = len(there) > 0
            values[site] = own.metrics()[metric] if meaningful else None
        return AtSites.of(metric, values)

    def per_class(self) -> list[ClassScores]:
        """A table row for each relation, NA too: its scores, and how often it is the gold one (`support`)."""
        scores = _scores(*self._counts)
        return [
            ClassScores(
                relation=name,
                support=int(self._counts[2][index]),
                **{score: float(values[index]) for score, values in scores.items()},
            )
            for index, name in enumerate(self.relations)
        ]

    def confusion(self) -> Confusion:
        """The matrix with its names; `counts[i][j]` sentences of gold class i were given class j."""
        return Confusion(relations=list(self.relations), counts=self.matrix.tolist())

    @property
    def _first(self) -> int:
        """The first class that is a relation."""
        return int(self.relations[0] == NA)

    @property
    def _counts(self) -> tuple[Ints, Ints, Ints]:
        """How often each class was rightly predicted, predicted, and gold."""
        return np.diagonal(self.matrix), self.matrix.sum(axis=0), self.matrix.sum(axis=1)


def _scores(right: Ints, predicted: Ints, gold: Ints) -> dict[str, Floats]:
    """F1, precision and recall of each class; 0 where there is nothing to divide by."""
    return {
        "f1": 2 * right / np.maximum(predicted + gold, 1),
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(gold, 1),
    }
