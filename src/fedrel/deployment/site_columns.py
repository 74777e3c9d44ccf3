"""The same number for the same fact at every site, though no site sees another's corpus.

A corpus numbers entities, pairs and triples as it meets them. Here they are numbered anew: those of the published
knowledge base first, in its order, then whatever the corpus has besides, sorted by name. So a published triple has
one number everywhere, and any two triples stand in the same order at every site that has both, as they would in one
corpus of all sites: bags come in the same order, and with the same seed in the same batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.data.align import align
from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.kb import KnowledgeBase
from fedrel.data.partition import Partition
from fedrel.data.readers import reader
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import Corpus, Progress
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.policy import TEXT
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.site_data import SiteData

Triple = tuple[str, str, str]  # head, relation, tail


def published_triples(kb: KnowledgeBase | None) -> list[Triple]:
    """A knowledge base's facts; the place of one is its number."""
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


Ints = npt.NDArray[np.int64]

VALIDATION = 3  # the split of the sentences of D_v, beside TRAIN, DEV and TEST


@dataclass(frozen=True)
class Part:
    """Some files of one format, for one purpose."""

    split: int
    files: Sequence[Path]
    format: str
    source_field: str = "source"


def read_columns(
    parts: Sequence[Part], artefacts: Artefacts, folder: Path, progress: Progress | None = None
) -> Corpus:
    """These files, then the published sentences of D_v, as columns in `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if extractor_kind(artefacts.config.extractor.kind).unit == "documents":
        return DocumentCorpus.build(_documents(parts, artefacts), folder, artefacts.relations, progress)
    with tempfile.TemporaryDirectory(dir=folder.parent) as first:
        instances = _instances(parts, artefacts)
        corpus = SentenceCorpus.build(instances, Path(first) / "x", artefacts.relations, progress)
        return renumbered(corpus, artefacts.knowledge_base, folder)


def prepare_site_data(
    text: Corpus,
    held: Partition,
    artefacts: Artefacts,
    config: Config,
    folder: Path,
    progress: Progress | None = None,
) -> SiteData:
    """The columns as the experiment's model reads them; what it makes of them is kept in `folder`."""
    section, published = config.extractor, artefacts.folder
    inputs = extractor_kind(section.kind).published_inputs(section, text, published, folder, progress)
    return SiteData(
        text=text,
        inputs=inputs,
        partition=held,
        validation=text.rows(VALIDATION),
        watched=np.zeros(0, np.int64),
        truth_known=False,
    )


def _instances(parts: Sequence[Part], artefacts: Artefacts) -> Iterator[tuple[int, Instance]]:
    for part in parts:
        if part.format == TEXT:
            found = _aligned(part.files, artefacts)
        else:
            found = _read(part, {"source": part.source_field}, artefacts)
        for instance in found:
            yield part.split, instance
    for instance in artefacts.validation():
        yield VALIDATION, instance


def _aligned(files: Sequence[Path], artefacts: Artefacts) -> Iterator[Instance]:
    if artefacts.knowledge_base is None:
        problem = "raw text needs a knowledge base to be labelled with, and none was published"
        raise UserError(problem, hint="label the text yourself and name its format")
    reading = artefacts.reading
    return align(files, artefacts.knowledge_base, na_rate=reading.na_rate, seed=reading.na_seed)


def _documents(parts: Sequence[Part], artefacts: Artefacts) -> Iterator[tuple[int, Document]]:
    for part in parts:
        reading = artefacts.reading
        options = {"pair_types": reading.pair_types, "directions": reading.directions}
        for document in _read(part, options, artefacts):
            yield part.split, document


def _read(part: Part, options: Mapping[str, Any], artefacts: Artefacts) -> Iterator[Any]:
    """The rows of a part's files; of the options, the format's reader gets those that it takes."""
    chosen = reader(part.format)
    taken = {name: value for name, value in options.items() if name in chosen.options()}
    for file in part.files:
        yield from chosen.read(file, relations=artefacts.relations, **taken)
