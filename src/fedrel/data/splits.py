"""Training, development and test data that share no entity pair, for a corpus that comes without a split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedrel.data.columns import Corpus
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


def without_duplicates(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of all rows that have the same triple and sentence, in the order of `rows`."""
    triples, sentences = corpus.triple[rows], corpus.sentence[rows]
    order = np.lexsort((sentences, triples))  # stable: of equal rows the first stays first
    again = (np.diff(triples[order]) == 0) & (np.diff(sentences[order]) == 0)
    return np.asarray(rows)[np.sort(np.delete(order, np.flatnonzero(again) + 1))]


def split_by_pair(
    corpus: Corpus, rows: NDArray[np.int64], fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[NDArray[np.int64], ...]:
    """Deal the entity pairs out at random, so that each part has its fraction of the pairs; drop duplicates.

    All sentences of two entities, whichever is the head, go to one part. Parts keep the order of `rows`.
    """
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise UserError(f"expected fractions that add up to 1, found {tuple(fractions)}")
    rows = without_duplicates(corpus, rows)
    entities = np.sort(corpus.pairs[corpus.pair[rows]].astype(np.int64), axis=1)
    pairs, pair = np.unique(entities[:, 0] << 32 | entities[:, 1], return_inverse=True)
    place = numpy_generator(seed, "split").permutation(len(pairs))
    bounds = np.rint(np.cumsum(fractions) * len(pairs))
    part = np.searchsorted(bounds, place, side="right")[pair]
    return tuple(rows[part == number] for number in range(len(fractions)))
