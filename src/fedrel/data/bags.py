"""Bags: the sentences that mention one entity pair, as rows of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fedrel.data.sentences import Corpus


Ints = npt.NDArray[np.int64]

SCORED_AT_ONCE = 512  # sentences; large enough for full speed, small enough to stay in the cache


@dataclass(frozen=True, slots=True)
class Bags:
    """`B` bags over `S` sentences; bag b holds rows[bounds[b]:bounds[b + 1]] of the corpus."""

    rows: Ints  # [S]
    bounds: Ints  # [B + 1]
    labels: Ints  # [B], the relation of each bag
    keys: Ints  # [B], the triple (training) or the pair (test) that each bag is about

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: Ints) -> Bags:
        """Some of the bags, in the order asked for."""
        sizes = self.bounds[which + 1] - self.bounds[which]
        return Bags(
            self.rows[ragged(self.bounds[which], sizes)],
            np.concatenate(([0], np.cumsum(sizes))),
            self.labels[which],
            self.keys[which],
        )


def by_triple(corpus: Corpus, rows: Ints) -> Bags:
    """Training bags: one for each (head, relation, tail) that the rows are labelled with."""
    triples = np.asarray(corpus.triple[rows], dtype=np.int64)
    return _group(rows, triples, corpus.triples[:, 1])


def by_pair(corpus: Corpus, rows: Ints) -> Bags:
    """Test bags: one for each entity pair; a sentence that stands there under two relations counts once."""
    pairs = np.asarray(corpus.pair[rows], dtype=np.int64)
    sentences = np.asarray(corpus.sentence[rows])
    order = np.lexsort((sentences, pairs))
    again = (np.diff(pairs[order]) == 0) & (np.diff(sentences[order]) == 0)
    kept = np.sort(order[np.concatenate(([True], ~again))]) if len(rows) else order
    return _group(rows[kept], pairs[kept], None)


def singles(rows: Ints, labels: Ints, keys: Ints) -> Bags:
    """Sentences on their own: bags of one."""
    return Bags(rows, np.arange(len(rows) + 1), labels, keys)


def _group(rows: Ints, keys: Ints, label_of: npt.NDArray[np.int32] | None) -> Bags:
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    labels = np.zeros_like(distinct) if label_of is None else label_of[distinct].astype(np.int64)
    return Bags(rows[order], np.append(first, len(rows)), labels, distinct)


def ragged(starts: Ints, sizes: Ints) -> Ints:
    """The indices of several runs laid end to end: starts[0], starts[0] + 1, …, then those of the next run."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(ends[-1] if len(ends) else 0)


def slices(bags: Bags, sentences: int) -> Iterator[Bags]:
    """The bags in order, in runs of about `sentences` sentences (a bag is never cut)."""
    if len(bags) and len(bags.rows) <= sentences:
        yield bags
        return
    begin = 0
    while begin < len(bags):
        end = int(np.searchsorted(bags.bounds, bags.bounds[begin] + sentences, side="right")) - 1
        end = max(end, begin + 1)
        yield bags.take(np.arange(begin, end))
        begin = end
