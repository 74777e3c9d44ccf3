"""Training, development and test data that share no entity pair, for a corpus without a split; and samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedrel.data.sentences import Corpus
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


def without_duplicates(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of all rows that have the same triple in the same places of the same sentence, in order."""
    places = (*corpus.head_span[rows].T, *corpus.tail_span[rows].T)
    keys = (*places, corpus.sentence[rows], corpus.triple[rows])
    order = np.lexsort(keys)  # stable: of equal rows the first stays first
    again = np.all([np.diff(key[order]) == 0 for key in keys], axis=0)
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


def sample(
    corpus: Corpus, rows: NDArray[np.int64], n: int, *, balanced: bool, seed: int
) -> NDArray[np.int64]:
    """Draw n rows without replacement: as many of each relation that occurs, or in the proportion they occur in.

    The two small data sets of FedCMC's Table 3 are its balanced and unbalanced 500 sentences of CPR. What does
    not divide evenly goes to the largest remainders, and of equal ones to the lowest classes. The rows drawn
    keep their order.
    """
    if not 0 < n <= len(rows):
        raise UserError(f"expected to draw from 1 to {len(rows)} sentences, found {n}")
    classes, label, count = np.unique(corpus.relation[rows], return_inverse=True, return_counts=True)
    share = np.full(len(classes), n / len(classes)) if balanced else n * count / len(rows)
    wanted = np.floor(share).astype(np.int64)
    wanted[np.argsort(wanted - share, kind="stable")[: n - wanted.sum()]] += 1
    if short := [which for which in range(len(classes)) if count[which] < wanted[which]]:
        name = corpus.relations[int(classes[short[0]])]
        problem = f"a balanced sample of {n} needs {wanted[short[0]]} sentences of {name!r}"
        raise UserError(f"{problem}, there are {count[short[0]]}", hint="ask for fewer")
    generator = numpy_generator(seed, "sample")
    drawn = [
        generator.choice(np.flatnonzero(label == which), size, replace=False)
        for which, size in enumerate(wanted)
    ]
    chosen: NDArray[np.int64] = np.asarray(rows)[np.sort(np.concatenate(drawn))]
    return chosen


def split_by_document(
    rows: NDArray[np.int64], fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[NDArray[np.int64], ...]:
    """Deal the documents out at random, so that each part has its fraction; parts keep the order of `rows`."""
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise UserError(f"expected fractions that add up to 1, found {tuple(fractions)}")
    place = numpy_generator(seed, "split").permutation(len(rows))
    bounds = np.rint(np.cumsum(fractions) * len(rows))
    part = np.searchsorted(bounds, place, side="right")
    return tuple(rows[part == number] for number in range(len(fractions)))
