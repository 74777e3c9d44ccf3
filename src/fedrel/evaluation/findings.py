"""What was found in documents, and what there was to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.documents import Bools, metrics, micro
from fedrel.evaluation.fairness import AtSites, fairness

THRESHOLD = 0.5  # a relation is guessed if it is at least this likely

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Gold:
    """What is known of `n` pairs, [n] or [n, relations], `NA` first."""

    document: Ints  # the row of each pair's document in its corpus
    facts: Bools
    intra: Bools  # some sentence mentions both
    seen: Bools  # training documents state it, too


@dataclass(frozen=True, eq=False)
class Findings:
    """Guesses about the same pairs."""

    guesses: Bools
    gold: Gold
    relations: Sequence[str]

    @staticmethod
    def of(probabilities: NDArray[np.floating], gold: Gold, relations: Sequence[str]) -> Findings:
        """All relations but `NA`, [n, relations - 1], that are likely enough."""
        return Findings(np.pad(probabilities >= THRESHOLD, ((0, 0), (1, 0))), gold, relations)

    def metrics(self) -> dict[str, float]:
        """The numbers of the papers' tables."""
        return metrics(self.guesses, self.gold.facts, intra=self.gold.intra, seen=self.gold.seen)

    def per_class(self) -> list[dict[str, Any]]:
        """A table row for each relation: its scores, and how many facts there are of it (`support`)."""
        rows = []
        for number, name in enumerate(self.relations[1:], 1):
            own = [0, number]
            scores = micro(self.guesses[:, own], self.gold.facts[:, own])
            found = {"f1": scores.f1, "precision": scores.precision, "recall": scores.recall}
            rows.append({"relation": name, **found, "support": scores.facts})
        return rows

    def within(self, documents: Ints) -> Findings:
        """Those in some of the documents."""
        own = np.isin(self.gold.document, documents)
        gold = Gold(self.gold.document[own], self.gold.facts[own], self.gold.intra[own], self.gold.seen[own])
        return Findings(self.guesses[own], gold, self.relations)

    @staticmethod
    def confusion() -> dict[str, Any]:
        """A pair may have several relations, so none is taken for another: an empty matrix."""
        return {"relations": [], "counts": []}

    def at_sites(self, documents: Mapping[str, Ints], metric: str) -> AtSites:
        """A metric at each site, on its share of the documents; None where they hold no fact to find."""
        values: dict[str, float | None] = {}
        for site, rows in documents.items():
            own = self.within(rows)
            values[site] = own.metrics()[metric] if own.gold.facts[:, 1:].any() else None
        return AtSites(metric=metric, values=values, fairness=fairness(values))
