"""Structural entropy of documents (FedLCC, Eq. 15): the entropy of a graph's degrees, and a partition by it.

The graph has a node for each entity, mention and sentence. Mentions in one sentence are linked, a mention with its
entity and its sentence, an entity with every sentence that mentions it, and sentences with each other.
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrel.config.schema import PartitionSection
from fedrel.data.documents import DocumentCorpus
from fedrel.data.partition import Partition, PartitionKind, check_sites, grouped, site_names
from fedrel.data.store import Corpus, Ints

_log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
SentenceEdges = Literal["clique", "adjacent"]
Measure = Literal["distribution", "released"]


class Entropy(PartitionKind):
    """Documents that are alike in structural entropy at one site."""

    name = "entropy"
    units = ("documents",)

    def divide(self, section: PartitionSection, corpus: Corpus, rows: Ints, seed: int) -> Partition:
        """Place each document at the site whose interval its entropy falls into."""
        return by_entropy(rows, entropy_in(section, corpus)[rows], section.sites)

    def site_like(self, section: PartitionSection, parts: Partition, corpus: Corpus, rows: Ints) -> Ints:
        """The site with data whose interval has the nearest middle."""
        entropy = entropy_in(section, corpus)
        edges = intervals(entropy[parts.order], parts.sites)
        middles, able = (edges[:-1] + edges[1:]) / 2, np.flatnonzero(parts.sizes)
        nearest: Ints = able[np.abs(entropy[rows][:, None] - middles[able]).argmin(axis=1)]
        return nearest


def entropy_in(section: PartitionSection, corpus: Corpus) -> Floats:
    """The structural entropy of every document, measured as a config says."""
    documents = corpus.require(DocumentCorpus)
    return structural_entropy(documents, sentence_edges=section.sentence_edges, measure=section.entropy)


def structural_entropy(
    corpus: DocumentCorpus, *, sentence_edges: SentenceEdges = "clique", measure: Measure = "distribution"
) -> Floats:
    """The structural entropy of every document, in bits: -Σ p log p, where p is the share of nodes of a degree.

    The authors' code computes another number: its p is the degree of each node divided by the number of nodes
    (they do not add up to 1), over a graph that also links the head of each pair to its tail, and adjacent
    sentences only. `measure="released"` with `sentence_edges="adjacent"` is that number.
    """
    document, degree = degrees(corpus, sentence_edges)
    nodes = np.bincount(document, minlength=len(corpus))
    if measure == "released":
        degree = degree + _pairs_led(corpus)
        terms = _information(degree / nodes[document])
    else:
        cells, counts = np.unique(np.stack([document, degree]), axis=1, return_counts=True)
        document = cells[0]
        terms = _information(counts / nodes[document])
    return np.bincount(document, terms, len(corpus)).astype(np.float64)


def degrees(corpus: DocumentCorpus, sentence_edges: SentenceEdges = "clique") -> tuple[Ints, Ints]:
    """Every node's document and degree: the entities of the whole corpus, then the mentions, then the sentences.

    Degrees follow from counts, so no graph is built: with n mentions of k entities in its sentence, a mention
    has n - 1 others, its entity and its sentence; a sentence has n + k, and other sentences; an entity has its
    mentions and the sentences they are in.
    """
    sentences_of = np.diff(corpus.sentence_starts)
    entity_document = _owners(corpus.entity_starts)
    mention_entity = _owners(corpus.mention_starts)
    mention_document = entity_document[mention_entity]
    mention_sentence = corpus.sentence_starts[mention_document] + corpus.mention_sentence  # in the corpus
    sentences, entities = int(corpus.sentence_starts[-1]), len(corpus.entity_id)

    met = np.unique(np.stack([mention_entity, mention_sentence]), axis=1)  # who is in which sentence, once
    mentioned = np.bincount(mention_sentence, minlength=sentences)
    sentence_document = _owners(corpus.sentence_starts)
    neighbours = sentences_of[sentence_document] - 1
    if sentence_edges == "adjacent":
        place = np.arange(sentences) - corpus.sentence_starts[sentence_document]
        neighbours = (place > 0).astype(np.int64) + (place < neighbours)

    degree = [
        np.diff(corpus.mention_starts) + np.bincount(met[0], minlength=entities),
        mentioned[mention_sentence] + 1,
        mentioned + np.bincount(met[1], minlength=sentences) + neighbours,
    ]
    return np.concatenate([entity_document, mention_document, sentence_document]), np.concatenate(degree)


def intervals(entropy: Floats, sites: int) -> Floats:
    """The edges of `sites` equal intervals from the least entropy to the greatest, [sites + 1]."""
    return np.linspace(entropy.min(), entropy.max(), sites + 1)


def by_entropy(rows: Ints, entropy: Floats, sites: int) -> Partition:
    """Cut [min, max] into equal intervals, one for each site; `entropy` has that of each of the rows.

    A document on an edge goes to the lower site. Intervals are not equally full. An empty one is logged: its
    site has nothing to train on.
    """
    check_sites(rows, sites)
    site = np.searchsorted(intervals(entropy, sites)[1:-1], entropy, side="left")
    partition = grouped(rows, site, site_names(sites))
    empty = [name for name, size in zip(partition.names, partition.sizes, strict=True) if not size]
    if empty:
        _log.warning("no document's entropy falls to %s: %d of %d sites", ", ".join(empty), len(empty), sites)
    return partition


def _information(shares: Floats) -> Floats:
    """-p log2 p, and 0 where p is 0."""
    return -shares * np.log2(shares, out=np.zeros_like(shares), where=shares > 0)


def _owners(starts: Ints) -> Ints:
    """The number of the list that each item of a column belongs to."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _pairs_led(corpus: DocumentCorpus) -> Ints:
    """How many pairs each node is the head of; 0 for nodes that are no entities."""
    pair_document = _owners(corpus.pair_starts)
    heads = corpus.entity_starts[pair_document] + corpus.pairs[:, 0]
    nodes = len(corpus.entity_id) + len(corpus.mention_sentence) + int(corpus.sentence_starts[-1])
    return np.bincount(heads[corpus.left_out == 0], minlength=nodes)
