"""Files as columns that are numbered by what was published: the same at a site, at the coordinator, anywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.config import Config, PCNNSection
from fedrel.data import columns
from fedrel.data.align import align
from fedrel.data.columns import Corpus
from fedrel.data.documents.columns import DocumentCorpus
from fedrel.data.documents.columns import build as build_documents
from fedrel.data.documents.document import Document
from fedrel.data.documents.readers import reader as document_reader
from fedrel.data.instances import Instance
from fedrel.data.partition import Partition
from fedrel.data.readers import SOURCED, reader
from fedrel.data.vectors import Vocabulary
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.numbering import renumbered
from fedrel.deployment.policy import TEXT
from fedrel.document_config import DocumentSection
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs, WordInputs
from fedrel.federation.materials import Materials
from fedrel.prepare import fixed_words

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
        corpus = columns.build(_instances(parts, artefacts), Path(first) / "x", artefacts.relations, progress)
        return renumbered(corpus, artefacts.knowledge_base, folder)


def materials(
    text: Corpus | DocumentCorpus,
    held: Partition,
    artefacts: Artefacts,
    config: Config,
    folder: Path,
    progress: Progress | None = None,
) -> Materials:
    """The columns as the experiment's model reads them; what it makes of them is kept in `folder`."""
    section, size = config.extractor, 0
    inputs: Inputs
    if isinstance(section, PCNNSection):
        assert isinstance(text, Corpus) and artefacts.words is not None
        words = Vocabulary(tuple(artefacts.words))
        inputs, size = WordInputs(text, words.lookup(text.words)), len(words)
    elif isinstance(section, DocumentSection):
        from fedrel.extractors.document_pieces import tokenise as tokenise_documents

        assert isinstance(text, DocumentCorpus)
        inputs = tokenise_documents(text, section, progress, folder / "pieces")
    else:
        from fedrel.extractors.pieces import tokenise

        assert isinstance(text, Corpus)
        inputs = tokenise(text, section, progress, folder / "pieces")
    return Materials(
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
        raise UserError(problem, remedy="label the text yourself and name its format")
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
