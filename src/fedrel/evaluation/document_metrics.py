"""Metrics of relations found in documents: micro precision, recall and F1 over pairs of entities.

A pair may have several relations. `guesses` and `facts` are [pairs, relations] truth values, one row for each pair
that is evaluated (pairs that the hypernym filter leaves out are not); the column `na` is neither guess nor fact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import Arrays, AtSites, Classes, ClassScores, Confusion, Ints, Record

Bools = NDArray[np.bool_]

THRESHOLD = 0.5  # a relation is guessed if it is at least this likely


@dataclass(frozen=True, eq=False)
class Gold:
    """The truth about `n` pairs, [n] or [n, relations], `NA` first."""

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
    threshold: float | None = None

    @staticmethod
    def of(
        probabilities: NDArray[np.floating],
        gold: Gold,
        relations: Sequence[str],
        threshold: float | None = None,
    ) -> Findings:
        """Guess the relations whose probability is high enough; `probabilities` is [n, relations - 1], no `NA`."""
        found = probabilities >= (THRESHOLD if threshold is None else threshold)
        return Findings(np.pad(found, ((0, 0), (1, 0))), gold, relations, threshold)

    def metrics(self) -> dict[str, float]:
        """The numbers of the papers' tables."""
        return metrics(self.guesses, self.gold.facts, intra=self.gold.intra, seen=self.gold.seen)

    def files(self) -> dict[str, Record]:
        """The scores of each relation. A pair may have several relations, so there is no confusion matrix."""
        return {
            "classes.json": Classes(per_class=self.per_class(), confusion=Confusion(relations=[], counts=[]))
        }

    def per_class(self) -> list[ClassScores]:
        """A table row for each relation: its scores, and how many facts there are of it (`support`)."""
        rows = []
        for number, name in enumerate(self.relations[1:], 1):
            own = [0, number]
            scores = micro(self.guesses[:, own], self.gold.facts[:, own])
            rows.append(
                ClassScores(
                    relation=name,
                    f1=scores.f1,
                    precision=scores.precision,
                    recall=scores.recall,
                    support=scores.facts,
                )
            )
        return rows

    def within(self, documents: Ints) -> Findings:
        """The findings in some of the documents."""
        own = np.isin(self.gold.document, documents)
        gold = Gold(self.gold.document[own], self.gold.facts[own], self.gold.intra[own], self.gold.seen[own])
        return Findings(self.guesses[own], gold, self.relations, self.threshold)

    def units(self) -> Arrays:
        """Of each document: how many relations were guessed, how many it has, and how many guesses are right."""
        _, document = np.unique(self.gold.document, return_inverse=True)
        guesses, facts = self.guesses[:, 1:], self.gold.facts[:, 1:]
        counted = {"correct": guesses & facts, "guesses": guesses, "facts": facts}
        return {
            name: np.bincount(document, weights=truths.sum(axis=1)).astype(np.int32)
            for name, truths in counted.items()
        }

    def at_sites(self, shares: Mapping[str, Ints], metric: str) -> AtSites:
        """A metric at each site, on its share of the documents; None where they hold no fact to find."""
        values: dict[str, float | None] = {}
        for site, rows in shares.items():
            own = self.within(rows)
            values[site] = own.metrics()[metric] if own.gold.facts[:, 1:].any() else None
        return AtSites.of(metric, values)


@dataclass(frozen=True, slots=True)
class Scores:
    """Micro-averaged scores; one that has no meaning, as the precision of no guesses, is 0.0."""

    correct: int
    guesses: int
    facts: int

    @property
    def precision(self) -> float:
        """The share of the guesses that is right."""
        return self.correct / max(self.guesses, 1)

    @property
    def recall(self) -> float:
        """The share of the facts that was guessed."""
        return self.correct / max(self.facts, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return harmonic(self.precision, self.recall)


def micro(guesses: Bools, facts: Bools, *, within: Bools | None = None) -> Scores:
    """Scores over all (pair, relation), or over the pairs of which `within` [pairs] is true."""
    guesses, facts = _checked(guesses, facts)
    if within is not None:
        guesses, facts = guesses[within], facts[within]
    return Scores(
        correct=int(np.count_nonzero(guesses & facts)),
        guesses=int(np.count_nonzero(guesses)),
        facts=int(np.count_nonzero(facts)),
    )


def ign_f1(guesses: Bools, facts: Bools, seen: Bools) -> float:
    """DocRED's Ign-F1: F1 in which a right guess that training documents state too (`seen`) does not count.

    As in DocRED's own evaluation, such guesses are taken out of precision, from the right guesses and from all
    guesses. Recall is not changed.
    """
    scores = micro(guesses, facts)
    known = micro(guesses & seen, facts).correct
    precision = (scores.correct - known) / max(scores.guesses - known, 1)
    return harmonic(precision, scores.recall)


def metrics(
    guesses: Bools, facts: Bools, *, intra: Bools | None = None, seen: Bools | None = None
) -> dict[str, float]:
    """The numbers of the papers' tables, by the names that `result.json` uses.

    `intra` [pairs] says which pairs some sentence mentions together; it gives `intra_f1`, of these pairs, and
    `inter_f1`, of the others. `seen` [pairs, relations] says what training documents state too; it gives `ign_f1`.
    """
    scores = micro(guesses, facts)
    found = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    if intra is not None:
        together = np.asarray(intra, np.bool_)
        found["intra_f1"] = micro(guesses, facts, within=together).f1
        found["inter_f1"] = micro(guesses, facts, within=~together).f1
    if seen is not None:
        found["ign_f1"] = ign_f1(guesses, facts, seen)
    return found


def harmonic(precision: float, recall: float) -> float:
    """F1 of a precision and a recall; 0.0 if both are."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def _checked(guesses: Bools, facts: Bools) -> tuple[Bools, Bools]:
    """Both without the column of `NA`, the first."""
    guesses, facts = np.asarray(guesses, np.bool_), np.asarray(facts, np.bool_)
    if guesses.shape != facts.shape or guesses.ndim != 2 or not guesses.shape[1]:
        problem = "guesses and facts must be [pairs, relations], with `NA` as the first relation"
        raise ValueError(f"{problem}; got shapes {guesses.shape} and {facts.shape}")
    return guesses[:, 1:], facts[:, 1:]
