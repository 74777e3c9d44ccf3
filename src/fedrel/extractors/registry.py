"""A corpus as a kind of extractor reads it: words for PCNN, pieces for a transformer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import (
    DocumentSection,
    PCNNSection,
    TransformerSection,
)
from fedrel.data.documents import DocumentCorpus
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus
from fedrel.extractors.inputs import Inputs
from fedrel.extractors.pcnn.words import WordInputs
from fedrel.seeding import torch_generator

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor


def open_inputs(folder: Path, corpus: Corpus) -> Inputs:
    """What an `Inputs` saved in this folder."""
    if corpus.unit == "documents":
        from fedrel.extractors.document.marked_pieces import DocumentInputs

        return DocumentInputs.open(folder, corpus.require(DocumentCorpus))
    if (folder / "lookup.npy").exists():
        return WordInputs(
            corpus.require(SentenceCorpus), np.asarray(np.load(folder / "lookup.npy", mmap_mode="r"))
        )
    from fedrel.extractors.transformer.pieces import PieceInputs

    return PieceInputs.open(folder)


AnyExtractor = PCNNSection | TransformerSection | DocumentSection


def extractor(
    section: AnyExtractor,
    vocabulary_size: int,
    relations: int,
    seed: int,
    vectors: npt.NDArray[np.float32] | None = None,
) -> Extractor:
    """A new model, with initial weights drawn from the seed; `vectors` is PCNN's first word table."""
    import torch

    generator = torch_generator(seed, "initial weights")
    if isinstance(section, DocumentSection):
        from fedrel.extractors.document.network import document_transformer

        return document_transformer(section, relations, generator)
    if isinstance(section, TransformerSection):
        from fedrel.extractors.transformer.network import sentence_transformer

        return sentence_transformer(section, relations, generator)
    from fedrel.extractors.pcnn.network import PCNN

    return PCNN(
        vocabulary_size,
        relations,
        word_dimension=section.word_dimension,
        position_dimension=section.position_dimension,
        filters=section.filters,
        window=section.window,
        max_length=section.max_length,
        dropout=section.dropout,
        vectors=None if vectors is None else torch.tensor(vectors),
        train_words=section.train_words,
        bias=section.bias,
        generator=generator,
    )
