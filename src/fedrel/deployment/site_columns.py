"""The same number for the same fact at every site, though no site sees another's corpus.

A corpus numbers entities, pairs and triples as it meets them. Here they are numbered anew: those of the published
knowledge base first, in its order, then whatever the corpus has besides, sorted by name. So a published triple has
one number everywhere, and any two triples stand in the same order at every site that has both, as they would in one
corpus of all sites: bags come in the same order, and with the same seed in the same batches.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config, DocumentSection, PCNNSection
from fedrel.data.align import align
from fedrel.data.document_writing import build_documents
from fedrel.data.documents import Document, DocumentCorpus
from fedrel.data.kb import KnowledgeBase
from fedrel.data.partition import Partition
from fedrel.data.readers import SOURCED, reader
from fedrel.data.readers.documents import reader as document_reader
from fedrel.data.sentences import Corpus, Instance, open_corpus
from fedrel.data.store import COLUMNS, column_path, write_index
from fedrel.data.vectors import Vocabulary
from fedrel.data.writing import build
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.policy import TEXT
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs
from fedrel.extractors.pcnn.words import WordInputs
from fedrel.federation.site_data import SiteData
from fedrel.files import atomic_folder
from fedrel.runs.prepare import fixed_words

Triple = tuple[str, str, str]  # head, relation, tail


def published_triples(kb: KnowledgeBase | None) -> list[Triple]:
    """A knowledge base's facts; the place of one is its number."""
    facts = kb.facts if kb else {}
    return [(head, relation, tail) for (head, tail), found in facts.items() for relation in found]


def renumbered(corpus: Corpus, kb: KnowledgeBase | None, folder: Path) -> Corpus:
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
    changed = {
        **_table("entities", list(entities)),
        **_table("names", [kb.name(e) if kb and e in kb.names else names[e] for e in entities]),
        "pairs": np.array(list(pairs)).reshape(-1, 2),
        "pair": own_pair[corpus.pair],
        "triples": np.array(list(numbers)).reshape(-1, 2),
        "triple": own_triple[corpus.triple],
    }
    with atomic_folder(folder) as part:
        for name, column in COLUMNS.items():
            if name in changed:
                changed[name].astype(column.code).tofile(column_path(part, name))
            else:
                shutil.copyfile(column_path(corpus.folder, name), column_path(part, name))
        write_index(part)
    return open_corpus(folder)


def _numbers(known: Iterable[Any], found: Iterable[Any]) -> dict[Any, int]:
    """Numbers for what is known, in its order, and then for what else was found, sorted."""
    order = dict.fromkeys(known)
    order |= dict.fromkeys(sorted(set(found) - order.keys()))
    return {key: number for number, key in enumerate(order)}


def _looked_up(numbers: Mapping[Any, int], keys: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.fromiter((numbers[key] for key in keys), np.int64, len(keys))


def _table(name: str, strings: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    encoded = [string.encode() for string in strings]
    starts = list(accumulate(map(len, encoded), initial=0))
    return {
        f"{name}_text": np.frombuffer(b"".join(encoded), np.uint8),
        f"{name}_starts": np.array(starts, np.int64),
    }


Ints = npt.NDArray[np.int64]
Progress = Callable[[int], None]

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
) -> Corpus | DocumentCorpus:
    """These files, then the published sentences of D_v, as columns in `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(artefacts.config.extractor, DocumentSection):
        return build_documents(_documents(parts, artefacts), folder, artefacts.relations, progress)
    with tempfile.TemporaryDirectory(dir=folder.parent) as first:
        corpus = build(_instances(parts, artefacts), Path(first) / "x", artefacts.relations, progress)
        return renumbered(corpus, artefacts.knowledge_base, folder)


def prepare_site_data(
    text: Corpus | DocumentCorpus,
    held: Partition,
    artefacts: Artefacts,
    config: Config,
    folder: Path,
    progress: Progress | None = None,
) -> SiteData:
    """The columns as the experiment's model reads them; what it makes of them is kept in `folder`."""
    section, size = config.extractor, 0
    inputs: Inputs
    if isinstance(section, PCNNSection):
        assert isinstance(text, Corpus) and artefacts.words is not None
        words = Vocabulary(tuple(artefacts.words))
        inputs, size = WordInputs(text, words.lookup(text.words)), len(words)
    elif isinstance(section, DocumentSection):
        from fedrel.extractors.document.marked_pieces import tokenise as tokenise_documents

        assert isinstance(text, DocumentCorpus)
        inputs = tokenise_documents(text, section, progress, folder / "pieces")
    else:
        from fedrel.extractors.transformer.pieces import tokenise

        assert isinstance(text, Corpus)
        inputs = tokenise(text, section, progress, folder / "pieces")
    return SiteData(
        text=text,
        inputs=inputs,
        vocabulary_size=size,
        partition=held,
        validation=text.rows(VALIDATION),
        watched=np.zeros(0, np.int64),
        truth_known=False,
        words=fixed_words(section, artefacts.vectors),
    )


def _instances(parts: Sequence[Part], artefacts: Artefacts) -> Iterator[tuple[int, Instance]]:
    for part in parts:
        if part.format == TEXT:
            found = _aligned(part.files, artefacts)
        else:
            options = {"source": part.source_field} if part.format in SOURCED else {}
            read = reader(part.format)
            found = (
                one for file in part.files for one in read(file, relations=artefacts.relations, **options)
            )
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
        read, options = document_reader(part.format), _options(part.format, artefacts)
        for file in part.files:
            for document in read(file, relations=artefacts.relations, **options):
                yield part.split, document


def _options(format: str, artefacts: Artefacts) -> dict[str, Any]:
    """What a format's reader is asked to do."""
    reading = artefacts.reading
    offered: dict[str, dict[str, Any]] = {
        "pubtator": {"pair_types": reading.pair_types, "directions": reading.directions},
        "docred": {"pair_types": reading.pair_types},
    }
    return offered.get(format, {})
