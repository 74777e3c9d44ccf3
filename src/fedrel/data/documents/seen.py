"""Which facts a model may have learnt by heart: those that training documents state, too (DocRED's Ign-F1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedrel.data.documents.columns import DocumentCorpus

Ints = NDArray[np.int64]


def seen_in_training(corpus: DocumentCorpus, training: Ints, pairs: Ints) -> NDArray[np.bool_]:
    """Which relations of each pair are known from the training documents, [pairs, relations].

    Documents share no entity ids in DocRED, so a fact is known if training states the relation between any two
    mentions of the same names, as in DocRED's own evaluation. Only relations that a pair has can be known of it.
    """
    known: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for relation, heads, tails in _named(corpus, corpus.pairs_of(training)):
        known[relation].update(product(heads, tails))
    seen = np.zeros((len(pairs), len(corpus.relations)), np.bool_)
    sizes = corpus.fact_starts[pairs + 1] - corpus.fact_starts[pairs]
    places = np.repeat(np.arange(len(pairs)), sizes).tolist()
    for place, (relation, heads, tails) in zip(places, _named(corpus, pairs), strict=True):
        seen[place, relation] = not known[relation].isdisjoint(product(heads, tails))
    return seen


def _named(corpus: DocumentCorpus, pairs: Ints) -> Iterator[tuple[int, list[int], list[int]]]:
    """The relation and the head's and tail's names (by number) of each fact of these pairs."""
    documents = np.searchsorted(corpus.pair_starts, pairs, side="right") - 1
    ends = corpus.entity_starts[documents][:, None] + corpus.pairs[pairs]
    for pair, (head, tail) in zip(pairs.tolist(), ends.tolist(), strict=True):
        for relation in corpus.fact_relation[
            corpus.fact_starts[pair] : corpus.fact_starts[pair + 1]
        ].tolist():
            yield relation, _names(corpus, head), _names(corpus, tail)


def _names(corpus: DocumentCorpus, entity: int) -> list[int]:
    part = slice(corpus.mention_starts[entity], corpus.mention_starts[entity + 1])
    names: list[int] = corpus.mention_name[part].tolist()
    return names
