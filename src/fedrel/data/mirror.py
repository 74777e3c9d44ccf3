"""A share of the test set for each site, labelled as the site's own training data are.

Test sets of simulations belong to no site. To ask how good a model is *for a site*, each gets the part of them
that looks like what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedrel.data import partition as partitions
from fedrel.data.divide import _entropy
from fedrel.data.documents import DocumentCorpus
from fedrel.data.entropy import intervals
from fedrel.data.partition import Partition, grouped
from fedrel.data.sentences import Corpus
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.config.schema import PartitionSection


Ints = NDArray[np.int64]


def mirrored(partition: Partition, corpus: Corpus, test_rows: Ints, seed: int) -> Partition:
    """Place every test row at exactly one of the partition's sites, under their names.

    Where the sites are the sources of the text, a test row goes to the site of its own source. The others are
    dealt out class by class in proportion to n(k,c), how many training rows of class c site k has; what does not
    divide evenly goes to the largest remainders, and among equal ones by lot. A class that no site has is dealt
    out in proportion to the sites' sizes. So a site without data gets nothing.
    """
    rows = np.asarray(test_rows, np.int64)
    site = _sites_of_sources(partition, corpus)[corpus.source[rows]]
    left = np.flatnonzero(site < 0)
    site[left] = _dealt(partition.label_counts(corpus), corpus.relation[rows[left]], seed)
    return grouped(rows, site, partition.names)


def _sites_of_sources(partition: Partition, corpus: Corpus) -> Ints:
    """The site that each source of the corpus is, [sources]; -1 for one that is none.

    Names alone could agree by chance, so the sites must hold their own sources' rows and no others.
    """
    number = {name: site for site, name in enumerate(partition.names)}
    site = np.array([number.get(source, -1) for source in corpus.sources], np.int64)
    held = np.repeat(np.arange(partition.sites), partition.sizes)
    if (site[corpus.source[partition.order]] != held).any():
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

    Were ties not broken by lot, the first sites would get the odd row of every class that all have alike.
    """
    portions, remainders = np.divmod(total * weights, weights.sum())
    lot = generator.permutation(len(weights))
    largest = np.lexsort((lot, -remainders))[: total - portions.sum()]
    portions[largest] += 1
    return portions


def mirrored_documents(
    section: PartitionSection, parts: partitions.Partition, corpus: DocumentCorpus, rows: Ints, seed: int
) -> partitions.Partition:
    """Place every test document at exactly one site: that of the nearest entropy, or in proportion to their sizes.

    A site without data gets nothing.
    """
    able = np.flatnonzero(parts.sizes)
    if section.kind == "entropy":
        entropy = _entropy(section, corpus)
        edges = intervals(entropy[parts.order], parts.sites)
        middles = (edges[:-1] + edges[1:]) / 2
        nearest = np.abs(entropy[rows][:, None] - middles[able]).argmin(axis=1)
        return partitions.grouped(rows, able[nearest], parts.names)
    places = np.repeat(able, parts.sizes[able])  # the test set as if it were as large as the training set
    dealt = places[np.arange(len(rows)) * len(places) // len(rows)]
    order = numpy_generator(seed, "mirror").permutation(len(rows))
    return partitions.grouped(rows, dealt[order], parts.names)
