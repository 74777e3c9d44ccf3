"""The probability from which on a model's facts are believed: the one with the best F1 on the development set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.bags import Bags, singles
from fedrel.data.documents import DocumentCorpus
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Ints

UNTUNED = 0.5  # where there is nothing to tune by

Score = Callable[[str, Bags], NDArray[np.floating[Any]]]
"""Asks the model: a bag head and bags to their probabilities."""


def tuned_threshold(corpus: Corpus, rows: Ints, head: str, score: Score) -> float:
    """The best threshold for the facts that these rows state, asked as `predict` asks: by pair, or by document."""
    if not len(rows):
        return UNTUNED
    if isinstance(corpus, DocumentCorpus):
        facts = corpus.labels(corpus.pairs_of(rows))[:, 1:]
        return best_threshold(score("none", singles(rows, np.zeros_like(rows), rows)), facts)
    sentences = corpus.require(SentenceCorpus)
    bags = sentences.bags_by_pair(rows)
    facts = np.zeros((len(bags), len(corpus.relations)), np.bool_)
    facts[np.searchsorted(bags.keys, sentences.pair[rows]), sentences.relation[rows]] = True
    first = int(corpus.has_na)
    return best_threshold(score(head, bags)[:, first:], facts[:, first:])


def best_threshold(probabilities: NDArray[np.floating[Any]], facts: NDArray[np.bool_]) -> float:
    """The threshold with the highest F1 of the guesses at or above it, half-way to the next lower probability.

    Of equally good ones the highest counts, with the fewest guesses. Without a fact there is nothing to tune by.

    >>> best_threshold(np.array([[0.9, 0.7, 0.5, 0.2]]), np.array([[True, False, True, False]]))
    0.35
    """
    if not facts.any():
        return UNTUNED
    order = np.argsort(-probabilities.ravel(), kind="stable")
    values, right = probabilities.ravel()[order].astype(np.float64), facts.ravel()[order].cumsum()
    last = np.append(values[1:] < values[:-1], True)  # a threshold cannot part equal probabilities
    f1 = np.where(last, 2 * right / (np.arange(1, len(values) + 1) + right[-1]), -1.0)
    best = int(f1.argmax())
    lower = values[best + 1] if best + 1 < len(values) else 0.0
    return round(float(values[best] + lower) / 2, 6)
