"""The same number for the same triple at every site, though no site sees another's corpus.

A corpus numbers entities, pairs and triples in the order in which it meets them. Here they are numbered anew:
those of the published knowledge base first, in its order, then the corpus's others, sorted by name. So a
published triple has one number everywhere, and any two triples are in the same order at every site that has
both, as they would be in one corpus of all sites. So bags come in the same order, and with the same seed in the
same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.data.align import KnowledgeBase
from fedrel.data.sentences import SentenceCorpus

Triple = tuple[str, str, str]  # head, relation, tail


def published_triples(kb: KnowledgeBase | None) -> list[Triple]:
    """A knowledge base's triples; the position of one is its number."""
    facts = kb.facts if kb else {}
    return [(head, relation, tail) for (head, tail), found in facts.items() for relation in found]


def renumbered(corpus: SentenceCorpus, kb: KnowledgeBase | None, folder: Path) -> SentenceCorpus:
    """The same corpus in another folder, numbered by the knowledge base."""
    triples = published_triples(kb)
    known_entities = (entity for head, _, tail in triples for entity in (head, tail))
    entities = _numbers(known_entities, corpus.entities)
    relations = {name: number for number, name in enumerate(corpus.relations)}
    own_entity = _looked_up(entities, corpus.entities)

    own_pairs = [(head, tail) for head, tail in own_entity[corpus.pairs].tolist()]
    known_pairs = [(entities[head], entities[tail]) for head, _, tail in triples]
    pairs = _numbers(known_pairs, own_pairs)
    own_pair = _looked_up(pairs, own_pairs)

    own_triples = list(
        zip(own_pair[corpus.triples[:, 0]].tolist(), corpus.triples[:, 1].tolist(), strict=True)
    )
    known = ((pairs[pair], relations[t[1]]) for pair, t in zip(known_pairs, triples, strict=True))
    numbers = _numbers(known, own_triples)
    own_triple = _looked_up(numbers, own_triples)

    names = dict(zip(corpus.entities, corpus.names, strict=True))
    changes: dict[str, Any] = {
        "entities": list(entities),
        "names": [kb.name(e) if kb and e in kb.names else names[e] for e in entities],
        "pairs": np.array(list(pairs)).reshape(-1, 2),
        "pair": own_pair[corpus.pair],
        "triples": np.array(list(numbers)).reshape(-1, 2),
        "triple": own_triple[corpus.triple],
    }
    return corpus.copy(folder, changes)


def _numbers(known: Iterable[Any], found: Iterable[Any]) -> dict[Any, int]:
    """Numbers for what is known, in its order, and then for what else was found, sorted."""
    order = dict.fromkeys(known)
    order |= dict.fromkeys(sorted(set(found) - order.keys()))
    return {key: number for number, key in enumerate(order)}


def _looked_up(numbers: Mapping[Any, int], keys: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.fromiter((numbers[key] for key in keys), np.int64, len(keys))
