"""How far one comes without the text: guesses by the order, the distance and the types of a pair's entities.

A corpus whose pairs were chosen by looking at labels gives them away here. The rule is made on the training part:
in each cell of (order, distance, types) the commonest relation is guessed if it is at least so common there, a
limit that is best for the training part. Of the rules over any of the three, the one that does best counts.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import Dataset
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Ints
from fedrel.evaluation.document_metrics import micro
from fedrel.evaluation.tasks import best_threshold

FEATURES = ("order", "distance", "types")


class TextFree(NamedTuple):
    """F1 of one relation for all pairs ("all positive"), of the best rule, and what that looks at."""

    constant: float
    rule: float
    features: str

    @property
    def gain(self) -> float:
        return self.rule - self.constant


def text_free(data: Dataset, rows: Ints) -> TextFree:
    known, train = _asked(data.corpus, data.train)
    asked, facts = _asked(data.corpus, rows)
    found = {(): _f1(np.zeros((len(known), 0)), train, np.zeros((len(asked), 0)), facts)}
    for size in (1, 2, 3):
        for which in combinations(range(3), size):
            found[which] = _f1(known[:, which], train, asked[:, which], facts)
    best = max(found, key=lambda which: found[which])
    constant = max(_constant(relation, facts) for relation in range(facts.shape[1]))
    named = ", ".join(FEATURES[place] for place in best)
    return TextFree(constant, max(found[best], constant), named)


def _f1(
    known: NDArray[Any], train: NDArray[np.bool_], asked: NDArray[Any], facts: NDArray[np.bool_]
) -> float:
    """F1 of the rule that the training pairs, `known` by their features, make for the asked ones."""
    _, cell = np.unique(np.vstack([known, asked]), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    cells, own, other = cell.max() + 1, cell[: len(known)], cell[len(known) :]
    counts = np.zeros((cells, train.shape[1]))
    np.add.at(counts, own, train)
    rates = counts / np.maximum(np.bincount(own, minlength=cells), 1)[:, None]
    only = np.zeros_like(rates)
    top = rates.argmax(axis=1)
    only[np.arange(cells), top] = rates[np.arange(cells), top]
    limit = best_threshold(only[own], train)
    return micro(*_padded(only[other] >= limit, facts)).f1


def _constant(relation: int, facts: NDArray[np.bool_]) -> float:
    """F1 of one relation for all pairs."""
    guesses = np.zeros_like(facts)
    guesses[:, relation] = True
    return micro(*_padded(guesses, facts)).f1


def _padded(
    guesses: NDArray[np.bool_], facts: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """With a column for `NA` first, which is never guessed."""
    return np.pad(guesses, ((0, 0), (1, 0))), np.pad(facts, ((0, 0), (1, 0)))


def _asked(corpus: Corpus, rows: Ints) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Of each pair: order, distance and types, [pairs, 3]; and its relations without `NA`, [pairs, relations]."""
    if isinstance(corpus, DocumentCorpus):
        return _of_documents(corpus, rows)
    text = corpus.require(SentenceCorpus)
    head, tail = np.asarray(text.head[rows], np.int64), np.asarray(text.tail[rows], np.int64)
    types = np.asarray(text.head_type[rows], np.int64) * len(text.types) + text.tail_type[rows]
    facts = np.zeros((len(rows), len(text.relations)), np.bool_)
    facts[np.arange(len(rows)), text.relation[rows]] = True
    return _features(head < tail, np.abs(head - tail), types), facts[:, int(text.has_na) :]


def _of_documents(corpus: DocumentCorpus, rows: Ints) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The order is that of the first mentions, the distance that of the nearest ones."""
    pairs = corpus.pairs_of(rows)
    documents = np.searchsorted(corpus.pair_starts, pairs, side="right") - 1
    ends = (corpus.entity_starts[documents][:, None] + corpus.pairs[pairs]).astype(np.int64)
    places = [
        corpus.mention_tokens[corpus.mention_starts[e] : corpus.mention_starts[e + 1], 0].astype(np.int64)
        for e in range(len(corpus.entity_id))
    ]
    order = np.array([places[head].min() < places[tail].min() for head, tail in ends.tolist()])
    away = [np.abs(places[head][:, None] - places[tail]).min() for head, tail in ends.tolist()]
    types = corpus.entity_type[ends].astype(np.int64) @ np.array([len(corpus.types), 1])
    return _features(order, np.array(away), types), corpus.labels(pairs)[:, 1:]


def _features(order: NDArray[Any], distance: NDArray[Any], types: NDArray[Any]) -> NDArray[np.int64]:
    """Distances by their order of magnitude, so that a rule has something to learn from."""
    return np.stack([order, np.minimum(np.log2(distance + 1), 9), types], axis=1).astype(np.int64)
