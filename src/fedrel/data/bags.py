"""Bags: the sentences that mention one entity pair, as rows of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

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


def singles(rows: Ints, labels: Ints, keys: Ints) -> Bags:
    """Bags of one row each: sentences or documents on their own."""
    return Bags(rows, np.arange(len(rows) + 1), labels, keys)


def apart(bags: Bags) -> Bags:
    """The sentences of bags, each as a bag of its own with its bag's label."""
    sizes = np.diff(bags.bounds)
    return singles(bags.rows, np.repeat(bags.labels, sizes), np.repeat(bags.keys, sizes))


def joined(parts: Sequence[Bags]) -> Bags:
    """All bags of several collections, one collection after another."""
    ends = np.cumsum([len(part.rows) for part in parts])
    return Bags(
        np.concatenate([part.rows for part in parts]),
        np.concatenate(
            [[0], *(part.bounds[1:] + end - len(part.rows) for part, end in zip(parts, ends, strict=True))]
        ),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.keys for part in parts]),
    )


def grouped_by(keys: Ints, rows: Ints, label_of: NDArray[np.int32] | None = None) -> Bags:
    """A bag for each key, with the rows that have it; `label_of` gives each key's relation, else all are `NA`."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    labels = np.zeros_like(distinct) if label_of is None else label_of[distinct].astype(np.int64)
    return Bags(rows[order], np.append(first, len(rows)), labels, distinct)


def ragged(starts: Ints, sizes: Ints) -> Ints:
    """The indices of several runs laid end to end: starts[0], starts[0] + 1, …, then those of the next run."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(ends[-1] if len(ends) else 0)


def slices(bags: Bags, sentences: int) -> Iterator[Bags]:
    """The bags in order, in parts of about `sentences` sentences; no bag is cut."""
    if len(bags) and len(bags.rows) <= sentences:
        yield bags
        return
    begin = 0
    while begin < len(bags):
        end = int(np.searchsorted(bags.bounds, bags.bounds[begin] + sentences, side="right")) - 1
        end = max(end, begin + 1)
        yield bags.take(np.arange(begin, end))
        begin = end
