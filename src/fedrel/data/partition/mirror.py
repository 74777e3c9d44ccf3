"""A share of the test set for each site, labelled as the site's own training data are.

The test set of a simulation belongs to no site. To measure how good a model is *for a site*, each gets the part of
it that looks like what it holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrel.config.schema import PartitionSection
from fedrel.data.partition import PARTITIONS, Partition, grouped
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Ints
from fedrel.seeding import numpy_generator


def mirrored(
    section: PartitionSection, parts: Partition, corpus: Corpus, test_rows: Ints, seed: int
) -> Partition:
    """Place every test row at exactly one of the partition's sites, under their names; none at a site without data.

    Where the partition's kind can tell which site's data a row is most like, it goes there. Otherwise sentences are
    placed by source and label, and documents in proportion to what each site holds.
    """
    site = PARTITIONS.find(section.kind)().site_like(section, parts, corpus, test_rows)
    if site is not None:
        return grouped(test_rows, site, parts.names)
    if corpus.label_of(test_rows) is None:
        return mirrored_by_size(parts, test_rows, seed)
    return mirrored_by_label(parts, corpus.require(SentenceCorpus), test_rows, seed)


def mirrored_by_label(parts: Partition, corpus: SentenceCorpus, test_rows: Ints, seed: int) -> Partition:
    """Place test sentences by their source and their label.

    Where the sites are the sources of the text, a sentence goes to the site of its own source. The others are
    dealt out class by class in proportion to n(k,c), how many training sentences of class c site k has; what
    does not divide evenly goes to the largest remainders, and among equal ones at random. A class that no
    site has is dealt out in proportion to the sites' sizes.
    """
    rows = np.asarray(test_rows, np.int64)
    site = _sites_of_sources(parts, corpus)[corpus.source[rows]]
    left = np.flatnonzero(site < 0)
    site[left] = _dealt(parts.label_counts(corpus), corpus.relation[rows[left]], seed)
    return grouped(rows, site, parts.names)


def mirrored_by_size(parts: Partition, test_rows: Ints, seed: int) -> Partition:
    """Place test rows at random, in proportion to the sites' sizes."""
    held = np.repeat(np.arange(parts.sites), parts.sizes)  # the site of each training row
    dealt = held[np.arange(len(test_rows)) * len(held) // len(test_rows)]
    order = numpy_generator(seed, "mirror").permutation(len(test_rows))
    return grouped(test_rows, dealt[order], parts.names)


def _sites_of_sources(parts: Partition, corpus: SentenceCorpus) -> Ints:
    """The site that each source of the corpus is, [sources]; -1 for one that is none.

    Names alone could agree by chance, so the sites must hold their own sources' rows and no others.
    """
    number = {name: site for site, name in enumerate(parts.names)}
    site = np.array([number.get(source, -1) for source in corpus.sources], np.int64)
    held = np.repeat(np.arange(parts.sites), parts.sizes)
    if (site[corpus.source[parts.order]] != held).any():
        site[:] = -1
    return site


def _dealt(counts: Ints, labels: NDArray[np.integer], seed: int) -> Ints:
    """A site for each test row by its label; `counts` is n(k,c), [sites, relations]."""
    site = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        generator = numpy_generator(seed, "mirror", int(label))
        places = generator.permutation(np.flatnonzero(labels == label))
        weights = counts[:, label] if counts[:, label].any() else counts.sum(axis=1)
        portions = _portions(len(places), weights, generator)
        site[places] = np.repeat(np.arange(len(weights)), portions)
    return site


def _portions(total: int, weights: Ints, generator: np.random.Generator) -> Ints:
    """Whole parts of `total` in proportion to `weights`, by largest remainders, in exact arithmetic.

    Ties are broken at random: otherwise the first sites would get the odd row of every class that all have alike.
    """
    portions, remainders = np.divmod(total * weights, weights.sum())
    tie_breaks = generator.permutation(len(weights))
    largest = np.lexsort((tie_breaks, -remainders))[: total - portions.sum()]
    portions[largest] += 1
    return portions
