"""From a config to what a run works with: the corpus and its splits, the partition, the vocabulary, the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrel.config.schema import (
    PartitionSection,
)
from fedrel.data import partition as partitions
from fedrel.data import skew
from fedrel.data.documents import DocumentCorpus
from fedrel.data.entropy import by_entropy, structural_entropy
from fedrel.data.load import Dataset, Floats, Ints
from fedrel.data.sentences import Corpus
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    pass


def partition(section: PartitionSection, data: Dataset, seed: int) -> partitions.Partition:
    """Who holds which training rows."""
    if section.kind == "iid":
        return partitions.iid(data.train, section.sites, seed)
    if section.kind == "quantity":
        return skew.quantity(data.train, section.sites, section.alpha, seed, min_size=section.min_size)
    if isinstance(data.text, DocumentCorpus):
        return partition_by_entropy(section, data.text, data.train)
    return _partition_sentences(section, data, seed)


def _partition_sentences(section: PartitionSection, data: Dataset, seed: int) -> partitions.Partition:
    """By what only sentences have: a source, a line in a file, one relation."""
    if section.kind == "source":
        return partitions.by_source(data.corpus, data.train)
    if section.kind == "file":
        if section.file is None:
            raise UserError("partition.kind is 'file', but partition.file is not given")
        return partitions.from_file(section.file, data.corpus, data.train)
    labels = data.corpus.relation[data.train]
    if section.kind == "shards":
        return skew.shards(data.train, labels, section.sites, section.shards_per_site, seed)
    return skew.dirichlet(data.train, labels, section.sites, section.alpha, seed, min_size=section.min_size)


def label_counts(parts: partitions.Partition, text: Corpus | DocumentCorpus) -> Ints:
    """n(k,c): how many sentences, or pairs, of each relation each site holds, [sites, relations]."""
    return pair_counts(parts, text) if isinstance(text, DocumentCorpus) else parts.label_counts(text)


def held_back(rows: Ints, share: float, seed: int) -> tuple[Ints, Ints]:
    """The rows for the sites, and a random share for the coordinator, each in their order."""
    held = numpy_generator(seed, "coordinator").permutation(len(rows)) < round(share * len(rows))
    return rows[~held], rows[held]


def partition_by_entropy(
    section: PartitionSection, corpus: DocumentCorpus, rows: Ints
) -> partitions.Partition:
    """Who holds which training documents: those alike in structural entropy together."""
    entropy = _entropy(section, corpus)
    return by_entropy(rows, entropy[rows], section.sites)


def pair_counts(parts: partitions.Partition, corpus: DocumentCorpus) -> Ints:
    """How many pairs of each relation each site holds, [sites, relations]; one with two relations counts twice."""
    counts = [corpus.labels(corpus.pairs_of(parts.rows(site))).sum(axis=0) for site in range(parts.sites)]
    return np.array(counts, np.int64)


def _entropy(section: PartitionSection, corpus: DocumentCorpus) -> Floats:
    return structural_entropy(corpus, sentence_edges=section.sentence_edges, measure=section.entropy)
