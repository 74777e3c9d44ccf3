"""From a config to documents: the corpus with its splits, and who holds which of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data import partition as partitions
from fedrel.data.columns import DEV, TEST, TRAIN
from fedrel.data.documents.columns import DocumentCorpus
from fedrel.data.documents.entropy import by_entropy, intervals, structural_entropy
from fedrel.data.documents.loading import load
from fedrel.data.documents.splits import split_by_document
from fedrel.data.relations import read_relations
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.config import PartitionSection
    from fedrel.document_config import DocumentData

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def read_documents(
    section: DocumentData, progress: Callable[[int], None] | None = None
) -> tuple[DocumentCorpus, Ints, Ints, Ints]:
    """The corpus that a config's data section describes, and its documents for training, dev and test."""
    splits = {TRAIN: [*section.pool, *section.train], DEV: section.dev, TEST: section.test}
    corpus = load(
        [(split, section.root / path) for split, paths in splits.items() for path in paths],
        section.format,
        options=section.reader_options(),
        relations=read_relations(section.root / section.relations) if section.relations else None,
        not_include=[section.root / path for path in section.not_include],
        mesh=section.root / section.mesh if section.mesh else None,
        progress=progress,
    )
    if len(corpus.relations) < 2:
        raise UserError("the training documents state no relation", remedy="check the files in [data]")
    train = corpus.rows(TRAIN)
    if section.pool:
        train, dev, test = split_by_document(train, section.fractions, seed=section.split_seed)
        return corpus, train, dev, test
    if section.dev:
        return corpus, train, corpus.rows(DEV), corpus.rows(TEST)
    shares = (1 - section.dev_fraction, section.dev_fraction)
    train, dev = split_by_document(train, shares, seed=section.split_seed)
    return corpus, train, dev, corpus.rows(TEST)


def partition_by_entropy(
    section: PartitionSection, corpus: DocumentCorpus, rows: Ints
) -> partitions.Partition:
    """Who holds which training documents: those alike in structural entropy together."""
    entropy = _entropy(section, corpus)
    return by_entropy(rows, entropy[rows], section.sites)


def plot_entropy(
    section: PartitionSection, parts: partitions.Partition, corpus: DocumentCorpus, path: Path
) -> None:
    """Draw which entropies each site has, and how many documents (FedLCC, Fig. 2)."""
    from fedrel.studio.entropy_plot import entropy_plot

    entropy = _entropy(section, corpus)[parts.order]
    entropy_plot(intervals(entropy, parts.sites), parts.sizes, path)


def pair_counts(parts: partitions.Partition, corpus: DocumentCorpus) -> Ints:
    """How many pairs of each relation each site holds, [sites, relations]; one with two relations counts twice."""
    counts = [corpus.labels(corpus.pairs_of(parts.rows(site))).sum(axis=0) for site in range(parts.sites)]
    return np.array(counts, np.int64)


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


def _entropy(section: PartitionSection, corpus: DocumentCorpus) -> Floats:
    return structural_entropy(corpus, sentence_edges=section.sentence_edges, measure=section.entropy)
