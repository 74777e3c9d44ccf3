"""How good are the relations found in documents? Micro precision, recall and F1 over pairs, from plain arrays.

A pair may have several relations. `guesses` and `facts` are [pairs, relations] truth values, one row for each pair
that is evaluated (those that the hypernym filter leaves out are not); the column `na` is neither guess nor fact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


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


def micro(guesses: Bools, facts: Bools, *, within: Bools | None = None, na: int = 0) -> Scores:
    """Scores over all (pair, relation), or over the pairs of which `within` [pairs] is true."""
    guesses, facts = _checked(guesses, facts, na)
    if within is not None:
        guesses, facts = guesses[within], facts[within]
    return Scores(
        correct=int(np.count_nonzero(guesses & facts)),
        guesses=int(np.count_nonzero(guesses)),
        facts=int(np.count_nonzero(facts)),
    )


def ign_f1(guesses: Bools, facts: Bools, seen: Bools, *, na: int = 0) -> float:
    """DocRED's Ign-F1: F1 in which a right guess that training gave away (`seen`) does not count for precision.

    As in DocRED's own evaluation, such guesses leave both the right ones and all guesses, while recall stays what
    it is: the facts behind them are still facts that were found.
    """
    scores = micro(guesses, facts, na=na)
    known = micro(guesses & seen, facts, na=na).correct
    precision = (scores.correct - known) / max(scores.guesses - known, 1)
    return harmonic(precision, scores.recall)


def metrics(
    guesses: Bools, facts: Bools, *, intra: Bools | None = None, seen: Bools | None = None, na: int = 0
) -> dict[str, float]:
    """The numbers of the papers' tables, by the names that `result.json` uses.

    `intra` [pairs] says which pairs some sentence mentions together: the F1 of these and that of the others, which
    take more than one sentence, follow from it. `seen` [pairs, relations] says what training documents state, too.
    """
    scores = micro(guesses, facts, na=na)
    found = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    if intra is not None:
        together = np.asarray(intra, np.bool_)
        found["intra_f1"] = micro(guesses, facts, within=together, na=na).f1
        found["inter_f1"] = micro(guesses, facts, within=~together, na=na).f1
    if seen is not None:
        found["ign_f1"] = ign_f1(guesses, facts, seen, na=na)
    return found


def harmonic(precision: float, recall: float) -> float:
    """F1 of a precision and a recall; 0.0 if both are."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def _checked(guesses: Bools, facts: Bools, na: int) -> tuple[Bools, Bools]:
    guesses, facts = np.asarray(guesses, np.bool_), np.asarray(facts, np.bool_)
    if guesses.shape != facts.shape or guesses.ndim != 2 or not 0 <= na < guesses.shape[1]:
        problem = f"guesses and facts must be [pairs, relations] with a column {na}"
        raise ValueError(f"{problem}; got shapes {guesses.shape} and {facts.shape}")
    return np.delete(guesses, na, axis=1), np.delete(facts, na, axis=1)
