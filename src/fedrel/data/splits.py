"""Training, development and test parts of a corpus that comes without them, and samples of a part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Ints
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator


def split_rows(
    corpus: Corpus, rows: Ints, fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[Ints, ...]:
    """Deal out the rows at random, without duplicates, so that each part has its fraction of their groups.

    A group is what must stay together: all sentences about two entities, whichever is the head, or one document.
    Parts keep the order of `rows`.
    """
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise UserError(f"expected fractions that add up to 1, found {tuple(fractions)}")
    rows = corpus.without_duplicates(rows)
    groups, group = np.unique(corpus.groups(rows), return_inverse=True)
    place = numpy_generator(seed, "split").permutation(len(groups))
    bounds = np.rint(np.cumsum(fractions) * len(groups))
    part = np.searchsorted(bounds, place, side="right")[group]
    return tuple(rows[part == number] for number in range(len(fractions)))


def split_by_source(
    corpus: Corpus, rows: Ints, fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[Ints, ...]:
    """The same for each source by itself, so that every natural site has its fraction of all parts."""
    of_row = np.asarray(corpus.source[rows])
    own = [split_rows(corpus, rows[of_row == one], fractions, seed=seed) for one in np.unique(of_row)]
    return tuple(np.sort(np.concatenate(parts)) for parts in zip(*own, strict=True))


def sample(corpus: SentenceCorpus, rows: Ints, n: int, *, balanced: bool, seed: int) -> Ints:
    """Draw n rows without replacement: equally many of each relation that occurs, or in their own proportions.

    FedCMC's Table 3 has a balanced and an unbalanced sample of 500 sentences of CPR. Where n cannot be
    divided exactly, the largest remainders get one more, and of equal remainders the lowest classes. The rows
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
    chosen: Ints = np.asarray(rows)[np.sort(np.concatenate(drawn))]
    return chosen
